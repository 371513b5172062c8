"""What the CPU backend keeps of a mesh: local coordinates, the hierarchy (as target), space order (as source)."""

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
    """Structures of one mesh, each built when first asked for and kept."""

    def __init__(self, mesh: PreparedMesh) -> None:
        self._mesh = mesh
        self._lock = threading.Lock()
        self._bvh: Bvh | None = None
        self._order: tuple[NDArray[np.int32], NDArray[np.float64]] | None = None
        self.vertices = mesh.vertices - mesh.origin

    def bvh(self, workers: Workers) -> Bvh:
        """Hierarchy over the faces, in the mesh's local frame."""
        with self._lock:
            if self._bvh is None:
                self._bvh = build_bvh(self.vertices, self._mesh.faces, workers)
            return self._bvh

    def order(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Faces in Z-order and the boxes ``(G, 6)`` of their groups, in the mesh's own coordinates."""
        with self._lock:
            if self._order is None:
                boxes = np.empty((len(self._mesh.faces), 6))
                face_boxes(self._mesh.vertices, self._mesh.faces, boxes)
                order = np.empty(len(boxes), np.int32)
                morton_order(boxes, order)
                groups = np.empty((-(-len(boxes) // GROUP), 6))
                group_boxes(boxes, order, groups)
                self._order = order, groups
            return self._order
