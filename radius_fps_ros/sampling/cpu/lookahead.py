"""Farthest point sampling with exact look-ahead: samples are committed before the cloud has seen their predecessors.

Keys only fall, so a key computed some samples ago is an upper bound of today's. The cloud is cut into voxels of 64
points along a space-filling curve, and 16 voxels in a row make a group. Each group remembers the largest (key, row) it
had and how many samples it has seen. The group on top is brought up to date: the batch of samples it has not seen runs
through its boxes and the voxels that it reaches. Once the group on top has seen all samples, its point beats every
other group's upper bound and is the next sample, whatever the other groups have still to see.

That is the candidate test of batched look-ahead sampling, threshold = the largest bound of a stale group, with batches
formed by each group for itself; the pruning is that of QuickFPS (Han et al. 2023) and RadiusFPS (Yu et al. 2026).
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from ..engine import RawSample
from .arithmetic import INFINITE, as_bits, as_float, bound_bits, update_run
from .order import ROW_MASK, CartesianGrid, sort_by_cell
from .parallel import run_chunks, split, worthwhile_threads
from .workspace import Workspace

VOXEL = 64  # points: measured against 16 and 32, which cost more in bounds than they save in distances
GROUP = 16  # voxels: their bounds are one vector operation on 16 lanes
VOXEL_STRIDE = 4 * VOXEL  # in `blocks`: 64 x, 64 y, 64 z, 64 keys
GROUP_STRIDE = 7 * GROUP  # in `boxes`: 16 low x, 16 high x, low y, high y, low z, high z, keys
NO_ROW = 0x7FFFFFFF
LANES = 16


def sample_lookahead(points: np.ndarray, n_samples: int, start: int, workspace: Workspace, threads: int) -> RawSample:
    """Sample ``points`` (N, 3) float32; the preparation runs on ``threads`` threads. See `Engine.run`."""
    threads = worthwhile_threads(len(points), threads)
    keyed, n = sort_by_cell(points, CartesianGrid.of(points), workspace, threads)
    voxels = -(-n // VOXEL)
    groups = -(-voxels // GROUP)
    blocks = workspace.array("blocks", groups * GROUP * VOXEL_STRIDE, np.int32)
    rows = workspace.array("rows", groups * GROUP * VOXEL, np.int32)
    boxes = workspace.array("boxes", groups * GROUP_STRIDE, np.int32)
    group_boxes = workspace.array("group boxes", groups * 6, np.float32)
    run_chunks(_gather, split(groups, threads), points.reshape(-1), keyed, n, blocks, rows, boxes, group_boxes)
    indices = np.empty(n_samples, np.int64)
    count, coverage, rounds, updates = _sample(
        *points[start],
        start,
        blocks,
        rows,
        boxes,
        group_boxes,
        workspace.array("group tops", groups, np.int64),
        workspace.array("group places", groups, np.int64),
        workspace.array("group seen", groups, np.int64),
        workspace.array("samples", 3 * (n_samples + LANES), np.float32).reshape(3, -1),
        workspace.array("pending", n_samples, np.int64),
        indices,
    )
    skip_rate = max(0.0, 1.0 - updates * VOXEL / (n * count))
    return RawSample(indices[:count], coverage, "lookahead", rounds, voxels, skip_rate, threads)


@njit
def _ordered(bits: int) -> int:
    """Bits of any float as integers of the same order; its own inverse."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def _gather(xyz, keyed, n, blocks, rows, boxes, group_boxes, k, begin, end):
    """Lay out groups ``begin`` to ``end``. Places past the last point get its coordinates and a key of 0."""
    for group in range(begin, end):
        for axis in range(6):
            group_boxes[6 * group + axis] = np.float32(np.inf if axis % 2 == 0 else -np.inf)
        for v in range(GROUP):
            voxel = group * GROUP + v
            first = np.uintp(voxel * VOXEL)
            base = first * np.uintp(4)
            for lane in range(VOXEL):
                place = first + np.uintp(lane)
                real = place < np.uintp(n)
                row = np.uintp(keyed[place if real else np.uintp(n - 1)] & np.uint64(ROW_MASK))
                i = base + np.uintp(lane)
                blocks[i] = as_bits(xyz[np.uintp(3) * row])
                blocks[i + np.uintp(VOXEL)] = as_bits(xyz[np.uintp(3) * row + np.uintp(1)])
                blocks[i + np.uintp(2 * VOXEL)] = as_bits(xyz[np.uintp(3) * row + np.uintp(2)])
                blocks[i + np.uintp(3 * VOXEL)] = INFINITE if real else 0
                rows[place] = np.int32(row) if real else NO_ROW
            box = np.uintp(group * GROUP_STRIDE + v)
            for axis in range(3):
                low = np.int32(0x7FFFFFFF)
                high = np.int32(-0x80000000)
                for lane in range(VOXEL):
                    c = _ordered(blocks[base + np.uintp(axis * VOXEL) + np.uintp(lane)])
                    low = min(low, c)
                    high = max(high, c)
                boxes[box + np.uintp(2 * axis * GROUP)] = _ordered(low)
                boxes[box + np.uintp((2 * axis + 1) * GROUP)] = _ordered(high)
                j = 6 * group + 2 * axis
                group_boxes[j] = min(group_boxes[j], as_float(_ordered(low)))
                group_boxes[j + 1] = max(group_boxes[j + 1], as_float(_ordered(high)))
            boxes[box + np.uintp(6 * GROUP)] = INFINITE if first < np.uintp(n) else 0


@njit(cache=True, nogil=True)
def _sample(x, y, z, start, blocks, rows, boxes, group_boxes, tops, places, seen, samples, pending, indices):
    bounds = np.empty(LANES, np.int32)
    tops[:] = (np.int64(INFINITE) << 32) | ROW_MASK
    seen[:] = 0
    indices[0] = start
    samples[0, 0], samples[1, 0], samples[2, 0] = x, y, z
    count = 1
    rounds = 0
    updates = 0
    while True:
        group = _group_on_top(tops)
        key = np.int32(tops[group] >> 32)
        if seen[group] == count:
            if count == indices.shape[0] or key == 0:
                return count, as_float(key), rounds, updates
            indices[count] = ROW_MASK - (tops[group] & ROW_MASK)
            place = np.uintp(places[group])
            for axis in range(3):
                samples[axis, count] = as_float(blocks[place + np.uintp(axis * VOXEL)])
            count += 1
        rounds += 1
        reaching = _pending_samples(group_boxes, group, key, samples, seen[group], count, bounds, pending)
        for p in range(reaching):
            s = np.uintp(pending[np.uintp(p)])
            updates += _apply(
                blocks, boxes, group, samples[np.uintp(0), s], samples[np.uintp(1), s], samples[np.uintp(2), s], bounds
            )
        seen[group] = count
        tops[group], places[group] = _top_of_group(blocks, rows, boxes, group)


@njit
def _group_on_top(tops: np.ndarray) -> int:
    top = tops[0]
    for g in range(tops.shape[0]):
        top = max(top, tops[g])
    group = tops.shape[0]
    for g in range(tops.shape[0]):  # no early exit: as a minimum it vectorises
        group = min(group, g if tops[g] == top else tops.shape[0])
    return np.uintp(group)


@njit
def _pending_samples(group_boxes, group, key, samples, begin, end, bounds, pending):
    """List the samples ``begin`` to ``end`` whose bound to the group's box lies below its largest key."""
    b = np.uintp(6) * group
    low_x, high_x = group_boxes[b], group_boxes[b + np.uintp(1)]
    low_y, high_y = group_boxes[b + np.uintp(2)], group_boxes[b + np.uintp(3)]
    low_z, high_z = group_boxes[b + np.uintp(4)], group_boxes[b + np.uintp(5)]
    n = 0
    for first in range(begin, end, LANES):
        nearest = np.int32(INFINITE)
        for lane in range(LANES):  # past `end` lie old samples: a false alarm at worst
            s = np.uintp(first) + np.uintp(lane)
            bound = bound_bits(
                low_x, high_x, low_y, high_y, low_z, high_z,
                samples[np.uintp(0), s], samples[np.uintp(1), s], samples[np.uintp(2), s],
            )  # fmt: skip
            bounds[np.uintp(lane)] = bound
            nearest = min(nearest, bound)
        if nearest < key:
            for lane in range(min(LANES, end - first)):
                pending[np.uintp(n)] = first + lane
                n += 1 if bounds[np.uintp(lane)] < key else 0
    return n


@njit
def _apply(blocks, boxes, group, x, y, z, bounds):
    """Update the voxels of a group that a sample reaches; returns how many."""
    w = np.uintp(GROUP)
    for v in range(GROUP):
        b = group * np.uintp(GROUP_STRIDE) + np.uintp(v)
        bounds[np.uintp(v)] = bound_bits(
            as_float(boxes[b]), as_float(boxes[b + w]),
            as_float(boxes[b + w + w]), as_float(boxes[b + np.uintp(3) * w]),
            as_float(boxes[b + np.uintp(4) * w]), as_float(boxes[b + np.uintp(5) * w]),
            x, y, z,
        ) - boxes[b + np.uintp(6) * w]  # fmt: skip
    updates = 0
    for v in range(GROUP):
        if bounds[np.uintp(v)] < 0:
            voxel = group * w + np.uintp(v)
            boxes[group * np.uintp(GROUP_STRIDE) + np.uintp(6 * GROUP + v)] = update_run(
                blocks, voxel * np.uintp(VOXEL_STRIDE), VOXEL, x, y, z
            )
            updates += 1
    return updates


@njit
def _top_of_group(blocks, rows, boxes, group):
    """The largest (key, row) of a group, smaller rows first, as one integer, and the point's place in ``blocks``."""
    keys = group * np.uintp(GROUP_STRIDE) + np.uintp(6 * GROUP)
    key = np.int32(0)
    for v in range(GROUP):
        key = max(key, boxes[keys + np.uintp(v)])
    row = np.int32(NO_ROW)
    place = np.uintp(0)
    for v in range(GROUP):
        if boxes[keys + np.uintp(v)] == key:
            voxel = group * np.uintp(GROUP) + np.uintp(v)
            lane = _lane_with(blocks, rows, voxel, key)
            if rows[voxel * np.uintp(VOXEL) + lane] < row:
                row = rows[voxel * np.uintp(VOXEL) + lane]
                place = voxel * np.uintp(VOXEL_STRIDE) + lane
    return (np.int64(key) << 32) | (np.int64(ROW_MASK) - np.int64(row)), place


@njit
def _lane_with(blocks, rows, voxel, key):
    """The lane of a voxel whose key is ``key``; of several the one with the smallest row."""
    keys = voxel * np.uintp(VOXEL_STRIDE) + np.uintp(3 * VOXEL)
    first = np.int32(VOXEL)
    last = np.int32(-1)
    for lane in range(VOXEL):
        here = blocks[keys + np.uintp(lane)] == key
        first = min(first, np.int32(lane) if here else np.int32(VOXEL))
        last = max(last, np.int32(lane) if here else np.int32(-1))
    best = np.uintp(first)
    if first != last:
        for lane in range(first + 1, last + 1):
            at = np.uintp(lane)
            if blocks[keys + at] == key and rows[voxel * np.uintp(VOXEL) + at] < rows[voxel * np.uintp(VOXEL) + best]:
                best = at
    return best
