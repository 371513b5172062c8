"""The layout that look-ahead sampling works on: voxels of 64 points along a space-filling curve, in groups of 16."""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from .arithmetic import INFINITE, as_bits, as_float, bound_bits, update_run
from .order import ROW_MASK

VOXEL = 64  # points: measured against 16 and 32, which cost more in bounds than they save in distances
GROUP = 16  # voxels: their bounds are one vector operation on 16 lanes
VOXEL_STRIDE = 4 * VOXEL  # in `blocks`: 64 x, 64 y, 64 z, 64 keys
GROUP_STRIDE = 7 * GROUP  # in `boxes`: 16 low x, 16 high x, low y, high y, low z, high z, keys
NO_ROW = 0x7FFFFFFF
LANES = 16

HEADER = 16  # int32 a group, one cache line: low x, high x, low y, high y, low z, high z as bits, then
TOP = 6  # the largest key when the group was last brought up to date,
SEEN = 7  # how many samples it had seen then,
FOUND = 8  # and how many of its points are listed in `found`


@njit
def _ordered(bits: int) -> int:
    """Bits of any float as integers of the same order; its own inverse."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit
def gather_voxels(xyz, keyed, n, blocks, rows, boxes, headers, begin, end):
    """Lay out groups ``begin`` to ``end``. Places past the last point get its coordinates and a key of 0.

    A point that equals the one before it in its voxel gets a key of 0 too: the order of cells is stable, so the other
    has the smaller row and is sampled first, this one never. One sample would spend thousands of such candidates.
    """
    for group in range(begin, end):
        header = np.uintp(group * HEADER)
        for axis in range(3):
            headers[header + np.uintp(2 * axis)] = np.int32(0x7FFFFFFF)
            headers[header + np.uintp(2 * axis + 1)] = np.int32(-0x80000000)
        headers[header + np.uintp(TOP)] = INFINITE
        headers[header + np.uintp(SEEN)] = 0
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
            for lane in range(1, VOXEL):
                i = base + np.uintp(lane)
                new = np.int32(0)
                for axis in range(3):
                    j = i + np.uintp(axis * VOXEL)
                    new |= blocks[j] ^ blocks[j - np.uintp(1)]
                blocks[i + np.uintp(3 * VOXEL)] = blocks[i + np.uintp(3 * VOXEL)] if new != 0 else 0
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
                j = header + np.uintp(2 * axis)
                headers[j] = min(headers[j], low)
                headers[j + np.uintp(1)] = max(headers[j + np.uintp(1)], high)
            boxes[box + np.uintp(6 * GROUP)] = INFINITE if first < np.uintp(n) else 0
        for j in range(6):
            headers[header + np.uintp(j)] = _ordered(headers[header + np.uintp(j)])


@njit
def block_of(place):
    """Where in ``blocks`` the x of a place lies; y, z and key follow at distances of `VOXEL`."""
    return place // np.uintp(VOXEL) * np.uintp(VOXEL_STRIDE) + place % np.uintp(VOXEL)


@njit
def pending_samples(headers, group, samples, begin, end, bounds, pending, first_pending):
    """List the samples ``begin`` to ``end`` whose bound to the group's box lies below its largest key.

    Returns:
        How many; they are written to ``pending`` from ``first_pending`` on.
    """
    h = group * np.uintp(HEADER)
    low_x, high_x = as_float(headers[h]), as_float(headers[h + np.uintp(1)])
    low_y, high_y = as_float(headers[h + np.uintp(2)]), as_float(headers[h + np.uintp(3)])
    low_z, high_z = as_float(headers[h + np.uintp(4)]), as_float(headers[h + np.uintp(5)])
    key = headers[h + np.uintp(TOP)]
    n = np.uintp(0)
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
                pending[first_pending + n] = first + lane
                n += np.uintp(1) if bounds[np.uintp(lane)] < key else np.uintp(0)
    return n


@njit
def apply_sample(blocks, boxes, group, x, y, z, bounds):
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
def top_of_group(boxes, group):
    """The largest key of a group."""
    keys = group * np.uintp(GROUP_STRIDE) + np.uintp(6 * GROUP)
    top = np.int32(0)
    for v in range(GROUP):
        top = max(top, boxes[keys + np.uintp(v)])
    return top


@njit
def find_above(blocks, boxes, group, floor, found):
    """List the places of a group whose key lies above ``floor`` at the group's part of ``found``; returns how many."""
    keys = group * np.uintp(GROUP_STRIDE) + np.uintp(6 * GROUP)
    first = group * np.uintp(GROUP * VOXEL)
    n = np.uintp(0)
    for v in range(GROUP):
        if boxes[keys + np.uintp(v)] > floor:
            place = first + np.uintp(v * VOXEL)
            at = block_of(place) + np.uintp(3 * VOXEL)
            for lane in range(VOXEL):
                found[first + n] = np.int32(place + np.uintp(lane))
                n += np.uintp(1) if blocks[at + np.uintp(lane)] > floor else np.uintp(0)
    return n


@njit
def lane_with(blocks, rows, voxel, key):
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
