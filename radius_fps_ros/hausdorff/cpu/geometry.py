"""Distances from points to triangles and boxes: the scalar kernels everything else is made of.

Triangle ``j`` of the target mesh is row ``j`` of ``(F, 16)`` float64, two cache lines: corner ``b0``, edges
``e1 = b1 - b0`` and ``e2 = b2 - b0``, their Gram matrix ``e1.e1, e1.e2, e2.e2``, ``1 / det(Gram)``, which is 0 for
slivers, and the reciprocals of the squared lengths of ``e1, e2, e2 - e1``.
Kernels take an array and an index rather than a row: a view per call would cost more than the arithmetic.
"""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .kernel import jit

ROW = 16
# det(Gram) / longest^4 below which the barycentric solve may lose more than four digits (height / length < 1e-2).
SLIVER = 1e-4


@jit
def fill_row(rows: NDArray, j: int, vertices: NDArray, a: int, b: int, c: int) -> None:
    """Write row ``j`` for the triangle with vertices ``a, b, c``."""
    for i in range(3):
        rows[j, i] = vertices[a, i]
        rows[j, 3 + i] = vertices[b, i] - vertices[a, i]
        rows[j, 6 + i] = vertices[c, i] - vertices[a, i]
    a11 = rows[j, 3] * rows[j, 3] + rows[j, 4] * rows[j, 4] + rows[j, 5] * rows[j, 5]
    a12 = rows[j, 3] * rows[j, 6] + rows[j, 4] * rows[j, 7] + rows[j, 5] * rows[j, 8]
    a22 = rows[j, 6] * rows[j, 6] + rows[j, 7] * rows[j, 7] + rows[j, 8] * rows[j, 8]
    rows[j, 9], rows[j, 10], rows[j, 11] = a11, a12, a22
    a33 = a11 - 2.0 * a12 + a22
    longest = max(a11, a22, a33)
    det = a11 * a22 - a12 * a12
    rows[j, 12] = 1.0 / det if det > SLIVER * longest * longest else 0.0
    rows[j, 13], rows[j, 14], rows[j, 15] = 1.0 / a11, 1.0 / a22, 1.0 / a33


@jit
def box_distance2(boxes: NDArray, k: int, x: float, y: float, z: float) -> float:
    """Squared distance from a point to box ``k`` (low corner, high corner)."""
    dx = max(boxes[k, 0] - x, x - boxes[k, 3], 0.0)
    dy = max(boxes[k, 1] - y, y - boxes[k, 4], 0.0)
    dz = max(boxes[k, 2] - z, z - boxes[k, 5], 0.0)
    return dx * dx + dy * dy + dz * dz


@jit
def _residual2(rows: NDArray, j: int, wx: float, wy: float, wz: float, s: float, t: float) -> float:
    dx = wx - s * rows[j, 3] - t * rows[j, 6]
    dy = wy - s * rows[j, 4] - t * rows[j, 7]
    dz = wz - s * rows[j, 5] - t * rows[j, 8]
    return dx * dx + dy * dy + dz * dz


@jit
def _clamp(value: float, high: float) -> float:
    return min(max(value, 0.0), high) if value == value else 0.0  # NaN: 0 / 0 on an edge without length


@jit
def _inside_sliver(rows: NDArray, j: int, wx: float, wy: float, wz: float) -> tuple[float, float]:
    """Barycentric foot of a point on a thin triangle's plane, clamped to the triangle.

    The base is the longest edge ``U``; the other direction is made orthogonal to it before anything is divided, which
    costs digits in proportion to the thinness and not to its square as the Gram determinant would. Further solves on
    the residual, whose tangential part is small, restore them.
    """
    e1x, e1y, e1z = rows[j, 3], rows[j, 4], rows[j, 5]
    e2x, e2y, e2z = rows[j, 6], rows[j, 7], rows[j, 8]
    third = rows[j, 9] - 2.0 * rows[j, 10] + rows[j, 11]
    base = 0 if rows[j, 9] >= max(rows[j, 11], third) else (1 if rows[j, 11] >= third else 2)
    if base == 0:
        ux, uy, uz, vx, vy, vz = e1x, e1y, e1z, e2x, e2y, e2z
    elif base == 1:
        ux, uy, uz, vx, vy, vz = e2x, e2y, e2z, e1x, e1y, e1z
    else:
        ux, uy, uz, vx, vy, vz = e2x - e1x, e2y - e1y, e2z - e1z, -e1x, -e1y, -e1z
    u2 = ux * ux + uy * uy + uz * uz
    c = 0.0
    hx, hy, hz = vx, vy, vz
    for _ in range(2):
        k = (hx * ux + hy * uy + hz * uz) / u2
        hx, hy, hz, c = hx - k * ux, hy - k * uy, hz - k * uz, c + k
    h2 = hx * hx + hy * hy + hz * hz
    s, t = 0.0, 0.0
    if not h2 > 0.0:
        return s, t
    for _ in range(3):
        rx, ry, rz = wx - s * e1x - t * e2x, wy - s * e1y - t * e2y, wz - s * e1z - t * e2z
        y = (rx * hx + ry * hy + rz * hz) / h2
        x = (rx * ux + ry * uy + rz * uz) / u2 - y * c
        if base == 0:
            s, t = s + x, t + y
        elif base == 1:
            s, t = s + y, t + x
        else:
            s, t = s - x - y, t + x
        s = _clamp(s, 1.0)
        t = _clamp(t, 1.0 - s)
    return s, t


@jit
def _closest_on_sliver(
    rows: NDArray, j: int, wx: float, wy: float, wz: float, d1: float, d2: float
) -> tuple[float, float, float]:
    """The best of the three edges and a refined interior solution: exact where the triangle is a segment or a point."""
    a11, a12, a22 = rows[j, 9], rows[j, 10], rows[j, 11]
    s, t = _clamp(d1 / a11, 1.0), 0.0
    best = _residual2(rows, j, wx, wy, wz, s, t)
    t1 = _clamp(d2 / a22, 1.0)
    d = _residual2(rows, j, wx, wy, wz, 0.0, t1)
    if d < best:
        s, t, best = 0.0, t1, d
    t1 = _clamp((a11 - a12 + d2 - d1) / (a11 - 2.0 * a12 + a22), 1.0)
    d = _residual2(rows, j, wx, wy, wz, 1.0 - t1, t1)
    if d < best:
        s, t, best = 1.0 - t1, t1, d
    s1, t1 = _inside_sliver(rows, j, wx, wy, wz)
    d = _residual2(rows, j, wx, wy, wz, s1, t1)
    if d < best:
        s, t, best = s1, t1, d
    return s, t, best


@jit
def closest_on_triangle(rows: NDArray, j: int, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Barycentric ``(s, t)`` of the point of triangle ``j`` nearest to ``(x, y, z)``, and the squared distance.

    ``s, t >= 0`` and ``s + t <= 1`` hold up to one rounding whatever the triangle's shape, so the distance is always
    that of a point of the triangle: never below the true one. Regions after Ericson, Real-Time Collision Detection
    (2005), 5.1.5.
    """
    wx, wy, wz = x - rows[j, 0], y - rows[j, 1], z - rows[j, 2]
    d1 = rows[j, 3] * wx + rows[j, 4] * wy + rows[j, 5] * wz
    d2 = rows[j, 6] * wx + rows[j, 7] * wy + rows[j, 8] * wz
    a11, a12, a22 = rows[j, 9], rows[j, 10], rows[j, 11]
    if rows[j, 12] == 0.0:
        return _closest_on_sliver(rows, j, wx, wy, wz, d1, d2)
    s, t = 0.0, 0.0
    if d1 > 0.0 or d2 > 0.0:
        area_s = a22 * d1 - a12 * d2
        area_t = a11 * d2 - a12 * d1
        if d1 >= a11 and d2 - a12 <= d1 - a11:
            s = 1.0
        elif area_t <= 0.0 and 0.0 <= d1 <= a11:
            s = d1 / a11
        elif d2 >= a22 and d1 - a12 <= d2 - a22:
            t = 1.0
        elif area_s <= 0.0 and 0.0 <= d2 <= a22:
            t = d2 / a22
        else:
            s, t = area_s * rows[j, 12], area_t * rows[j, 12]
            if s + t > 1.0:
                t = _clamp((a11 - a12 + d2 - d1) / (a11 - 2.0 * a12 + a22), 1.0)
                s = 1.0 - t
            else:
                s = _clamp(s, 1.0)
                t = _clamp(t, 1.0 - s)
    return s, t, _residual2(rows, j, wx, wy, wz, s, t)


@jit
def triangle_distance2(rows: NDArray, j: int, x: float, y: float, z: float) -> float:
    """Squared distance from a point to triangle ``j``, never below the true one but for rounding.

    The foot on the plane where it lies inside, else the nearest of the three edges: all four without a branch, because
    mispredicted branches cost more than the arithmetic they save.
    """
    if rows[j, 12] == 0.0:
        _, _, d = closest_on_triangle(rows, j, x, y, z)
        return d
    wx, wy, wz = x - rows[j, 0], y - rows[j, 1], z - rows[j, 2]
    d1 = rows[j, 3] * wx + rows[j, 4] * wy + rows[j, 5] * wz
    d2 = rows[j, 6] * wx + rows[j, 7] * wy + rows[j, 8] * wz
    a11, a12, a22, inverse = rows[j, 9], rows[j, 10], rows[j, 11], rows[j, 12]
    s, t = (a22 * d1 - a12 * d2) * inverse, (a11 * d2 - a12 * d1) * inverse
    inside = _residual2(rows, j, wx, wy, wz, s, t)
    t1 = min(max(d1 * rows[j, 13], 0.0), 1.0)
    t2 = min(max(d2 * rows[j, 14], 0.0), 1.0)
    t3 = min(max((a11 - a12 + d2 - d1) * rows[j, 15], 0.0), 1.0)
    edge = min(
        _residual2(rows, j, wx, wy, wz, t1, 0.0),
        _residual2(rows, j, wx, wy, wz, 0.0, t2),
        _residual2(rows, j, wx, wy, wz, 1.0 - t3, t3),
    )
    return inside if (s >= 0.0) & (t >= 0.0) & (s + t <= 1.0) else edge


@jit
def corners_distance2(rows: NDArray, j: int, corners: NDArray, i: int, limit: float) -> float:
    """Largest squared distance of the corners ``corners[i]`` (9 values) to triangle ``j``; inf once above ``limit``.

    The distance to a convex set is a convex function, so this bounds the distance of the whole triangle ``i``.
    """
    worst = 0.0
    for k in range(0, 9, 3):
        d = triangle_distance2(rows, j, corners[i, k], corners[i, k + 1], corners[i, k + 2])
        if d > limit:
            return np.inf
        worst = max(worst, d)
    return worst
