"""Checkpoint files as NumPy arrays: safetensors, and PyTorch's ``.pth`` without PyTorch and without running code.

A ``.pth`` file is a pickle, and a pickle can call anything it can name. Here it can name nothing but the few entries of
``_ALLOWED``, which describe tensors; every other name ends the reading before anything is called.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

# First object of files written before PyTorch 1.6 (not zip archives).
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C

_STORAGE_TYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}


@dataclass
class _Storage:
    kind: str
    key: str


@dataclass
class _Tensor:
    """A tensor as the pickle describes it; its values are read once the storages are."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self, storages: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """A copy of the values; raises ``ValueError`` when they would lie outside the storage."""
        values = storages[self.storage.key]
        size = tuple(int(n) for n in self.size)
        stride = tuple(int(n) for n in self.stride)
        offset = int(self.offset)
        if len(size) != len(stride) or min((offset, *size, *stride)) < 0:
            raise ValueError("malformed tensor")
        count = int(np.prod(size, dtype=object))
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if count and (last >= len(values) or count > len(values)):
            raise ValueError("a tensor lies outside its storage")
        if count == 0:
            return np.empty(size, dtype=values.dtype)
        steps = tuple(s * values.itemsize for s in stride)
        return np.array(np.lib.stride_tricks.as_strided(values[offset:], size, steps))


def _rebuild_tensor(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(size), tuple(stride))


def _rebuild_parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): tuple,
    **{("torch", name): kind for name, kind in _STORAGE_TYPES.items()},
}


class _Refused(Exception):
    """The pickle names something that is not a tensor."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="utf-8")
        self.kinds: dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key = pid[:3]
        if kind not in _STORAGE_TYPES.values():
            raise ValueError(f"unknown storage type {kind!r}")
        self.kinds[str(key)] = kind
        return _Storage(kind, str(key))


def load_weights(path: str | Path) -> dict[str, NDArray[Any]]:
    """All arrays of a checkpoint by name; floating-point ones as float32.

    ``.safetensors`` files, and PyTorch files (``.pth``, ``.pt``, zip or older format) that hold a state dict, alone or
    under ``model_state`` (OpenPCDet), ``state_dict`` (CenterPoint, Det3D) or ``model``. PyTorch is not needed.

    Raises:
        InputError: the file cannot be read, is damaged, holds no state dict, or asks to run code (refused).
    """
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        loaded = _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except OSError as error:
        raise InputError(f"cannot read the checkpoint {path}: {error.strerror or error}") from error
    except _Refused as refused:
        raise InputError(
            f"the checkpoint {path} asks for {refused}, which is no tensor: refused without running anything; "
            f"save the state dict alone, or use safetensors"
        ) from None
    return _state_dict(loaded, path)


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return {name: _as_float32(array) for name, array in load_file(path).items()}
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the checkpoint {path} is not a readable safetensors file: {error}") from error


# What damaged bytes make the standard library raise; none of it is a fault of this program.
_DAMAGE = (
    pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError, ValueError, KeyError, TypeError, IndexError,
    AttributeError, MemoryError, OverflowError, NotImplementedError, RuntimeError,
)  # fmt: skip
_Loaded = tuple[Any, Callable[[_Tensor], NDArray[Any]]]


def _damaged(path: Path, error: Exception) -> InputError:
    if isinstance(error, MemoryError):  # damage can claim any size, but so can a sound file
        return InputError(f"the checkpoint {path} needs more memory than there is, or is damaged")
    return InputError(f"the checkpoint {path} is damaged or no PyTorch file ({type(error).__name__}: {error})")


def _read_zip(path: Path) -> _Loaded:
    try:
        with zipfile.ZipFile(path) as archive:
            record = next(name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl")
            folder = record.removesuffix("data.pkl")
            unpickler = _Unpickler(io.BytesIO(archive.read(record)))
            loaded = unpickler.load()
            storages = {
                key: _values(archive.read(f"{folder}data/{key}"), kind) for key, kind in unpickler.kinds.items()
            }
    except StopIteration:
        raise InputError(f"the checkpoint {path} is a zip file without a data.pkl, so no PyTorch checkpoint") from None
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return loaded, lambda tensor: tensor.read(storages)


def _read_legacy(path: Path) -> _Loaded:
    try:
        with path.open("rb") as file:
            if _Unpickler(file).load() != _LEGACY_MAGIC:
                raise ValueError("no PyTorch magic number")
            for _ in ("protocol version", "system information"):
                _Unpickler(file).load()
            unpickler = _Unpickler(file)
            loaded = unpickler.load()
            storages = {}
            for key in _Unpickler(file).load():
                (count,) = struct.unpack("<q", file.read(8))
                kind = unpickler.kinds[str(key)]
                storages[str(key)] = _values(file.read(count * _itemsize(kind)), kind)
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return loaded, lambda tensor: tensor.read(storages)


def _itemsize(kind: str) -> int:
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize


def _values(raw: bytes, kind: str) -> NDArray[Any]:
    if kind == "bfloat16":  # the upper half of a float32
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, kind)


def _as_float32(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _state_dict(loaded: _Loaded, path: Path) -> dict[str, NDArray[Any]]:
    content, read = loaded
    for key in ("model_state", "state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            break
    if not isinstance(content, dict) or not any(isinstance(value, _Tensor) for value in content.values()):
        raise InputError(f"the checkpoint {path} holds no state dict (a mapping of names to tensors)")
    try:
        return {str(name): _as_float32(read(v)) for name, v in content.items() if isinstance(v, _Tensor)}
    except _DAMAGE as error:
        raise _damaged(path, error) from error
