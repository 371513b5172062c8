"""A lower bound on the distance from a point to a mesh that holds whatever the shape of the triangles."""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .bvh import FIRST, LAST, STACK
from .geometry import box_distance2
from .kernel import jit, stopped

TINY = 1e-200  # squared length below which a direction could have lost digits to underflow


@jit
def _support(w: NDArray, x: float, y: float, z: float) -> float:
    """Distance from the origin to the plane with normal ``(x, y, z)`` behind which all three points ``w`` lie."""
    norm2 = x * x + y * y + z * z
    if norm2 < TINY:
        return 0.0
    a = w[0, 0] * x + w[0, 1] * y + w[0, 2] * z
    b = w[1, 0] * x + w[1, 1] * y + w[1, 2] * z
    c = w[2, 0] * x + w[2, 1] * y + w[2, 2] * z
    return max(min(a, b, c), -max(a, b, c)) / math.sqrt(norm2)


@jit
def _across(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, length2: float
) -> tuple[float, float, float]:
    """The part of a vector orthogonal to ``d``; the second pass removes what rounding left of the first."""
    for _ in range(2):
        t = (x * dx + y * dy + z * dz) / length2
        x, y, z = x - t * dx, y - t * dy, z - t * dz
    return x, y, z


@jit
def triangle_distance_below(w: NDArray) -> float:
    """Lower bound on the distance from the origin to the triangle with corners ``w (3, 3)``.

    Every plane between the origin and the corners gives one, however inexact its normal. The best is the distance
    itself: normal to the face, to an edge (through the origin's foot on it) or along a corner, whichever is nearest.
    """
    ux, uy, uz = w[1, 0] - w[0, 0], w[1, 1] - w[0, 1], w[1, 2] - w[0, 2]
    vx, vy, vz = w[2, 0] - w[0, 0], w[2, 1] - w[0, 1], w[2, 2] - w[0, 2]
    nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    best = _support(w, nx, ny, nz)
    for a in range(3):
        b = (a + 1) % 3
        x, y, z = w[a, 0], w[a, 1], w[a, 2]
        best = max(best, _support(w, x, y, z))
        dx, dy, dz = w[b, 0] - x, w[b, 1] - y, w[b, 2] - z
        length2 = dx * dx + dy * dy + dz * dz
        if length2 > TINY:
            x, y, z = _across(x, y, z, dx, dy, dz, length2)
            best = max(best, _support(w, x, y, z))
            # on a thin face the computed normal leans along the edges: upright on the longest, it serves
            x, y, z = _across(nx, ny, nz, dx, dy, dz, length2)
            best = max(best, _support(w, x, y, z))
    return best


@jit
def certified_distance(
    nodes: NDArray, links: NDArray, face: NDArray, vertices: NDArray, faces: NDArray, x: float, y: float, z: float,
    stop: NDArray,
) -> float:  # fmt: skip
    """Lower bound on the distance from a point to the mesh, equal to it but for rounding; 0 when it was stopped."""
    stack, near = np.empty(STACK, np.int64), np.empty(STACK)
    w = np.empty((3, 3))
    best, node, top = np.inf, 0, 0
    while True:
        last = links[node, LAST]
        if last >= 0:
            for j in range(links[node, FIRST], last):
                for a in range(3):
                    v = faces[face[j], a]
                    w[a, 0], w[a, 1], w[a, 2] = vertices[v, 0] - x, vertices[v, 1] - y, vertices[v, 2] - z
                best = min(best, triangle_distance_below(w))
        else:
            child = links[node, FIRST]
            other = child + 1
            d = box_distance2(nodes, child, x, y, z)
            e = box_distance2(nodes, other, x, y, z)
            if e < d:
                child, other, d, e = other, child, e, d
            if d < best * best:
                if e < best * best:
                    stack[top], near[top] = other, e
                    top += 1
                node = child
                continue
        while top > 0 and near[top - 1] >= best * best:
            top -= 1
        if top == 0:
            return best
        if stopped(stop):
            return 0.0
        top -= 1
        node = stack[top]
