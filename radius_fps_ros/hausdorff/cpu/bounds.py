"""Upper bounds on the distance of a whole triangle of A to B, cheapest first.

``corners (n, 9)``, ``distance (n, 3)`` and ``row (n, 3)`` hold, for each triangle, its corners, their distances to B
and the rows of B that attain them. Every bound holds for degenerate triangles.
"""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .geometry import corners_distance2, triangle_distance2
from .kernel import jit
from .queries import within

NEXT = (1, 2, 0)


@jit
def edge_vector(corners: NDArray, i: int, a: int, b: int) -> tuple[float, float, float]:
    """From corner ``a`` to corner ``b`` (0, 1 or 2) of triangle ``i``."""
    a, b = 3 * a, 3 * b
    return corners[i, b] - corners[i, a], corners[i, b + 1] - corners[i, a + 1], corners[i, b + 2] - corners[i, a + 2]


@jit
def covering_bound(corners: NDArray, distance: NDArray, i: int) -> float:
    """From the corner distances alone: the distance to a set changes no faster than the point moves.

    The smaller of ``min_i (d_i + longest edge at i)`` and ``max_i d_i + r``, where discs of radius ``r`` about the
    corners cover the triangle: its circumradius when it is acute, else half the longest edge
    (Sacht and Jacobson, 2024, u1 and u2).
    """
    ax, ay, az = edge_vector(corners, i, 1, 2)
    bx, by, bz = edge_vector(corners, i, 2, 0)
    cx, cy, cz = edge_vector(corners, i, 0, 1)
    a, b, c = ax * ax + ay * ay + az * az, bx * bx + by * by + bz * bz, cx * cx + cy * cy + cz * cz
    d0, d1, d2 = distance[i, 0], distance[i, 1], distance[i, 2]
    u1 = min(d0 + math.sqrt(max(b, c)), d1 + math.sqrt(max(a, c)), d2 + math.sqrt(max(a, b)))
    # p, q: squares of the two edges at the largest angle; its cosine is at most 1/2, so nothing cancels below
    if a >= b and a >= c:
        longest, p, q, dot = a, b, c, -(bx * cx + by * cy + bz * cz)
    elif b >= c:
        longest, p, q, dot = b, a, c, -(ax * cx + ay * cy + az * cz)
    else:
        longest, p, q, dot = c, a, b, -(ax * bx + ay * by + az * bz)
    radius2 = 0.25 * longest
    if dot > 0.0:
        radius2 *= min(p * q / (p * q - dot * dot), 4.0 / 3.0)
    return min(u1, max(d0, d1, d2) + math.sqrt(radius2))


@jit
def split_bound(rows: NDArray, corners: NDArray, distance: NDArray, row: NDArray, i: int, limit: float) -> float:
    """Cut the triangle between its corners' nearest triangles of B and bound each piece by its own (squared, or inf).

    Cut points lie on the edges whose ends have different nearest triangles, where the two distances meet if they
    were linear, and in the middle when all three differ. Any cut is valid: a piece lies in the hull of its corners,
    on which the distance to one convex triangle is largest at a corner. The cuts play the role of the bisector
    planes of Kang et al. (2018) without needing them exact.
    """
    f = np.empty((3, 3))  # f[a, b]: distance of corner b to the triangle nearest to corner a
    for a in range(3):
        for b in range(3):
            if row[i, a] == row[i, b]:
                f[a, b] = distance[i, b]
            else:
                d = triangle_distance2(rows, row[i, a], corners[i, 3 * b], corners[i, 3 * b + 1], corners[i, 3 * b + 2])
                f[a, b] = math.sqrt(d)
    worst = max(distance[i, 0], distance[i, 1], distance[i, 2]) ** 2
    different = 0
    for a in range(3):
        b = NEXT[a]
        if row[i, a] == row[i, b]:
            continue
        different += 1
        ga, gb = f[b, a] - f[a, a], f[a, b] - f[b, b]
        t = min(max(ga / (ga + gb), 0.0), 1.0) if ga + gb > 0.0 else 0.5
        dx, dy, dz = edge_vector(corners, i, a, b)
        x, y, z = corners[i, 3 * a] + t * dx, corners[i, 3 * a + 1] + t * dy, corners[i, 3 * a + 2] + t * dz
        worst = max(worst, triangle_distance2(rows, row[i, a], x, y, z), triangle_distance2(rows, row[i, b], x, y, z))
        if worst > limit:
            return np.inf
    if different == 3:
        # barycentric weights at which the three distances meet if they were linear
        p0, p1, p2 = f[0, 0] - f[1, 0], f[0, 1] - f[1, 1], f[0, 2] - f[1, 2]
        q0, q1, q2 = f[0, 0] - f[2, 0], f[0, 1] - f[2, 1], f[0, 2] - f[2, 2]
        w0, w1, w2 = p1 * q2 - p2 * q1, p2 * q0 - p0 * q2, p0 * q1 - p1 * q0
        total = w0 + w1 + w2
        w0, w1 = w0 / total, w1 / total
        if not (w0 >= 0.0 and w1 >= 0.0 and w0 + w1 <= 1.0):  # outside, or 0 / 0
            w0, w1 = 1.0 / 3.0, 1.0 / 3.0
        bx, by, bz = edge_vector(corners, i, 2, 0)
        cx, cy, cz = edge_vector(corners, i, 2, 1)
        x = corners[i, 6] + w0 * bx + w1 * cx
        y = corners[i, 7] + w0 * by + w1 * cy
        z = corners[i, 8] + w0 * bz + w1 * cz
        for a in range(3):
            worst = max(worst, triangle_distance2(rows, row[i, a], x, y, z))
    return worst


@jit
def single_bound(
    nodes: NDArray, links: NDArray, rows: NDArray, corners: NDArray, i: int, tried: NDArray, t: int,
    cut: float, stop: NDArray, stack: NDArray,
) -> float:  # fmt: skip
    """Bound from one triangle of B near all three corners, if one lies within ``cut``; else inf.

    The rows ``tried[t]`` are looked at first, then the whole hierarchy.
    """
    limit = cut * cut
    for a in range(3):
        if (a == 0 or tried[t, a] != tried[t, 0]) and (a < 2 or tried[t, 2] != tried[t, 1]):
            best = corners_distance2(rows, tried[t, a], corners, i, limit)
            if best <= limit:
                return math.sqrt(best)
    best, _ = within(nodes, links, rows, corners, i, cut, stop, stack)
    return math.sqrt(best)


@jit
def corners_bound(
    rows: NDArray, corners: NDArray, distance: NDArray, row: NDArray, i: int, known: float, cut: float
) -> float:
    """The first bound from the corners' distances that is not above ``cut``, else the least; ``known`` is another."""
    bound = min(known, covering_bound(corners, distance, i))
    if bound > cut and (row[i, 0] != row[i, 1] or row[i, 0] != row[i, 2]):
        bound = min(bound, math.sqrt(split_bound(rows, corners, distance, row, i, cut * cut)))
    return bound
