"""The triangles of A before any subdivision: in space order, in groups, and the tests that close most of them."""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .bounds import corners_bound
from .bvh import STACK, clear, grow
from .geometry import corners_distance2, triangle_distance2
from .kernel import ROW_OF_FARTHEST, jit, stopped
from .queries import nearest, within

GROUP = 32
RADIX = 1024


@jit
def _spread(v: int) -> int:
    v = (v | (v << 16)) & 0x030000FF
    v = (v | (v << 8)) & 0x0300F00F
    v = (v | (v << 4)) & 0x030C30C3
    return (v | (v << 2)) & 0x09249249


@jit
def morton_order(boxes: NDArray, order: NDArray, stop: NDArray) -> None:
    """Indices of boxes ``(n, 6)`` sorted along a Z-order curve of 30 bits through their centres."""
    n = boxes.shape[0]
    low0, low1, low2 = np.inf, np.inf, np.inf
    high0, high1, high2 = -np.inf, -np.inf, -np.inf
    for i in range(n):
        x, y, z = boxes[i, 0] + boxes[i, 3], boxes[i, 1] + boxes[i, 4], boxes[i, 2] + boxes[i, 5]
        low0, low1, low2 = min(low0, x), min(low1, y), min(low2, z)
        high0, high1, high2 = max(high0, x), max(high1, y), max(high2, z)
    width = max(high0 - low0, high1 - low1, high2 - low2)
    scale = (RADIX - 1) / width if width > 0.0 else 0.0
    keys, order1, keys1 = np.empty(n, np.uint32), np.empty(n, np.int32), np.empty(n, np.uint32)
    for i in range(n):
        if stopped(stop):
            return
        x = int((boxes[i, 0] + boxes[i, 3] - low0) * scale)
        y = int((boxes[i, 1] + boxes[i, 4] - low1) * scale)
        z = int((boxes[i, 2] + boxes[i, 5] - low2) * scale)
        keys1[i] = _spread(x) | (_spread(y) << 1) | (_spread(z) << 2)
        order1[i] = i
    _radix_pass(keys1, order1, keys, order, 0, stop)
    _radix_pass(keys, order, keys1, order1, 10, stop)
    _radix_pass(keys1, order1, keys, order, 20, stop)


@jit
def _radix_pass(
    keys: NDArray, values: NDArray, out_keys: NDArray, out_values: NDArray, shift: int, stop: NDArray
) -> None:
    start = np.zeros(RADIX + 1, np.int64)
    for i in range(keys.shape[0]):
        start[((keys[i] >> shift) & (RADIX - 1)) + 1] += 1
    for b in range(RADIX):
        start[b + 1] += start[b]
    for i in range(keys.shape[0]):
        if stopped(stop):
            return
        b = (keys[i] >> shift) & (RADIX - 1)
        out_keys[start[b]], out_values[start[b]] = keys[i], values[i]
        start[b] += 1


@jit
def group_boxes(boxes: NDArray, order: NDArray, groups: NDArray, first: int, last: int) -> None:
    """Box of each run of ``GROUP`` faces in ``order``, for runs ``first..last``."""
    for g in range(first, last):
        clear(groups, g)
        for j in range(g * GROUP, min((g + 1) * GROUP, order.shape[0])):
            grow(groups, g, boxes, order[j])


@jit
def sample_groups(
    nodes: NDArray, links: NDArray, rows: NDArray, vertices: NDArray, faces: NDArray, order: NDArray,
    groups: NDArray, origin: NDArray, distance: NDArray, row: NDArray, bound: NDArray, first: int, last: int,
    enough: float, stop: NDArray, report: NDArray,
) -> None:  # fmt: skip
    """Distance to B of one vertex of each group, its row, and the bound this gives for the whole group.

    ``groups`` is in the source's frame; ``origin`` is what was subtracted from ``vertices``.
    """
    stack, near = np.empty(STACK, np.int64), np.empty(STACK)
    row_before = -1
    for g in range(first, last):
        if stopped(stop):
            break
        v = faces[order[min(g * GROUP + GROUP // 2, order.shape[0] - 1)], 0]
        x, y, z = vertices[v, 0], vertices[v, 1], vertices[v, 2]
        d = triangle_distance2(rows, row_before, x, y, z) if row_before >= 0 else np.inf
        d, row_before = nearest(nodes, links, rows, x, y, z, d, row_before, enough, stop, stack, near)
        reach2 = 0.0
        for k in range(3):
            c = vertices[v, k]
            reach2 += max(c - (groups[g, k] - origin[k]), (groups[g, 3 + k] - origin[k]) - c) ** 2
        distance[g], row[g] = math.sqrt(d), row_before
        if distance[g] > report[0]:
            report[0], report[1], report[2], report[3] = distance[g], x, y, z
            report[ROW_OF_FARTHEST] = row_before
        bound[g] = distance[g] + math.sqrt(reach2)


@jit
def screen(
    nodes: NDArray, links: NDArray, rows: NDArray, vertices: NDArray, faces: NDArray, order: NDArray,
    selected: NDArray, row: NDArray, first: int, last: int, cut: float,
    out_face: NDArray, out_row: NDArray, start: int, stop: NDArray, report: NDArray,
) -> int:  # fmt: skip
    """Faces of the groups ``selected[first:last]`` that no one triangle of B covers within ``cut``, from ``start`` on.

    The row that covered the last face is tried first: neighbours in Z-order mostly share it.
    """
    stack = np.empty(STACK, np.int64)
    corners = np.empty((1, 9))
    limit, closed2 = cut * cut, 0.0
    out = start
    for s in range(first, last):
        if stopped(stop):
            break
        g = selected[s]
        hint = row[g]
        for t in range(g * GROUP, min((g + 1) * GROUP, order.shape[0])):
            f = order[t]
            for a in range(3):
                for k in range(3):
                    corners[0, 3 * a + k] = vertices[faces[f, a], k]
            d = corners_distance2(rows, hint, corners, 0, limit)
            if d > limit:
                d, found = within(nodes, links, rows, corners, 0, cut, stop, stack)
                if found < 0:
                    out_face[out], out_row[out] = f, hint
                    out += 1
                    continue
                hint = found
            closed2 = max(closed2, d)
    report[4] = math.sqrt(closed2)
    return out


@jit
def list_vertices(
    faces: NDArray, face: NDArray, hint: NDArray, vertex_row: NDArray, out_vertex: NDArray, out_row: NDArray
) -> int:
    """Vertices of ``face`` without a known row, each once, with the row to start from; marks them in ``vertex_row``."""
    out = 0
    for i in range(face.shape[0]):
        for a in range(3):
            v = faces[face[i], a]
            if vertex_row[v] == -1:
                vertex_row[v] = -2
                out_vertex[out], out_row[out] = v, hint[i]
                out += 1
    return out


@jit
def query_vertices(
    nodes: NDArray, links: NDArray, rows: NDArray, vertices: NDArray, vertex: NDArray, hint: NDArray,
    vertex_distance: NDArray, vertex_row: NDArray, first: int, last: int, enough: float, stop: NDArray,
    report: NDArray,
) -> None:  # fmt: skip
    """Distance to B and nearest row of ``vertex[first:last]``; ``report`` receives the farthest."""
    stack, near = np.empty(STACK, np.int64), np.empty(STACK)
    for i in range(first, last):
        if stopped(stop):
            break
        v = vertex[i]
        x, y, z = vertices[v, 0], vertices[v, 1], vertices[v, 2]
        d = triangle_distance2(rows, hint[i], x, y, z)
        d, k = nearest(nodes, links, rows, x, y, z, d, hint[i], enough, stop, stack, near)
        vertex_distance[v], vertex_row[v] = math.sqrt(d), k
        if vertex_distance[v] > report[0]:
            report[0], report[1], report[2], report[3] = vertex_distance[v], x, y, z
            report[ROW_OF_FARTHEST] = k


@jit
def classify(
    rows: NDArray, vertices: NDArray, faces: NDArray, face: NDArray,
    vertex_distance: NDArray, vertex_row: NDArray, first: int, last: int,
    out_corners: NDArray, out_distance: NDArray, out_row: NDArray, out_bound: NDArray, out_depth: NDArray, start: int,
    cut: float, report: NDArray,
) -> int:  # fmt: skip
    """Bound ``face[first:last]`` from their vertices' distances; those above ``cut`` go out from ``start`` on."""
    out = start
    for i in range(first, last):
        for a in range(3):
            v = faces[face[i], a]
            out_distance[out, a], out_row[out, a] = vertex_distance[v], vertex_row[v]
            for k in range(3):
                out_corners[out, 3 * a + k] = vertices[v, k]
        u = corners_bound(rows, out_corners, out_distance, out_row, out, np.inf, cut)
        if u <= cut:
            report[4] = max(report[4], u)
        else:
            out_bound[out], out_depth[out] = u, 0
            out += 1
    return out
