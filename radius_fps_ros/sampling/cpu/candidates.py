"""The candidates of look-ahead sampling: every point above a threshold, held together so that picking is fast.

Points are ranked by (key, row), the smaller row first among equal keys, written as one integer; no two are equal.
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from .arithmetic import update_run
from .order import ROW_MASK
from .voxels import FOUND, GROUP, HEADER, NO_ROW, VOXEL, VOXEL_STRIDE, block_of, lane_with

MOST_CANDIDATES = 1024


@njit
def ranked(key: int, row: int) -> int:
    """(key, row) as an integer that is larger for the point to be sampled first."""
    return (np.int64(key) << 32) | (np.int64(ROW_MASK) - np.int64(row))


@njit
def collect(blocks, rows, headers, found, n_found, floor, candidates, candidate_rows, run_keys, scratch):
    """Copy the ``n_found`` points found above ``floor`` to ``candidates``, laid out as voxels are.

    Returns:
        How many runs of 64 they fill, and the rank above which every point of the cloud is among them. It is that of
        the floor unless more than `MOST_CANDIDATES` points were found.
    """
    threshold = ranked(floor, 0)
    if n_found > MOST_CANDIDATES:
        threshold = _higher_threshold(blocks, rows, headers, found, scratch)
    n = 0
    for group in range(headers.shape[0] // HEADER):
        for i in range(headers[group * HEADER + FOUND]):
            place = np.uintp(found[group * GROUP * VOXEL + i])
            source = block_of(place)
            row = rows[place]
            if n_found <= MOST_CANDIDATES or ranked(blocks[source + np.uintp(3 * VOXEL)], row) > threshold:
                target = block_of(np.uintp(n))
                for column in range(4):
                    at = np.uintp(column * VOXEL)
                    candidates[target + at] = blocks[source + at]
                candidate_rows[np.uintp(n)] = row
                n += 1
    runs = (n + VOXEL - 1) // VOXEL
    for i in range(n, runs * VOXEL):  # a key of 0 is above no threshold
        target = block_of(np.uintp(i))
        for column in range(4):
            candidates[target + np.uintp(column * VOXEL)] = 0
        candidate_rows[i] = NO_ROW
    for run in range(runs):
        key = np.int32(0)
        for lane in range(VOXEL):
            key = max(key, candidates[np.uintp(run * VOXEL_STRIDE + 3 * VOXEL) + np.uintp(lane)])
        run_keys[run] = key
    return runs, threshold


@njit
def best_candidate(candidates, candidate_rows, run_keys, runs):
    """The rank of the best candidate and where in ``candidates`` it lies."""
    key = np.int32(0)
    for run in range(runs):
        key = max(key, run_keys[np.uintp(run)])
    row = np.int32(NO_ROW)
    place = np.uintp(0)
    for run in range(runs):
        if run_keys[np.uintp(run)] == key:
            lane = lane_with(candidates, candidate_rows, np.uintp(run), key)
            here = np.uintp(run * VOXEL) + lane
            if candidate_rows[here] < row:
                row = candidate_rows[here]
                place = block_of(here)
    return ranked(key, row), place


@njit
def update_candidates(candidates, run_keys, runs, x, y, z):
    """Lower the keys of all candidates by their distances to a sample."""
    for run in range(runs):
        base = np.uintp(run) * np.uintp(VOXEL_STRIDE)
        run_keys[np.uintp(run)] = update_run(candidates, base, VOXEL, x, y, z)


@njit
def _higher_threshold(blocks, rows, headers, found, scratch):
    """A rank that at most `MOST_CANDIDATES`, but not few, of the points found exceed: by bisection."""
    n = 0
    low, high = ranked(NO_ROW, 0), np.int64(0)
    for group in range(headers.shape[0] // HEADER):
        for i in range(headers[group * HEADER + FOUND]):
            place = np.uintp(found[group * GROUP * VOXEL + i])
            scratch[n] = ranked(blocks[block_of(place) + np.uintp(3 * VOXEL)], rows[place])
            low, high = min(low, scratch[n] - 1), max(high, scratch[n])
            n += 1
    while True:
        middle = low + (high - low) // 2
        above = 0
        for i in range(n):
            above += 1 if scratch[np.uintp(i)] > middle else 0
        if above > MOST_CANDIDATES:
            low = middle
        elif above < MOST_CANDIDATES // 4:
            high = middle
        else:
            return middle
