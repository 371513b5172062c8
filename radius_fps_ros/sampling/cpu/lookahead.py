"""Farthest point sampling with exact look-ahead: samples are committed before the cloud has seen their predecessors.

Keys only fall, so a key computed some samples ago is an upper bound of today's. The cloud is cut into voxels of 64
points along a space-filling curve, and 16 voxels in a row make a group, which remembers the largest key it had and how
many samples it has seen. A round has two halves:

1. Every group whose remembered key lies above a floor is brought up to date: the samples it has not seen run through
   its boxes and the voxels that they reach. Its points with a key above the floor are candidates. Groups are
   independent, so a team of threads shares them.
2. The leader picks samples among the candidates alone, as long as the best of them stays above the floor: what is not a
   candidate lies at or below the floor, and keys only fall, so nothing else can come before it.

The floor is set a little below the best key known, so that candidates are few but last for many samples. The pruning
is that of QuickFPS (Han et al. 2023) and RadiusFPS (Yu et al. 2026).
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from ..engine import RawSample
from .arithmetic import INFINITE, as_bits, as_float
from .candidates import MOST_CANDIDATES, best_candidate, collect, update_candidates
from .kernel import kernel
from .order import ROW_MASK, CartesianGrid, sort_by_cell
from .parallel import worthwhile_threads
from .team import LINE, chunk_range, finish_chunk, open_step, relax, run_team, stopped, take_chunk, wait_for_step
from .voxels import (
    FOUND,
    GROUP,
    GROUP_STRIDE,
    HEADER,
    LANES,
    SEEN,
    TOP,
    VOXEL,
    apply_sample,
    find_above,
    gather_voxels,
    pending_samples,
    top_of_group,
)
from .workspace import Workspace

POINTS_PER_THREAD = 16_384
"""Some ten microseconds of updates a round, beside less than one for the exchange between two threads."""

WANTED = 128  # candidates: fewer make more rounds, more cost more a sample
FIRST_DEPTH = 0.04  # of the floor below the best key, as a share of it; every round corrects it
SHALLOWEST, DEEPEST = 1e-7, 0.9

COUNT, FLOOR, UPDATES = 0, 1, 2  # columns of `shared`, which has a row for each thread
LAYING_OUT = 0  # the count of samples while groups are laid out


def sample_lookahead(points: np.ndarray, n_samples: int, start: int, workspace: Workspace, threads: int) -> RawSample:
    """Sample ``points`` (N, 3) float32 on ``threads`` threads; see `Engine.run`."""
    sorting = worthwhile_threads(len(points), threads)
    sampling = worthwhile_threads(len(points), threads, POINTS_PER_THREAD)
    keyed, n = sort_by_cell(points, CartesianGrid.of(points), workspace, sorting)
    voxels = -(-n // VOXEL)
    n_groups = -(-voxels // GROUP)
    places = n_groups * GROUP * VOXEL
    headers = workspace.array("headers", n_groups * HEADER, np.int32)
    shared = np.zeros((sampling, LINE), np.int64)
    indices = np.empty(n_samples, np.int64)
    count, coverage, rounds = run_team(
        _lead,
        _help,
        sampling,
        points.reshape(-1),
        keyed,
        n,
        workspace.array("blocks", 4 * places, np.int32),
        workspace.array("rows", places, np.int32),
        workspace.array("boxes", n_groups * GROUP_STRIDE, np.int32),
        headers,
        workspace.array("found", places, np.int32),
        workspace.array("samples", 3 * (n_samples + LANES), np.float32).reshape(3, -1),
        workspace.array("pending", sampling * n_samples, np.int32),
        shared,
        workspace.array("candidates", MOST_CANDIDATES * 4, np.int32),
        workspace.array("candidate rows", MOST_CANDIDATES, np.int32),
        workspace.array("candidate keys", MOST_CANDIDATES // VOXEL, np.int32),
        workspace.array("moved", n, np.uint64).view(np.int64),  # of the sort, which is over
        *points[start],
        start,
        indices,
    )
    skip_rate = max(0.0, 1.0 - int(shared[:, UPDATES].sum()) * VOXEL / (n * count))
    return RawSample(indices[:count], coverage, "lookahead", rounds, voxels, skip_rate, max(sorting, sampling))


@kernel
def _lead(
    team, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared,
    candidates, candidate_rows, run_keys, scratch, x, y, z, start, indices,
):  # fmt: skip
    """Choose all samples; returns their count, the largest key left and the rounds."""
    bounds = np.empty(LANES, np.int32)
    shared[0, COUNT] = LAYING_OUT
    _run_step(team, 1, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds)
    indices[0] = start
    samples[0, 0], samples[1, 0], samples[2, 0] = x, y, z
    count = 1
    rounds = 0
    depth = np.float32(FIRST_DEPTH)
    best = np.int32(INFINITE)  # no key lies above
    while best > 0:
        floor = min(as_bits(as_float(best) * (np.float32(1) - depth)), best - np.int32(1))
        shared[0, COUNT], shared[0, FLOOR] = count, floor
        rounds += 1
        _run_step(
            team, 1 + rounds, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds
        )
        n_found, top_key = _found_and_top(headers)
        if n_found == 0:
            best = top_key
            continue
        runs, threshold = collect(
            blocks, rows, headers, found, n_found, floor, candidates, candidate_rows, run_keys, scratch
        )
        while True:
            top, place = best_candidate(candidates, candidate_rows, run_keys, runs)
            if top <= threshold:
                best = np.int32(threshold >> 32)
                break
            if count == indices.shape[0]:
                return count, as_float(top >> 32), rounds
            indices[count] = ROW_MASK - (top & ROW_MASK)
            for axis in range(3):
                samples[np.uintp(axis), np.uintp(count)] = as_float(candidates[place + np.uintp(axis * VOXEL)])
            update_candidates(candidates, run_keys, runs, samples[0, count], samples[1, count], samples[2, count])
            count += 1
        depth *= min(max(np.float32(WANTED) / np.float32(n_found), np.float32(0.5)), np.float32(2))
        depth = min(max(depth, np.float32(SHALLOWEST)), np.float32(DEEPEST))
    return count, np.float32(0), rounds


@kernel
def _help(
    team, k, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared,
    candidates, candidate_rows, run_keys, scratch, x, y, z, start, indices,
):  # fmt: skip
    bounds = np.empty(LANES, np.int32)
    spins = 0
    while not stopped(team):
        worked = _work_on_chunk(
            team, k, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds
        )
        spins = 0 if worked else relax(spins)


@njit
def _run_step(team, step, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds):
    open_step(team)
    while _work_on_chunk(team, 0, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds):
        pass
    wait_for_step(team, step)


@njit
def _work_on_chunk(team, k, xyz, keyed, n, blocks, rows, boxes, headers, found, samples, pending, shared, bounds):
    """Lay out the next chunk of groups, or bring it up to date; False when no chunk is left."""
    chunk = take_chunk(team, k)
    if chunk < 0:
        return False
    begin, end = chunk_range(team, chunk, headers.shape[0] // HEADER)
    count = np.int32(shared[0, COUNT])
    if count == LAYING_OUT:
        gather_voxels(xyz, keyed, n, blocks, rows, boxes, headers, begin, end)
    else:
        floor = np.int32(shared[0, FLOOR])
        first_pending = np.uintp(k * (pending.shape[0] // shared.shape[0]))
        updates = 0
        for group in range(begin, end):
            header = np.uintp(group * HEADER)
            headers[header + np.uintp(FOUND)] = 0
            if headers[header + np.uintp(TOP)] > floor:
                updates += _bring_up_to_date(
                    blocks,
                    boxes,
                    headers,
                    found,
                    np.uintp(group),
                    samples,
                    count,
                    floor,
                    bounds,
                    pending,
                    first_pending,
                )
        shared[k, UPDATES] += updates
    finish_chunk(team, k)
    return True


@njit
def _bring_up_to_date(
    blocks, boxes, headers, found, group, samples, count, floor, bounds, pending, first_pending
):  # fmt: skip
    """Apply the samples that a group has not seen and list its points above the floor.

    Returns:
        How many updates of voxels it took.
    """
    header = group * np.uintp(HEADER)
    top, seen = header + np.uintp(TOP), header + np.uintp(SEEN)
    updates = 0
    if headers[seen] < count:
        reaching = pending_samples(headers, group, samples, headers[seen], count, bounds, pending, first_pending)
        for p in range(reaching):
            s = np.uintp(pending[first_pending + np.uintp(p)])
            x, y, z = samples[np.uintp(0), s], samples[np.uintp(1), s], samples[np.uintp(2), s]
            updates += apply_sample(blocks, boxes, group, x, y, z, bounds)
        headers[seen] = count
        headers[top] = top_of_group(boxes, group)
    if headers[top] > floor:
        headers[header + np.uintp(FOUND)] = find_above(blocks, boxes, group, floor, found)
    return updates


@njit
def _found_and_top(headers):
    """How many points are listed as found, and the largest key that any group remembers."""
    found = 0
    top = np.int32(0)
    for header in range(0, headers.shape[0], HEADER):
        found += headers[header + FOUND]
        top = max(top, headers[header + TOP])
    return found, top
