"""What the CUDA backend keeps of a mesh on the device: faces along a Hilbert curve and, as target, the tree."""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mesh import PreparedMesh
from .kernels import FRAME, KERNEL_TREE, MESH, NODE_BYTES, ROW_BYTES, TARGET, Parameters, launch

SORT_BYTES = 48  # a face while sorting: the unsorted face, keys, order, and what the sort takes
TOP = 8192  # nodes of a level that one block builds with all above it: a launch for each level takes the host longer


def tree_levels(faces: int) -> list[int]:
    """Nodes of each level of the tree over ``faces`` triangles, the root first."""
    levels = [-(-faces // 4)]
    while levels[0] > 1:
        levels.insert(0, -(-levels[0] // 4))
    return levels


def first_node(level: int) -> int:
    """Number of the first node of a level: every level above is complete."""
    return int(4**level - 1) // 3


class CudaMesh:
    """One mesh on one device; the tree is built when first asked for."""

    def __init__(self, mesh: PreparedMesh) -> None:
        import cupy

        self.count = len(mesh.faces)
        self.half = float(np.abs(np.stack([mesh.low, mesh.high]) - mesh.origin).max())
        # A power of two that brings the mesh to size 1; coordinates of any mesh stay where their squares are finite.
        exponent = math.frexp(self.half)[1] if self.half > 0.0 else 0
        self.scale = math.ldexp(1.0, -min(max(exponent, -166), 400))
        self.origin: NDArray[np.float64] = mesh.origin
        self.vertices = cupy.asarray(mesh.vertices)
        self.faces = cupy.empty((self.count, 3), np.int32)
        unsorted = cupy.asarray(mesh.faces)
        keys = cupy.empty(self.count, np.uint64)
        self._build("curve_keys", self.count, self._mesh(unsorted), self.frame(), self.half * self.scale, keys)
        self._build("sort_faces", self.count, unsorted, cupy.argsort(keys), self.count, self.faces)
        self._tree: tuple[int, Any, Any, Any] | None = None  # first leaf, nodes, rows, the event of their being there
        self._lock = threading.Lock()
        self._ready = cupy.cuda.get_current_stream().record()

    @staticmethod
    def bytes(mesh: PreparedMesh, *, tree: bool) -> int:
        """Device memory that a mesh takes, without and with its tree."""
        faces = len(mesh.faces)
        nodes = first_node(len(tree_levels(faces)) - 1) + -(-faces // 4)
        return mesh.vertices.nbytes + mesh.faces.nbytes + tree * (NODE_BYTES * nodes + ROW_BYTES * faces)

    def _mesh(self, faces: Any) -> NDArray[Any]:
        return np.array((faces.data.ptr, self.vertices.data.ptr, self.count), MESH)

    def frame(self) -> NDArray[Any]:
        """The ``Frame`` of ``mesh.cuh``: distances to this mesh are computed in it."""
        return np.array((self.origin, self.scale), FRAME)

    def source(self) -> NDArray[Any]:
        """The ``Mesh`` of ``mesh.cuh``; the current stream waits until it is there."""
        import cupy

        cupy.cuda.get_current_stream().wait_event(self._ready)
        return self._mesh(self.faces)

    def target(self) -> NDArray[Any]:
        """The ``Target`` of ``tree.cuh``; the current stream waits until it is there."""
        import cupy

        source = self.source()
        with self._lock:
            if self._tree is None:
                self._tree = self._build_tree(source)
        first_leaf, nodes, rows, built = self._tree
        cupy.cuda.get_current_stream().wait_event(built)  # another thread's stream may still be building
        return np.array((source, self.frame(), nodes.data.ptr, rows.data.ptr, first_leaf), TARGET)

    def _build_tree(self, mesh: NDArray[Any]) -> tuple[int, Any, Any, Any]:
        import cupy

        levels = tree_levels(self.count)
        first_leaf = first_node(len(levels) - 1)
        nodes = cupy.empty((first_leaf + levels[-1]) * NODE_BYTES, np.uint8)
        rows = cupy.empty(self.count * ROW_BYTES, np.uint8)
        self._build("build_leaves", levels[-1], mesh, self.frame(), first_leaf, nodes, rows)
        for level in range(len(levels) - 2, -1, -1):
            of_level = nodes, first_node(level), levels[level], levels[level + 1]
            if levels[level] <= TOP:
                launch(KERNEL_TREE, "build_top", 1, Parameters(*of_level), looping=False, threads=1024)
                break
            self._build("build_level", levels[level], *of_level)
        return first_leaf, nodes, rows, cupy.cuda.get_current_stream().record()

    @staticmethod
    def _build(name: str, items: int, *values: Any) -> None:
        launch(KERNEL_TREE, name, items, Parameters(*values), looping=False)


_meshes: weakref.WeakKeyDictionary[PreparedMesh, dict[int, CudaMesh]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def cuda_mesh(mesh: PreparedMesh) -> CudaMesh:
    """The mesh on the current device: copied there once, and kept as long as the prepared mesh."""
    import cupy

    with _lock:
        on_device = _meshes.setdefault(mesh, {})
        device = cupy.cuda.Device().id
        if device not in on_device:
            on_device[device] = CudaMesh(mesh)
        return on_device[device]
