"""Farthest point sampling by one pass over all points a sample: the baseline."""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from ..engine import RawSample
from .arithmetic import INFINITE, NEVER, as_bits, as_float, update_run
from .kernel import kernel
from .parallel import worthwhile_threads
from .team import chunk_range, finish_chunk, open_step, relax, run_team, stopped, take_chunk, wait_for_step
from .workspace import Workspace

RUN = 64  # points a run: four 16-lane vectors
POINTS_PER_THREAD = 8_192
"""A microsecond or two of distances a step, beside some 0.4 for the exchange between two threads."""


def sample_brute(points: np.ndarray, n_samples: int, start: int, workspace: Workspace, threads: int) -> RawSample:
    """Sample ``points`` (N, 3) float32 on ``threads`` threads; see `Engine.run`."""
    threads = worthwhile_threads(len(points), threads, POINTS_PER_THREAD)
    runs = -(-len(points) // RUN)
    indices = np.empty(n_samples, np.int64)
    blocks = workspace.array("runs", runs * RUN * 4, np.int32)
    keys = workspace.array("run keys", runs, np.int32)
    _pack(points.reshape(-1), blocks)
    count, coverage = run_team(
        _lead,
        _help,
        threads,
        blocks,
        keys,
        np.empty(3, np.float32),
        start,
        indices,
    )
    return RawSample(indices[:count], coverage, "brute", rounds=count, voxels=0, skip_rate=0.0, threads=threads)


@kernel
def _lead(team, blocks, keys, sample, start, indices):
    row = start
    count = 0
    while True:
        indices[count] = row
        count += 1
        base = 4 * RUN * (row // RUN) + row % RUN
        for axis in range(3):
            sample[axis] = as_float(blocks[base + axis * RUN])
        open_step(team)
        while _update_chunk(team, 0, blocks, keys, sample):
            pass
        wait_for_step(team, count)
        largest = np.int32(0)
        for run in range(keys.shape[0]):
            largest = max(largest, keys[np.uintp(run)])
        if count == indices.shape[0] or largest == 0:
            return count, as_float(largest)
        run = 0
        while keys[run] != largest:
            run += 1
        row = run * RUN
        while blocks[4 * RUN * run + 3 * RUN + row - run * RUN] != largest:
            row += 1


@kernel
def _help(team, k, blocks, keys, sample, start, indices):
    spins = 0
    while not stopped(team):
        spins = 0 if _update_chunk(team, k, blocks, keys, sample) else relax(spins)


@njit
def _update_chunk(team, k, blocks, keys, sample):
    """Update the next chunk of runs; False when none is left."""
    chunk = take_chunk(team, k)
    if chunk < 0:
        return False
    begin, end = chunk_range(team, chunk, keys.shape[0])
    x, y, z = sample[0], sample[1], sample[2]
    for run in range(begin, end):
        keys[np.uintp(run)] = update_run(blocks, np.uintp(run) * np.uintp(4 * RUN), RUN, x, y, z)
    finish_chunk(team, k)
    return True


@kernel
def _pack(xyz, blocks):
    n = xyz.shape[0] // 3
    for slot in range(blocks.shape[0] // 4):
        base = 4 * (slot // RUN) * RUN + slot % RUN
        finite = slot < n
        for axis in range(3):
            v = xyz[3 * slot + axis] if slot < n else np.float32(0)
            finite = finite and v - v == np.float32(0)
            blocks[base + axis * RUN] = as_bits(v)
        blocks[base + 3 * RUN] = INFINITE if finite else NEVER
