"""CUDA source files: read, expand, compile with NVRTC through CuPy, keep one module per device."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import BackendError
from ..replacing import replacing

# Sources are expanded here rather than by NVRTC's include path because CuPy's disk cache is keyed by the source text:
# a changed header would otherwise be served from a stale binary.
_INCLUDE = re.compile(r'^[ \t]*#include "([\w.]+)"[ \t]*$', re.MULTILINE)


@dataclass(frozen=True)
class KernelFile:
    """One ``.cu`` file of this package.

    Attributes:
        package: dotted name of the package whose folder holds the file.
        name: file name; ``#include "x.cuh"`` is resolved in the same folder, then in ``radius_fps_ros/device``.
        options: NVRTC options beyond the common ones, for example ``("--fmad=false",)``.
        variants: the macro sets the package loads at run time; tests compile each for every architecture.
        architecture: the only architecture the file has kernels for (``"sm_90a"``), where it is not the device's plain
            one, which CuPy compiles for.
    """

    package: str
    name: str
    options: tuple[str, ...] = ()
    variants: tuple[tuple[tuple[str, int], ...], ...] = ((),)
    architecture: str | None = None

    def source(self) -> str:
        """The file's text with its quoted includes expanded once each."""
        seen: set[str] = set()

        def expand(name: str) -> str:
            if name in seen:
                return ""
            seen.add(name)
            path = files(self.package) / name
            if not path.is_file():
                path = files("radius_fps_ros.device") / name
            return _INCLUDE.sub(lambda match: expand(match.group(1)), path.read_text())

        return expand(self.name)

    def _options(self, defines: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
        return ("--std=c++17", *self.options, *(f"-D{name}={value}" for name, value in defines))

    def load(self, **defines: int) -> Any:
        """The compiled ``cupy.RawModule`` for the current device; compiled once, then from CuPy's disk cache.

        Raises:
            BackendError: NVRTC refused the source or the device could not load it.
        """
        import cupy

        return _load(self, tuple(sorted(defines.items())), cupy.cuda.Device().id)

    def compile(self, architecture: str, defines: tuple[tuple[str, int], ...] = ()) -> bytes:
        """Compile for ``architecture`` (``"sm_90"``) with the macros ``defines``, without a device.

        Returns:
            The binary (cubin).

        Raises:
            BackendError: with NVRTC's log when the source does not compile.
        """
        from cupy_backends.cuda.libs import nvrtc

        program = nvrtc.createProgram(self.source(), self.name, (), ())
        try:
            nvrtc.compileProgram(program, (*self._options(defines), f"--gpu-architecture={architecture}"))
            return bytes(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise BackendError(f"{self.name} does not compile for {architecture}: {error}\n{log}") from error
        finally:
            nvrtc.destroyProgram(program)


@functools.cache
def _load(kernel: KernelFile, defines: tuple[tuple[str, int], ...], device: int) -> Any:
    import cupy

    if kernel.architecture is not None:
        return cupy.RawModule(path=str(_cached_binary(kernel, defines, kernel.architecture)))
    module = cupy.RawModule(code=kernel.source(), backend="nvrtc", options=kernel._options(defines))
    try:
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise BackendError(f"{kernel.name} does not compile for CUDA device {device}: {error}") from error
    return module


def _cached_binary(kernel: KernelFile, defines: tuple[tuple[str, int], ...], architecture: str) -> Path:
    """The binary, kept in the folder where CuPy keeps those that it compiles."""
    from cupy_backends.cuda.libs import nvrtc

    parts = (nvrtc.getVersion(), architecture, kernel._options(defines), kernel.source())
    folder = Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()
    path = folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.cubin"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            beside.write_bytes(kernel.compile(architecture, defines))
    return path
