"""RadiusFPS: farthest point sampling pruned by spherical voxels (Yu et al., arXiv 2606.06255, 2026).

Points are sorted by the cells of a spherical grid; the points of a cell, cut every 64, make a voxel. Each voxel keeps
the largest key of its points. Every new sample is held against all voxels and updates those whose bound lies below
that key. The bound is the distance to the voxel's tight box, which is proven (see `bound_bits`), and not that to the
clamped spherical coordinates, which can exceed the true distance.
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from ..engine import RawSample
from .arithmetic import INFINITE, as_bits, as_float, bound_bits, update_run
from .kernel import kernel
from .order import CODE_SHIFT, ROW_MASK, SphericalGrid, sort_by_cell
from .parallel import run_chunks, split, worthwhile_threads
from .workspace import Workspace

MAX_VOXEL = 64  # points
RUN = 16  # points: a voxel's points fill whole runs, one vector each
RUN_STRIDE = 4 * RUN  # in `blocks`: 16 x, 16 y, 16 z, 16 keys
LANES = 16  # voxels whose bounds are one vector operation
NO_ROW = 0x7FFFFFFF
UNKNOWN = -1


def sample_radius(points: np.ndarray, n_samples: int, start: int, workspace: Workspace, threads: int) -> RawSample:
    """Sample ``points`` (N, 3) float32; the preparation runs on ``threads`` threads. See `Engine.run`."""
    threads = worthwhile_threads(len(points), threads)
    max_cells = max(256, len(points) // 32)  # the paper's rule
    keyed, n = sort_by_cell(points, SphericalGrid.of(points, max_cells), workspace, threads)
    # Each cell and each full voxel within one adds at most one voxel, and each voxel at most one run that is not full.
    most_voxels = min(n, max_cells + n // MAX_VOXEL)
    most_runs = n // RUN + most_voxels
    first_run = workspace.array("first run", most_voxels + 1, np.int64)
    first_place = workspace.array("first place", most_voxels + 1, np.int64)
    voxels = _cut_voxels(keyed, n, first_place, first_run)
    packs = -(-voxels // LANES)
    blocks = workspace.array("blocks", most_runs * RUN_STRIDE, np.int32)
    rows = workspace.array("rows", most_runs * RUN, np.int32)
    boxes = workspace.array("boxes", -(-most_voxels // LANES) * LANES * 7, np.int32)[: packs * LANES * 7]
    boxes[:] = 0  # lanes past the last voxel keep a key of 0: nothing lies below
    run_chunks(_gather, split(voxels, threads), points.reshape(-1), keyed, first_place, first_run, blocks, rows, boxes)
    indices = np.empty(n_samples, np.int64)
    count, coverage, updates = _sample(
        *points[start],
        start,
        blocks,
        rows,
        boxes,
        first_run,
        workspace.array("pack tops", -(-most_voxels // LANES), np.int32)[:packs],
        workspace.array("voxel rows", -(-most_voxels // LANES) * LANES, np.int32),
        workspace.array("voxel places", most_voxels, np.int64),
        indices,
    )
    skip_rate = max(0.0, 1.0 - updates / (n * count))
    return RawSample(indices[:count], coverage, "radius", count, voxels, skip_rate, threads)


@kernel
def _cut_voxels(keyed, n, first_place, first_run):
    """Find where voxels begin: at a new cell, or after 64 points."""
    voxels = 0
    begin = 0
    run = 0
    first_place[0] = 0
    first_run[0] = 0
    for place in range(1, n + 1):
        if (
            place == n
            or place - begin == MAX_VOXEL
            or keyed[place] >> np.uint64(CODE_SHIFT) != keyed[begin] >> np.uint64(CODE_SHIFT)
        ):
            run += (place - begin + RUN - 1) // RUN
            voxels += 1
            first_place[voxels] = place
            first_run[voxels] = run
            begin = place
    return voxels


@kernel
def _gather(xyz, keyed, first_place, first_run, blocks, rows, boxes, k, begin, end):
    """Lay out voxels ``begin`` to ``end``. Places past a voxel's last point get its coordinates and a key of 0."""
    low = np.empty(3, np.float32)
    high = np.empty(3, np.float32)
    for voxel in range(begin, end):
        low[:] = np.inf
        high[:] = -np.inf
        for slot in range((first_run[voxel + 1] - first_run[voxel]) * RUN):
            place = first_place[voxel] + slot
            real = place < first_place[voxel + 1]
            row = np.uintp(keyed[place if real else first_place[voxel + 1] - 1] & np.uint64(ROW_MASK))
            run = first_run[voxel] + slot // RUN
            i = run * RUN_STRIDE + slot % RUN
            for axis in range(3):
                c = xyz[np.uintp(3) * row + np.uintp(axis)]
                blocks[i + axis * RUN] = as_bits(c)
                low[axis] = min(low[axis], c)
                high[axis] = max(high[axis], c)
            blocks[i + 3 * RUN] = INFINITE if real else 0
            rows[run * RUN + slot % RUN] = np.int32(row) if real else NO_ROW
        box = voxel // LANES * LANES * 7 + voxel % LANES
        for axis in range(3):
            boxes[box + 2 * axis * LANES] = as_bits(low[axis])
            boxes[box + (2 * axis + 1) * LANES] = as_bits(high[axis])
        boxes[box + 6 * LANES] = INFINITE


@kernel
def _sample(x, y, z, start, blocks, rows, boxes, first_run, pack_tops, voxel_rows, voxel_places, indices):
    bounds = np.empty(LANES, np.int32)
    indices[0] = start
    count = 1
    updates = 0
    pack_tops[:] = INFINITE
    voxel_rows[:] = UNKNOWN  # a voxel infinitely far from all samples is chosen from before any update
    while True:
        for pack in range(pack_tops.shape[0]):
            if _bounds_below_keys(boxes, np.uintp(pack * LANES * 7), x, y, z, bounds):
                updates += _update_pack(blocks, boxes, first_run, voxel_rows, pack, x, y, z, bounds)
                top = np.int32(0)
                for v in range(LANES):
                    top = max(top, boxes[np.uintp(pack * LANES * 7 + 6 * LANES) + np.uintp(v)])
                pack_tops[pack] = top
        key = np.int32(0)
        for pack in range(pack_tops.shape[0]):
            key = max(key, pack_tops[pack])
        if count == indices.shape[0] or key == 0:
            return count, as_float(key), updates * RUN
        row, place = _first_row_with(key, blocks, rows, boxes, first_run, pack_tops, voxel_rows, voxel_places)
        indices[count] = row
        count += 1
        x, y, z = as_float(blocks[place]), as_float(blocks[place + RUN]), as_float(blocks[place + 2 * RUN])


@njit
def _bounds_below_keys(boxes, b, x, y, z, bounds):
    """Fill ``bounds`` with bound minus key of 16 voxels; tells whether any is negative."""
    w = np.uintp(LANES)
    least = np.int32(0)
    for v in range(LANES):
        i = b + np.uintp(v)
        d = bound_bits(
            as_float(boxes[i]), as_float(boxes[i + w]),
            as_float(boxes[i + w + w]), as_float(boxes[i + np.uintp(3) * w]),
            as_float(boxes[i + np.uintp(4) * w]), as_float(boxes[i + np.uintp(5) * w]),
            x, y, z,
        ) - boxes[i + np.uintp(6) * w]  # fmt: skip
        bounds[np.uintp(v)] = d
        least = min(least, d)
    return least < 0


@njit
def _update_pack(blocks, boxes, first_run, voxel_rows, pack, x, y, z, bounds):
    """Update the voxels of a pack whose bound lies below their key; returns how many runs that took."""
    runs = 0
    for v in range(LANES):
        if bounds[v] < 0:
            voxel = pack * LANES + v
            key = np.int32(0)
            for run in range(first_run[voxel], first_run[voxel + 1]):
                key = max(key, update_run(blocks, np.uintp(run) * np.uintp(RUN_STRIDE), RUN, x, y, z))
            boxes[pack * LANES * 7 + 6 * LANES + v] = key
            voxel_rows[voxel] = UNKNOWN
            runs += first_run[voxel + 1] - first_run[voxel]
    return runs


@njit
def _first_row_with(key, blocks, rows, boxes, first_run, pack_tops, voxel_rows, voxel_places):
    """The smallest row whose key is ``key``, the largest of all, and its place in ``blocks``."""
    first = np.int32(NO_ROW)
    place = 0
    for pack in range(pack_tops.shape[0]):
        if pack_tops[pack] != key:
            continue
        for v in range(LANES):
            if boxes[pack * LANES * 7 + 6 * LANES + v] != key:
                continue
            voxel = pack * LANES + v
            if voxel_rows[voxel] == UNKNOWN:  # searched once after each update, so that many ties stay cheap
                best = np.int32(NO_ROW)
                for slot in range(first_run[voxel] * RUN, first_run[voxel + 1] * RUN):
                    i = slot // RUN * RUN_STRIDE + slot % RUN
                    if blocks[i + 3 * RUN] == key and rows[slot] < best:
                        best = rows[slot]
                        voxel_places[voxel] = i
                voxel_rows[voxel] = best
            if voxel_rows[voxel] < first:
                first = voxel_rows[voxel]
                place = voxel_places[voxel]
    return first, place
