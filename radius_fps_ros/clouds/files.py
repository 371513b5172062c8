"""Cloud files by suffix: .pcd, .ply, .bin, .npy and .xyz, read and written with all fields."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..replacing import replacing
from .decode import Cloud
from .wording import describe_error, describe_names

SUFFIXES = (".pcd", ".ply", ".bin", ".npy", ".xyz")

Records = npt.NDArray[np.void]

_KITTI = ("x", "y", "z", "intensity")
_NUSCENES = (*_KITTI, "ring")
_MOST_COLUMNS = 1024


def read_cloud(path: str | os.PathLike[str], *, bin_columns: int | None = None) -> Cloud:
    """Read a cloud file; the suffix says how.

    - ``.pcd``, ``.ply``: all fields, as typed in the file.
    - ``.bin``: float32 without a header, 4 values a point as in KITTI (x y z intensity) or 5 as in nuScenes (and ring).
      ``bin_columns`` says which; without it the size decides, and where both divide it, it is nuScenes when every
      fifth value is a whole number from 0 to 255, else KITTI.
    - ``.npy``: a structured array with x, y and z, or (N, 3 or more) numbers.
    - ``.xyz``: text, one point a line, read as float64.

    Columns without names are x, y, z, field_3, field_4, ...; in ``.xyz`` a first line ``# x y z ...`` may name them.

    Raises:
        InputError: there is no such file, it is damaged or of another format, or it has no usable x, y and z.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path} has the suffix {suffix!r}; allowed are {', '.join(SUFFIXES)}")
    if bin_columns not in (None, 4, 5):
        raise InputError(f"bin_columns is {bin_columns}; allowed are 4 (KITTI) and 5 (nuScenes)")
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a cloud file")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty (0 bytes)")
        records = _read_bin(path, bin_columns) if suffix == ".bin" else _READERS[suffix](path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return Cloud.of_records(records)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def write_cloud(path: str | os.PathLike[str], records: Records) -> None:
    """Write (N,) structured records with all their fields; the suffix says how.

    ``.pcd`` and ``.ply`` are written binary, ``.xyz`` with as many digits as the types need. A field of several values
    becomes several columns ``name_0``, ``name_1``, ... in ``.ply`` and ``.xyz``. ``.bin`` holds float32 x y z intensity
    and, if there is one, ring, and nothing else.

    A file of that name is replaced once the new one is complete.

    Raises:
        InputError: the suffix is unknown, the format cannot hold the fields, or the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path} has the suffix {suffix!r}; allowed are {', '.join(SUFFIXES)}")
    packed = _packed(records)
    _check_fields(path, packed.dtype)
    try:
        with replacing(path) as new:
            _WRITERS[suffix](new, packed)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _read_bin(path: Path, columns: int | None) -> Records:
    values = np.fromfile(path, np.uint8)
    size = values.size
    fitting = [n for n in (4, 5) if size % (4 * n) == 0 and columns in (None, n)]
    if not fitting:
        allowed = "16 (KITTI) nor of 20 (nuScenes)" if columns is None else f"{4 * columns}"
        neither = "neither a multiple of" if columns is None else "no multiple of"
        raise InputError(
            f"{path} has {size} bytes, {neither} {allowed} bytes a point: it is cut short or of another kind"
        )
    count = fitting[0]
    if len(fitting) == 2:
        fifth = values.view("<f4")[4::5]
        count = 5 if ((fifth >= 0) & (fifth <= 255) & (fifth == np.floor(fifth))).all() else 4
    names = _KITTI if count == 4 else _NUSCENES
    return values.view([(name, "<f4") for name in names])


def _read_npy(path: Path) -> Records:
    try:
        # Mapping checks the header's claim against the file's size before anything is allocated.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers in the style of Python 2
            values = np.lib.format.open_memmap(path, mode="r")
    # A damaged header also fails as the Python text that it is, or as a size that no integer holds.
    except (ValueError, OverflowError, SyntaxError, TokenError) as error:
        raise InputError(f"{path} is not a readable NumPy array file: {describe_error(error)}") from error
    if values.dtype.names is not None:
        if values.ndim != 1:
            raise InputError(f"{path} holds records of shape {values.shape}; (N,) is needed")
        return np.array(values)
    return _columns_to_records(path, np.array(values), None)


def _read_xyz(path: Path) -> Records:
    try:
        with path.open(encoding="utf-8") as text, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")  # an empty cloud
            first = text.readline()
            text.seek(0)
            values = np.loadtxt(text, np.float64, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path} is not a text file of numbers: {describe_error(error)}") from error
    names = first[1:].split() if first.startswith("#") else []
    if values.size == 0:
        values = values.reshape(0, max(3, len(names)))
    named = len(names) == values.shape[1] and len(set(names)) == len(names) and {"x", "y", "z"} <= set(names)
    return _columns_to_records(path, values, names if named else None)


def _columns_to_records(path: Path, values: npt.NDArray, names: list[str] | None) -> Records:
    if values.ndim != 2 or not 3 <= values.shape[1] <= _MOST_COLUMNS or values.dtype.kind not in "fiu":
        raise InputError(
            f"{path} holds an array of shape {values.shape} and type {values.dtype}; "
            f"(N, 3 to {_MOST_COLUMNS}) real numbers are needed, one row a point"
        )
    names = names or ["x", "y", "z", *(f"field_{n}" for n in range(3, values.shape[1]))]
    dtype = np.dtype([(name, values.dtype) for name in names])
    return np.ascontiguousarray(values).view(dtype).reshape(-1)


def _write_bin(path: Path, records: Records) -> None:
    names = records.dtype.names or ()
    if set(names) not in (set(_KITTI), set(_NUSCENES)):
        raise InputError(
            "a .bin file can hold x, y, z, intensity and perhaps ring, "
            f"but the fields are: {describe_names(names)}; write .pcd, .ply, .npy or .xyz"
        )
    columns = [records[name].astype("<f4") for name in (_KITTI if len(names) == 4 else _NUSCENES)]
    np.column_stack(columns).tofile(path)


def _write_npy(path: Path, records: Records) -> None:
    with path.open("wb") as file:  # numpy.save would add a second suffix to one in capitals
        np.save(file, records, allow_pickle=False)


def _write_xyz(path: Path, records: Records) -> None:
    flat = _without_subarrays(records)
    names = flat.dtype.names or ()
    digits = {"f": {2: "%.5g", 4: "%.9g", 8: "%.17g"}, "i": {}, "u": {}}
    formats = [digits[flat.dtype[name].kind].get(flat.dtype[name].itemsize, "%d") for name in names]
    np.savetxt(path, flat, formats, header=" ".join(names), encoding="utf-8")


def _packed(records: Records) -> Records:
    """Return a copy without padding, in little-endian: what files hold, and no stray memory between fields."""
    names = records.dtype.names or ()
    packed: Records = np.empty(len(records), [(name, records.dtype[name].newbyteorder("<")) for name in names])
    for name in names:
        packed[name] = records[name]
    return packed


def _without_subarrays(records: Records) -> Records:
    members: list[tuple[str, np.dtype]] = []
    for name in records.dtype.names or ():
        base, shape = records.dtype[name].base, records.dtype[name].shape
        members += [(f"{name}_{i}", base) for i in range(shape[0])] if shape else [(name, base)]
    twice = [name for name, times in Counter(name for name, _ in members).items() if times > 1]
    if twice:
        raise InputError(
            f"two columns would have the same name {twice[0]!r}, one of them part of a field of several values"
        )
    return records.view(members)


def _check_fields(path: Path, dtype: np.dtype) -> None:
    """Refuse what a format cannot hold, or what its readers would not read back."""
    suffix = path.suffix.lower()
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        allowed = {".pcd": ("iu", 8), ".ply": ("iu", 4)}.get(suffix, ("iu", 8))[1]
        smallest = 2 if suffix in (".npy", ".xyz") else 4
        plain = (base.kind in "iu" and base.itemsize <= allowed) or (
            base.kind == "f" and smallest <= base.itemsize <= 8
        )
        if not plain or len(shape) > 1:
            raise InputError(f"field {name!r} has type {dtype[name]}, which a {suffix} file cannot hold")
        if suffix != ".npy" and not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise InputError(
                f"field {name!r} cannot be named so in a {suffix} file; letters, digits, '_', '.' and '-' are allowed"
            )


# The libraries behind these take a fifth of a second to import, which only their formats need.
def _read_pcd(path: Path) -> Records:
    from .pcd import read_pcd

    return read_pcd(path)


def _write_pcd(path: Path, records: Records) -> None:
    from .pcd import write_pcd

    write_pcd(path, records)


def _read_ply(path: Path) -> Records:
    from .ply import read_ply

    return read_ply(path)


def _write_ply(path: Path, records: Records) -> None:
    from .ply import write_ply

    write_ply(path, _without_subarrays(records))


_READERS: dict[str, Callable[[Path], Records]] = {
    ".pcd": _read_pcd,
    ".ply": _read_ply,
    ".npy": _read_npy,
    ".xyz": _read_xyz,
}
_WRITERS: dict[str, Callable[[Path, Records], None]] = {
    ".pcd": _write_pcd,
    ".ply": _write_ply,
    ".bin": _write_bin,
    ".npy": _write_npy,
    ".xyz": _write_xyz,
}
