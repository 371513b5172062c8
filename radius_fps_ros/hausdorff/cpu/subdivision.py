"""One triangle into exactly four: by its edge midpoints, or by bisecting longest edges twice where it is long."""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .bounds import NEXT, corners_bound, edge_vector, single_bound
from .bvh import STACK
from .geometry import triangle_distance2
from .kernel import ROW_OF_FARTHEST, jit, stopped
from .queries import nearest

ELONGATED = 0.06  # 2 * area / longest edge^2 below which edges are bisected (equilateral: 0.87)
MAX_DEPTH = 100  # halvings after which a triangle is closed as it is: it is smaller than rounding by far


@jit
def _midpoint(points: NDArray, parents: NDArray, new: int, a: int, b: int) -> None:
    parents[new, 0], parents[new, 1] = a, b
    for k in range(3):
        points[new, k] = 0.5 * (points[a, k] + points[b, k])


@jit
def _longest_edge(points: NDArray, a: int, b: int, c: int) -> tuple[int, int, int]:
    """The corners rotated so that the longest edge joins the first two."""
    ab, bc, ca = 0.0, 0.0, 0.0
    for k in range(3):
        ab += (points[a, k] - points[b, k]) ** 2
        bc += (points[b, k] - points[c, k]) ** 2
        ca += (points[c, k] - points[a, k]) ** 2
    if ab >= bc and ab >= ca:
        return a, b, c
    return (b, c, a) if bc >= ca else (c, a, b)


@jit
def _elongated(corners: NDArray, i: int) -> bool:
    ax, ay, az = edge_vector(corners, i, 0, 1)
    bx, by, bz = edge_vector(corners, i, 0, 2)
    cx, cy, cz = edge_vector(corners, i, 1, 2)
    nx, ny, nz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    longest = max(ax * ax + ay * ay + az * az, bx * bx + by * by + bz * bz, cx * cx + cy * cy + cz * cz)
    return math.sqrt(nx * nx + ny * ny + nz * nz) < ELONGATED * longest


@jit
def _put(children: NDArray, child: int, a: int, b: int, c: int) -> None:
    children[child, 0], children[child, 1], children[child, 2] = a, b, c


@jit
def subdivide(corners: NDArray, i: int, points: NDArray, parents: NDArray, children: NDArray) -> int:
    """Fill ``points (6, 3)`` (corners, then new points), their ``parents (6, 2)`` and ``children (4, 3)``.

    Returns how many halvings the newest point is away from the corners: 1 or 2.
    """
    for a in range(3):
        for k in range(3):
            points[a, k] = corners[i, 3 * a + k]
    if not _elongated(corners, i):
        for a in range(3):
            _midpoint(points, parents, 3 + a, a, NEXT[a])
        _put(children, 0, 0, 3, 5)
        _put(children, 1, 3, 1, 4)
        _put(children, 2, 5, 4, 2)
        _put(children, 3, 3, 4, 5)
        return 1
    a, b, c = _longest_edge(points, 0, 1, 2)
    _midpoint(points, parents, 3, a, b)
    for half in range(2):
        p, q, r = _longest_edge(points, a, 3, c) if half == 0 else _longest_edge(points, 3, b, c)
        _midpoint(points, parents, 4 + half, p, q)
        _put(children, 2 * half, p, 4 + half, r)
        _put(children, 2 * half + 1, 4 + half, q, r)
    return 2


@jit
def _copy_corners(points: NDArray, children: NDArray, child: int, corners: NDArray, i: int) -> None:
    for a in range(3):
        for k in range(3):
            corners[i, 3 * a + k] = points[children[child, a], k]


@jit
def expand(
    nodes: NDArray, links: NDArray, rows: NDArray,
    corners: NDArray, distance: NDArray, row: NDArray, bound: NDArray, depth: NDArray, first: int, last: int,
    out_corners: NDArray, out_distance: NDArray, out_row: NDArray, out_bound: NDArray, out_depth: NDArray, start: int,
    cut: float, enough: float, stop: NDArray, report: NDArray,
) -> int:  # fmt: skip
    """Subdivide triangles ``first..last`` and write the children whose bound stays above the cut from ``start`` on.

    ``report`` receives the farthest point (distance, x, y, z, row), the largest bound of what was culled and the number
    of triangles bounded.
    Returns the end of the output.
    """
    stack, near = np.empty(STACK, np.int64), np.empty(STACK)
    points, parents, children = np.empty((6, 3)), np.empty((6, 2), np.int64), np.empty((4, 3), np.int64)
    d6, row6 = np.empty(6), np.empty(6, np.int64)
    out = start
    for i in range(first, last):
        if stopped(stop):
            break
        if bound[i] <= cut or depth[i] >= MAX_DEPTH:
            report[4] = max(report[4], bound[i])
            continue
        halvings = subdivide(corners, i, points, parents, children)
        report[5] += 4.0
        open_children = 0
        for child in range(4):
            _copy_corners(points, children, child, out_corners, out)
            u = single_bound(nodes, links, rows, out_corners, out, row, i, cut, stop, stack)
            if u <= cut:
                report[4] = max(report[4], u)
            else:
                _put(children, open_children, children[child, 0], children[child, 1], children[child, 2])
                open_children += 1
        if open_children == 0:
            continue
        for a in range(3):
            d6[a], row6[a] = distance[i, a], row[i, a]
        for p in range(3, 6):
            x, y, z = points[p, 0], points[p, 1], points[p, 2]
            k = row6[parents[p, 0]]
            d = triangle_distance2(rows, k, x, y, z)
            if row6[parents[p, 1]] != k:
                e = triangle_distance2(rows, row6[parents[p, 1]], x, y, z)
                if e < d:
                    d, k = e, row6[parents[p, 1]]
            d, k = nearest(nodes, links, rows, x, y, z, d, k, enough, stop, stack, near)
            d6[p], row6[p] = math.sqrt(d), k
            if d6[p] > report[0]:
                report[0], report[1], report[2], report[3] = d6[p], x, y, z
                report[ROW_OF_FARTHEST] = k
        for child in range(open_children):
            _copy_corners(points, children, child, out_corners, out)
            for a in range(3):
                p = children[child, a]
                out_distance[out, a], out_row[out, a] = d6[p], row6[p]
            u = corners_bound(rows, out_corners, out_distance, out_row, out, bound[i], cut)
            if u <= cut:
                report[4] = max(report[4], u)
            else:
                out_bound[out], out_depth[out] = u, depth[i] + halvings
                out += 1
    return out
