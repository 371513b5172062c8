"""What the CPU backend keeps of a mesh: the hierarchy (as target), space order (as source)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .bvh import Bvh, build_bvh, face_boxes
from .seeds import GROUP, group_boxes, morton_order
from .workers import Workers

if TYPE_CHECKING:
    from ..mesh import PreparedMesh


class CpuMesh:
    """Structures of one mesh, each built when first asked for and kept.

    Two certifications that need the same one at once wait for each other. When the one that builds is stopped, nothing
    of its work is kept and the other builds.
    """

    def __init__(self, mesh: PreparedMesh) -> None:
        self._mesh = mesh
        self._lock = threading.Lock()
        self._bvh: Bvh | None = None
        self._order: tuple[NDArray[np.int32], NDArray[np.float64]] | None = None

    def bvh(self, workers: Workers) -> Bvh:
        """Hierarchy over the faces, in the mesh's local frame."""
        with workers.hold(self._lock):
            if self._bvh is None:
                vertices = moved_to(self._mesh.origin, self._mesh.vertices, workers)
                self._bvh = build_bvh(vertices, self._mesh.faces, workers)
            return self._bvh

    def order(self, workers: Workers) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Faces in Z-order and the boxes ``(G, 6)`` of their groups, in the mesh's own coordinates."""
        with workers.hold(self._lock):
            if self._order is None:
                boxes = face_boxes(self._mesh.vertices, self._mesh.faces, workers)
                order = np.empty(len(boxes), np.int32)
                morton_order(boxes, order, workers.stop)
                workers.check()
                groups = np.empty((-(-len(boxes) // GROUP), 6))
                workers.over(len(groups), lambda first, last: group_boxes(boxes, order, groups, first, last))
                self._order = order, groups
            return self._order


def moved_to(origin: NDArray[np.float64], vertices: NDArray[np.float64], workers: Workers) -> NDArray[np.float64]:
    """Vertices ``(V, 3)`` relative to ``origin``."""
    moved = np.empty_like(vertices)
    workers.over(len(vertices), lambda i, j: np.subtract(vertices[i:j], origin, out=moved[i:j]))
    return moved
