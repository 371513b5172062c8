"""Meshes of a request: inline or by URI, checked, and prepared ones kept by content."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from shape_msgs.msg import Mesh

from ..errors import InputError
from ..hausdorff import PreparedMesh, prepare_mesh
from .mesh_reader import read_mesh


@dataclass(frozen=True)
class MeshLimits:
    """What a request may name: folders, file size [bytes] and number of triangles."""

    allowed_roots: tuple[Path, ...]
    max_file_bytes: int
    max_triangles: int


class MeshCache:
    """Prepared meshes by the hash of their content; the least recently used leave when there are too many triangles.

    One map that is certified against many candidates is checked and built once.
    """

    def __init__(self, max_triangles: int) -> None:
        """``max_triangles`` bounds the sum over the meshes kept; 0 keeps none."""
        self._max_triangles = max_triangles
        self._meshes: OrderedDict[bytes, PreparedMesh] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes, make: Callable[[], PreparedMesh]) -> PreparedMesh:
        """The mesh with this content, made where it is not known. Two requests at once may both make it."""
        with self._lock:
            if key in self._meshes:
                self._meshes.move_to_end(key)
                return self._meshes[key]
        mesh = make()
        with self._lock:
            self._meshes[key] = mesh
            while sum(len(kept.faces) for kept in self._meshes.values()) > self._max_triangles and self._meshes:
                self._meshes.popitem(last=False)
        return mesh


def requested_mesh(name: str, mesh: Mesh, uri: str, limits: MeshLimits, cache: MeshCache) -> PreparedMesh:
    """The mesh ``name`` ("A" or "B") of a request.

    Raises:
        InputError: both or neither are given, the URI is not allowed, or the mesh cannot be used.
    """
    inline = bool(mesh.triangles or mesh.vertices)
    if inline and uri:
        raise InputError(f"mesh {name} is given both inline and by URI; give one of them")
    if inline:
        return _inline_mesh(name, mesh, limits, cache)
    if not uri:
        raise InputError(f"mesh {name} is missing: give it inline or by URI")
    path = resolve_uri(uri, limits.allowed_roots)
    try:
        size = path.stat().st_size
        if size > limits.max_file_bytes:
            raise InputError(f"mesh {name}: the file has {size} bytes, more than the limit of {limits.max_file_bytes}")
        # The suffix is part of the key because it decides how the bytes are read.
        key = hashlib.sha256(path.suffix.lower().encode() + b"\0")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                key.update(block)
    except OSError as error:
        raise InputError(f"{uri!r} cannot be read: {error.strerror}") from None
    return cache.get(key.digest(), lambda: _limited(name, PreparedMesh(*read_mesh(path)), limits))


def resolve_uri(uri: str, allowed_roots: Sequence[Path]) -> Path:
    """The file that a ``file://`` or ``package://`` URI names, links and ``..`` resolved.

    Raises:
        InputError: another scheme, an unknown package, no regular file, or a file outside the allowed roots.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets that do not close
        parts = urlsplit("")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = Path(unquote(parts.path))
    elif parts.scheme == "package" and parts.netloc:
        try:
            path = Path(get_package_share_directory(parts.netloc)) / unquote(parts.path).lstrip("/")
        except (PackageNotFoundError, OSError, ValueError):
            raise InputError(f"{uri!r}: there is no package {parts.netloc!r}") from None
    else:
        raise InputError(f"{uri!r} is not a file:///path or package://name/path URI")
    try:
        resolved = path.resolve()
        inside = any(resolved.is_relative_to(root) for root in allowed_roots)
        # Outside, not even whether the file exists is told.
        if not inside:
            raise InputError(f"{uri!r} is outside the folders that parameter allowed_roots names")
        if not resolved.is_file():
            what = "is a folder, not a mesh file" if resolved.is_dir() else "does not exist or is not a regular file"
            raise InputError(f"{uri!r} {what}")
    except (OSError, RuntimeError, ValueError) as error:  # loops of links, names too long, embedded zero bytes
        if isinstance(error, InputError):
            raise
        raise InputError(f"{uri!r} cannot be resolved: {error}") from None
    return resolved


def _inline_mesh(name: str, mesh: Mesh, limits: MeshLimits, cache: MeshCache) -> PreparedMesh:
    if len(mesh.triangles) > limits.max_triangles:
        raise _too_many(name, len(mesh.triangles), limits)
    # One flat iteration a member: NumPy would inspect every Python object of a nested list.
    vertices = np.fromiter(
        (c for p in mesh.vertices for c in (p.x, p.y, p.z)), np.float64, 3 * len(mesh.vertices)
    ).reshape(-1, 3)
    triangles = [triangle.vertex_indices for triangle in mesh.triangles]
    faces = np.concatenate(triangles).astype(np.int64).reshape(-1, 3) if triangles else np.empty((0, 3), np.int64)
    key = hashlib.sha256(b"inline\0" + len(vertices).to_bytes(8, "little") + vertices.tobytes() + faces.tobytes())
    return cache.get(key.digest(), lambda: prepare_mesh((vertices, faces), f"mesh {name}"))


def _limited(name: str, mesh: PreparedMesh, limits: MeshLimits) -> PreparedMesh:
    if len(mesh.faces) > limits.max_triangles:
        raise _too_many(name, len(mesh.faces), limits)
    return mesh


def _too_many(name: str, count: int, limits: MeshLimits) -> InputError:
    return InputError(f"mesh {name} has {count} triangles, more than the limit of {limits.max_triangles}")
