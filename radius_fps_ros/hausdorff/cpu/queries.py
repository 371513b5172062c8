"""Depth-first traversals of the hierarchy: nearest triangle of a point, one triangle near a whole triangle."""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .bvh import FIRST, LAST
from .geometry import box_distance2, corners_distance2, triangle_distance2
from .kernel import jit, stopped


@jit
def nearest(
    nodes: NDArray, links: NDArray, rows: NDArray, x: float, y: float, z: float,
    best: float, row: int, enough: float, stop: NDArray, stack: NDArray, near: NDArray,
) -> tuple[float, int]:  # fmt: skip
    """Smallest squared distance from a point to the mesh and the row that attains it.

    ``best, row`` is a known candidate (or inf, -1); the search ends early once it is not above ``enough``. A point that
    is equally far from all of the mesh visits all of it.
    """
    top, node = 0, 0
    while best > enough:
        last = links[node, LAST]
        if last >= 0:
            for j in range(links[node, FIRST], last):
                d = triangle_distance2(rows, j, x, y, z)
                if d < best:
                    best, row = d, j
        else:
            child = links[node, FIRST]
            other = child + 1
            d = box_distance2(nodes, child, x, y, z)
            e = box_distance2(nodes, other, x, y, z)
            if e < d:
                child, other, d, e = other, child, e, d
            if d < best:
                if e < best:
                    stack[top], near[top] = other, e
                    top += 1
                node = child
                continue
        while top > 0 and near[top - 1] >= best:
            top -= 1
        if top == 0 or stopped(stop):
            break
        top -= 1
        node = stack[top]
    return best, row


@jit
def _margin(
    nodes: NDArray, k: int, x0: float, y0: float, z0: float, x1: float, y1: float, z1: float
) -> float:  # fmt: skip
    """How far inside node ``k``'s box a box lies; negative: how far it sticks out."""
    return min(
        min(x0 - nodes[k, 0], y0 - nodes[k, 1], z0 - nodes[k, 2]),
        min(nodes[k, 3] - x1, nodes[k, 4] - y1, nodes[k, 5] - z1),
    )


@jit
def within(
    nodes: NDArray, links: NDArray, rows: NDArray, corners: NDArray, i: int, reach: float, stop: NDArray, stack: NDArray
) -> tuple[float, int]:  # fmt: skip
    """Any row no farther than ``reach`` from all corners of triangle ``i``, its squared distance first; or (inf, -1).

    Such a row's boxes, grown by ``reach``, contain the triangle's box; the search goes first where it lies deepest.
    """
    limit = reach * reach
    x0, x1 = min(corners[i, 0], corners[i, 3], corners[i, 6]), max(corners[i, 0], corners[i, 3], corners[i, 6])
    y0, y1 = min(corners[i, 1], corners[i, 4], corners[i, 7]), max(corners[i, 1], corners[i, 4], corners[i, 7])
    z0, z1 = min(corners[i, 2], corners[i, 5], corners[i, 8]), max(corners[i, 2], corners[i, 5], corners[i, 8])
    top, node = 0, 0
    while True:
        last = links[node, LAST]
        if last >= 0:
            for j in range(links[node, FIRST], last):
                d = corners_distance2(rows, j, corners, i, limit)
                if d <= limit:
                    return d, j
        else:
            child = links[node, FIRST]
            other = child + 1
            a = _margin(nodes, child, x0, y0, z0, x1, y1, z1)
            b = _margin(nodes, other, x0, y0, z0, x1, y1, z1)
            if b > a:
                child, other, a, b = other, child, b, a
            if a >= -reach:
                if b >= -reach:
                    stack[top] = other
                    top += 1
                node = child
                continue
        if top == 0 or stopped(stop):
            return np.inf, -1
        top -= 1
        node = stack[top]
