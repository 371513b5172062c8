"""Bounding volume hierarchy over the triangles of the target mesh: binned SAH, flat arrays, siblings side by side."""

# Numba's decorator hides what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .geometry import ROW, fill_row
from .kernel import jit, stopped
from .workers import Workers

BINS = 16
LEAF = 4
STACK = 192  # traversal stack: SPLIT_BY_COUNT keeps the depth below it, in subtrees that threads build too
SPLIT_BY_COUNT = 64  # deeper than this, halve by count: clustered input must not make a list of the tree
SERIAL = 8192  # smaller meshes are built by one thread
SERIAL_DEPTH = 32  # depth assumed for the subtrees that threads build: halving by count starts 32 levels below

# Columns of a node, one cache line each: the box, then either (first child, -1) or the leaf's range of rows.
FIRST, LAST = 6, 7


@dataclass(frozen=True)
class Bvh:
    """Nodes ``(n, 8)`` float64 and the same memory as int64 (columns FIRST, LAST), triangle rows in leaf order.

    ``face`` gives the original face of each row; ``vertices`` (V, 3) are what the faces' indices refer to.
    """

    nodes: NDArray[np.float64]
    links: NDArray[np.int64]
    rows: NDArray[np.float64]
    face: NDArray[np.int32]
    vertices: NDArray[np.float64]


@jit
def _fill_boxes(vertices: NDArray, faces: NDArray, boxes: NDArray, first: int, last: int) -> None:
    for f in range(first, last):
        for i in range(3):
            a, b, c = vertices[faces[f, 0], i], vertices[faces[f, 1], i], vertices[faces[f, 2], i]
            boxes[f, i] = min(a, b, c)
            boxes[f, 3 + i] = max(a, b, c)


def face_boxes(vertices: NDArray[np.float64], faces: NDArray[np.int32], workers: Workers) -> NDArray[np.float64]:
    """Bounding box of each face, ``(F, 6)``."""
    boxes = np.empty((len(faces), 6))
    workers.over(len(faces), lambda first, last: _fill_boxes(vertices, faces, boxes, first, last))
    return boxes


@jit
def _fill_rows(
    vertices: NDArray, faces: NDArray, face: NDArray, rows: NDArray, first: int, last: int, stop: NDArray
) -> None:
    for j in range(first, last):
        if stopped(stop):
            break
        f = face[j]
        fill_row(rows, j, vertices, faces[f, 0], faces[f, 1], faces[f, 2])


@jit
def clear(boxes: NDArray, k: int) -> None:
    """Make box ``k`` empty."""
    for i in range(3):
        boxes[k, i] = np.inf
        boxes[k, 3 + i] = -np.inf


@jit
def grow(boxes: NDArray, k: int, others: NDArray, j: int) -> None:
    """Extend box ``k`` by ``others[j]``."""
    for i in range(3):
        boxes[k, i] = min(boxes[k, i], others[j, i])
        boxes[k, 3 + i] = max(boxes[k, 3 + i], others[j, 3 + i])


@jit
def grow_range(boxes: NDArray, k: int, others: NDArray, first: int, last: int) -> None:
    """Extend box ``k`` by ``others[first:last]``."""
    for j in range(first, last):
        grow(boxes, k, others, j)


@jit
def _copy(boxes: NDArray, k: int, others: NDArray, j: int) -> None:
    for i in range(6):
        boxes[k, i] = others[j, i]


@jit
def _half_area(boxes: NDArray, k: int) -> float:
    x, y, z = boxes[k, 3] - boxes[k, 0], boxes[k, 4] - boxes[k, 1], boxes[k, 5] - boxes[k, 2]
    return x * y + y * z + z * x


@jit
def _swap(boxes: NDArray, face: NDArray, i: int, j: int) -> None:
    for c in range(6):
        boxes[i, c], boxes[j, c] = boxes[j, c], boxes[i, c]
    face[i], face[j] = face[j], face[i]


@jit
def _widest_axis(boxes: NDArray, first: int, last: int) -> tuple[int, float, float]:
    """Axis along which the (doubled) box centres spread most, their lowest value there and the width."""
    x0, y0, z0 = np.inf, np.inf, np.inf
    x1, y1, z1 = -np.inf, -np.inf, -np.inf
    for j in range(first, last):
        x, y, z = boxes[j, 0] + boxes[j, 3], boxes[j, 1] + boxes[j, 4], boxes[j, 2] + boxes[j, 5]
        x0, y0, z0 = min(x0, x), min(y0, y), min(z0, z)
        x1, y1, z1 = max(x1, x), max(y1, y), max(z1, z)
    width = max(x1 - x0, y1 - y0, z1 - z0)
    if width == x1 - x0:
        return 0, x0, width
    return (1, y0, width) if width == y1 - y0 else (2, z0, width)


@jit
def _halve(boxes: NDArray, first: int, last: int, nodes: NDArray, left: int) -> int:
    middle = (first + last) // 2
    clear(nodes, left)
    clear(nodes, left + 1)
    grow_range(nodes, left, boxes, first, middle)
    grow_range(nodes, left + 1, boxes, middle, last)
    return middle


@jit
def _split(
    boxes: NDArray, face: NDArray, first: int, last: int, halve: bool, scratch: NDArray, nodes: NDArray, left: int,
    stop: NDArray,
) -> int:  # fmt: skip
    """Partition rows ``first..last`` at the cheapest of the binned planes; returns the first row of the right half.

    Nodes ``left`` and ``left + 1`` receive the halves' boxes. No half is a single row, so that ``n`` rows make at
    most ``n`` nodes. Wald, On fast construction of SAH-based BVHs (2007).
    """
    right = left + 1
    axis, low, width = _widest_axis(boxes, first, last)
    if halve or not width > 0.0:
        return _halve(boxes, first, last, nodes, left)
    n = last - first
    bins = min(BINS, 4 + n // 4)
    scale = bins * (1.0 - 1e-9) / width
    # scratch: row b is bin b, row BINS + b the union of the bins from b on; columns 6 and 7 are the count and the cost
    for b in range(bins):
        clear(scratch, b)
        scratch[b, 6] = 0.0
    for j in range(first, last):
        if stopped(stop):
            return first
        b = int((boxes[j, axis] + boxes[j, 3 + axis] - low) * scale)
        scratch[b, 6] += 1.0
        grow(scratch, b, boxes, j)
    total = 0.0
    clear(nodes, right)
    for b in range(bins - 1, 0, -1):
        total += scratch[b, 6]
        grow(nodes, right, scratch, b)
        _copy(scratch, BINS + b, nodes, right)
        scratch[b, 7] = total * _half_area(nodes, right) if total > 0.0 else 0.0
    total, best, cut = 0.0, np.inf, -1
    clear(scratch, BINS)
    for b in range(bins - 1):
        if scratch[b, 6] > 0.0:
            total += scratch[b, 6]
            grow(scratch, BINS, scratch, b)
            cost = total * _half_area(scratch, BINS) + scratch[b + 1, 7]
            if cost < best and 2.0 <= total <= n - 2.0:
                best, cut = cost, b
                _copy(nodes, left, scratch, BINS)
    if cut < 0:
        return _halve(boxes, first, last, nodes, left)
    _copy(nodes, right, scratch, BINS + cut + 1)
    i, j = first, last - 1
    while True:
        while i <= j and int((boxes[i, axis] + boxes[i, 3 + axis] - low) * scale) <= cut:
            i += 1
        while i <= j and int((boxes[j, axis] + boxes[j, 3 + axis] - low) * scale) > cut:
            j -= 1
        if i >= j or stopped(stop):
            return i
        _swap(boxes, face, i, j)
        i, j = i + 1, j - 1


@jit
def _build(
    boxes: NDArray, face: NDArray, nodes: NDArray, links: NDArray, root: int, depth: int, free: int, grain: int,
    stop: NDArray,
) -> int:  # fmt: skip
    """Split node ``root`` down to leaves of at most ``grain`` rows, new nodes from ``free`` on; returns the next free.

    A node to split carries its range of rows in FIRST, LAST already.
    """
    scratch = np.empty((2 * BINS, 8))
    stack = np.empty((STACK, 2), np.int64)
    stack[0, 0], stack[0, 1] = root, depth
    top = 1
    while top > 0 and not stopped(stop):
        top -= 1
        node, depth = stack[top, 0], stack[top, 1]
        first, last = links[node, FIRST], links[node, LAST]
        if last - first <= grain:
            continue
        middle = _split(boxes, face, first, last, depth > SPLIT_BY_COUNT, scratch, nodes, free, stop)
        links[node, FIRST], links[node, LAST] = free, -1
        links[free, FIRST], links[free, LAST] = first, middle
        links[free + 1, FIRST], links[free + 1, LAST] = middle, last
        for child in range(2):
            stack[top, 0], stack[top, 1] = free + child, depth + 1
            top += 1
        free += 2
    return free


def build_bvh(vertices: NDArray[np.float64], faces: NDArray[np.int32], workers: Workers) -> Bvh:
    """Build the hierarchy over ``faces`` (F, 3) of ``vertices`` (V, 3), the lower levels on all threads.

    Raises:
        Interrupted: the workers were stopped.
    """
    n, stop = len(faces), workers.stop
    boxes = face_boxes(vertices, faces, workers)
    face = np.arange(n, dtype=np.int32)
    nodes = np.empty((n + 1, 8))
    links = nodes.view(np.int64)
    rows = np.empty((n, ROW))
    clear(nodes, 0)
    grow_range(nodes, 0, boxes, 0, n)
    links[0, FIRST:] = 0, n
    grain = n if n <= SERIAL or workers.threads == 1 else max(n // (4 * workers.threads), LEAF)
    free = _build(boxes, face, nodes, links, 0, 0, 1, grain, stop)
    workers.check()
    jobs = []
    for root in range(free):
        first, last = (int(x) for x in links[root, FIRST:])
        if last >= 0:
            jobs.append((root, free, first, last))
            free += last - first - 2  # the most nodes below a root of so many rows

    def finish(root: int, start: int, first: int, last: int) -> None:
        _build(boxes, face, nodes, links, root, SERIAL_DEPTH, start, LEAF, stop)
        _fill_rows(vertices, faces, face, rows, first, last, stop)

    workers.map(finish, jobs)
    return Bvh(nodes, links, rows, face, vertices)
