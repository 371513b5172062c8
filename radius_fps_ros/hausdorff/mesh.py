"""Meshes in: files through trimesh, arrays, validation; a prepared mesh keeps what is built from it."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

if TYPE_CHECKING:
    from .cpu.prepared import CpuMesh

SUFFIXES = (".ply", ".obj", ".stl", ".off", ".glb")
# Squares of coordinates up to this stay far from overflow.
LARGEST = 1e100


class PreparedMesh:
    """A checked triangle mesh with the search structures built from it, kept for the next certification.

    Attributes:
        vertices: ``(V, 3)`` float64.
        faces: ``(F, 3)`` int32.
        low, high: corners of the bounding box of the vertices that faces use.
    """

    def __init__(self, vertices: NDArray[np.float64], faces: NDArray[np.int32]) -> None:
        """Take arrays as ``prepare_mesh`` returns them: checked, contiguous, not changed afterwards."""
        self.vertices = vertices
        self.faces = faces
        self.low, self.high = _used_box(vertices, faces)
        self._lock = threading.Lock()
        self._cpu: CpuMesh | None = None

    @property
    def diagonal(self) -> float:
        """Length of the bounding box's diagonal."""
        return float(np.linalg.norm(self.high - self.low))

    @property
    def origin(self) -> NDArray[np.float64]:
        """Centre of the bounding box: the origin of the local frame in which distances to this mesh are computed."""
        return 0.5 * self.low + 0.5 * self.high

    def cpu(self) -> CpuMesh:
        """The CPU backend's structures, built when first asked for."""
        from .cpu.prepared import CpuMesh

        with self._lock:
            if self._cpu is None:
                self._cpu = CpuMesh(self)
            return self._cpu


def _used_box(
    vertices: NDArray[np.float64], faces: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of the bounding box of the vertices that faces use.

    Mostly that is the box of all vertices: to look for the six that touch it costs a fraction of marking every vertex.
    """
    axes = [vertices[:, axis].copy() for axis in range(3)]
    ends = [(int(values.argmin()), int(values.argmax())) for values in axes]
    if not all(_is_used(vertex, faces) for vertex in {vertex for pair in ends for vertex in pair}):
        used = np.zeros(len(vertices), dtype=bool)
        used[faces.ravel()] = True
        axes = [values[used] for values in axes]
        ends = [(int(values.argmin()), int(values.argmax())) for values in axes]
    low, high = ([values[pair[end]] for values, pair in zip(axes, ends, strict=True)] for end in (0, 1))
    return np.array(low), np.array(high)


def _is_used(vertex: int, faces: NDArray[np.int32]) -> bool:
    """In pieces that stay in the cache, until it is found."""
    flat, piece = faces.ravel(), 2**16
    return any((flat[i : i + piece] == vertex).any() for i in range(0, len(flat), piece))


MeshLike: TypeAlias = tuple[ArrayLike, ArrayLike] | str | os.PathLike[str] | PreparedMesh


def prepare_mesh(mesh: MeshLike, name: str = "mesh") -> PreparedMesh:
    """Check a mesh once, so that it can be certified against many times without building its structures again.

    Args:
        mesh: vertices ``(V, 3)`` and faces ``(F, 3)``, or a path for ``load_mesh``; a prepared mesh is returned as is.
        name: what error messages call it.

    Raises:
        InputError: the arrays do not describe a triangle mesh, or the file cannot be read as one.
    """
    if isinstance(mesh, PreparedMesh):
        return mesh
    if isinstance(mesh, (str, os.PathLike)):
        return PreparedMesh(*load_mesh(mesh))
    try:
        vertices, faces = mesh
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a pair (vertices, faces) or a path, not {type(mesh).__name__}") from None
    return PreparedMesh(*check_mesh(vertices, faces, name))


def check_mesh(
    vertices: ArrayLike, faces: ArrayLike, name: str = "mesh"
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Vertices as contiguous float64 and faces as contiguous int32, or an InputError that says what is wrong."""
    try:
        # Writable and aligned also where the caller's are not: each kind of array would compile the kernels anew.
        v = np.require(vertices, np.float64, ["C", "A", "W"])
        f = np.asarray(faces)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: vertices and faces must be arrays of numbers ({error})") from None
    if v.ndim != 2 or v.shape[1] != 3:
        raise InputError(f"{name}: vertices must have shape (V, 3), not {v.shape}")
    if f.ndim != 2 or f.shape[1] != 3:
        if f.size == 0:
            raise InputError(f"{name} is empty: it has no faces")
        raise InputError(f"{name}: faces must have shape (F, 3): three vertex indices a triangle, not {f.shape}")
    if len(f) == 0 or len(v) == 0:
        raise InputError(f"{name} is empty: it has no {'faces' if len(f) == 0 else 'vertices'}")
    if f.dtype.kind not in "iu":
        raise InputError(f"{name}: faces must hold integers, not {f.dtype}")
    low, high = int(f.min()), int(f.max())
    if low < 0 or high >= len(v):
        bad = low if low < 0 else high
        raise InputError(f"{name}: vertex index {bad} is out of range; faces may use 0 to {len(v) - 1}")
    if not (v.min() >= -LARGEST and v.max() <= LARGEST):  # NaN is neither
        unusable = np.flatnonzero(~np.isfinite(v).all(axis=1))
        if len(unusable):
            raise InputError(f"{name}: vertex {unusable[0]} is not finite (NaN or infinite)")
        raise InputError(f"{name}: coordinates must not exceed {LARGEST:g} in magnitude")
    return v, np.require(f, np.int32, ["C", "A", "W"])


def load_mesh(path: str | os.PathLike[str]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Read a triangle mesh from a PLY, OBJ, STL, OFF or GLB file; units are left as they are.

    All parts of a scene become one mesh, placed as the scene places them; polygons are cut into triangles. Vertices
    are neither merged nor dropped.

    Returns:
        Vertices ``(V, 3)`` float64 and faces ``(F, 3)`` int32.

    Raises:
        InputError: no such file, a folder, another format, a damaged file, or nothing with triangles in it.
    """
    import trimesh

    file = Path(path)
    suffix = file.suffix.lower()
    try:
        if not file.exists():
            raise InputError(f"{file}: no such file")
        if not file.is_file():
            raise InputError(f"{file} is not a file")
        if suffix not in SUFFIXES:
            raise InputError(f"{file}: the format {suffix or 'without a suffix'} is not one of {', '.join(SUFFIXES)}")
        if file.stat().st_size == 0:
            raise InputError(f"{file} is empty (0 bytes)")
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    try:
        stream = io.BytesIO(_in_utf8(content, suffix))  # the readers take no file name that is not UTF-8 either
        mesh = trimesh.load_scene(stream, file_type=suffix[1:], process=False, skip_materials=True).to_mesh()
    except Exception as error:  # the readers raise whatever their parsing meets
        detail = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{file} cannot be read as a {suffix} mesh: {detail}") from error
    if len(mesh.faces) == 0:
        raise InputError(f"{file} holds no triangles")
    return check_mesh(mesh.vertices, mesh.faces, str(file))


_ASCII_ONLY = bytes(range(128)) + b"?" * 128


def _in_utf8(content: bytes, suffix: str) -> bytes:
    """The file with comments and names that are in another encoding recoded; all else stays as it is.

    The readers take UTF-8 alone, and what is not ASCII says nothing about the triangles.
    """
    text = len(content)
    if suffix == ".ply":
        text = max(0, content.find(b"end_header"))
    elif suffix == ".stl" and text >= 84 and text == 84 + 50 * int.from_bytes(content[80:84], "little"):
        text = 80  # binary: only its header is text, and must keep its length
    elif suffix == ".glb":
        text = 0  # UTF-8 by its specification
    head = content[:text]
    try:
        head.decode()
    except UnicodeDecodeError:
        recoded = head.decode("latin-1").encode() if text == len(content) else head.translate(_ASCII_ONLY)
        return recoded + content[text:]
    return content
