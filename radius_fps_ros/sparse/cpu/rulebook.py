"""Rulebooks on the CPU: sorted 64-bit keys, and one sweep through them for each row of the kernel."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from ...device import numba_threads
from ..geometry import ConvGeometry, Triple
from ..rulebook import Rulebook
from ..sites import check_grid
from .kernel import kernel, parallel_kernel
from .keys import decode, sort_sites

# Output sites a task sweeps; each task finds its place among the keys by bisection and then only moves forward.
CHUNK = 2048


def build_rulebook(
    indices: NDArray[np.int32],
    spatial_shape: Triple,
    batch_size: int,
    geometry: ConvGeometry,
    *,
    grid: NDArray[np.int32] | None = None,
) -> Rulebook:
    """See ``radius_fps_ros.sparse.build_rulebook``; the sites are already checked."""
    out_shape = geometry.output_shape(spatial_shape)
    keys, rows = sort_sites(indices, spatial_shape)
    sites = np.ascontiguousarray(indices[rows])
    window = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    symmetric = geometry.subm and all(size % 2 for size in geometry.kernel_size)
    with numba_threads(None):
        if geometry.subm:
            out_indices, out_sites, columns = indices, sites, rows
        else:
            out_indices = out_sites = _output_sites(sites, out_shape, geometry)
            columns = np.arange(len(out_sites), dtype=np.int32)
        neighbours = np.full((geometry.volume, len(out_sites)), -1, dtype=np.int32)
        if grid is None:
            _sweep(keys, rows, out_sites, columns, spatial_shape, *window, symmetric, neighbours)
        else:
            check_grid(grid, spatial_shape, batch_size)
            cells = grid.reshape(-1)
            cells[keys] = rows
            try:
                _look_up(cells, out_sites, columns, spatial_shape, *window, neighbours)
            finally:
                cells[keys] = -1
    return Rulebook(geometry, indices, spatial_shape, out_indices, out_shape, neighbours)


def _output_sites(sites: NDArray[np.int32], out_shape: Triple, geometry: ConvGeometry) -> NDArray[np.int32]:
    """All outputs (N_out, 4) that the sorted input ``sites`` reach, sorted."""
    kernel = geometry.kernel_size
    candidates = np.empty((kernel[0] * kernel[1], len(sites) * kernel[2]), dtype=np.int64)
    counts = np.empty(len(candidates), dtype=np.int64)
    _reach(sites, out_shape, kernel, geometry.stride, geometry.padding, geometry.dilation, candidates, counts)
    reached = np.concatenate([line[:count] for line, count in zip(candidates, counts, strict=True)])
    reached.sort(kind="stable")  # a merge sort: what each line holds already ascends
    first = np.ones(len(reached), dtype=np.bool_)
    np.not_equal(reached[1:], reached[:-1], out=first[1:])
    out_keys = reached[first]
    out_sites = np.empty((len(out_keys), 4), dtype=np.int32)
    decode(out_keys, out_shape, out_sites)
    return out_sites


@kernel
def _target(position: int, tap: int, size: int, stride: int, padding: int, dilation: int) -> int:
    """The output coordinate that reads input ``position`` through kernel tap ``tap``, or -1."""
    shifted = position + padding - tap * dilation
    if shifted < 0 or shifted % stride != 0 or shifted // stride >= size:
        return -1
    return shifted // stride


@parallel_kernel
def _reach(
    sites: NDArray[np.int32],
    out_shape: Triple,
    kernel: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    candidates: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """For each kernel row (kz, ky) the keys of the outputs that the inputs reach; some repeat, most do not."""
    for line in prange(kernel[0] * kernel[1]):
        count = 0
        # Inputs ascend, and so do the windows of outputs along x that they reach: a key that is not above the highest
        # one so far is already there. With gaps in the window (dilation) it may not be.
        highest = np.int64(-1)
        for i in range(len(sites)):
            oz = _target(sites[i, 1], line // kernel[1], out_shape[0], stride[0], padding[0], dilation[0])
            if oz < 0:
                continue
            oy = _target(sites[i, 2], line % kernel[1], out_shape[1], stride[1], padding[1], dilation[1])
            if oy < 0:
                continue
            base = ((np.int64(sites[i, 0]) * out_shape[0] + oz) * out_shape[1] + oy) * out_shape[2]
            known = highest
            for tap in range(kernel[2] - 1, -1, -1):
                ox = _target(sites[i, 3], tap, out_shape[2], stride[2], padding[2], dilation[2])
                if ox >= 0 and (base + ox > known or dilation[2] > 1):
                    candidates[line, count] = base + ox
                    count += 1
                    highest = max(highest, base + ox)
        counts[line] = count


@parallel_kernel
def _sweep(
    keys: NDArray[np.int64],
    rows: NDArray[np.int32],
    sites: NDArray[np.int32],
    columns: NDArray[np.int32],
    shape: Triple,
    kernel: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    symmetric: bool,
    neighbours: NDArray[np.int32],
) -> None:
    """Fill ``neighbours`` (K, N_out): for each kernel row (kz, ky), walk outputs and input keys forward together.

    ``keys`` (ascending) belong to the input ``rows``, output ``sites`` (ascending) to the ``columns``. ``symmetric``
    (submanifold, odd kernel): if offset k brings input i to output o, offset K - 1 - k brings o to i, so the kernel
    rows after the middle one follow from those before it; ``neighbours`` comes filled with -1 then.
    """
    depth, height, width = shape
    size, outputs, volume = len(keys), len(sites), len(neighbours)
    lines = kernel[0] * kernel[1]
    swept = lines // 2 + 1 if symmetric else lines
    for chunk in prange((outputs + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min((chunk + 1) * CHUNK, outputs)
        for line in range(swept):
            mirrored = symmetric and line < lines // 2
            before_z = (line // kernel[1]) * dilation[0] - padding[0]
            before_y = (line % kernel[1]) * dilation[1] - padding[1]
            offset = line * kernel[2]
            cursor = -1
            for o in range(first, last):
                column = columns[o]
                z = np.int64(sites[o, 1]) * stride[0] + before_z
                y = np.int64(sites[o, 2]) * stride[1] + before_y
                if z < 0 or z >= depth or y < 0 or y >= height:
                    for tap in range(kernel[2]):
                        neighbours[offset + tap, column] = -1
                    continue
                x0 = np.int64(sites[o, 3]) * stride[2] - padding[2]
                base = ((np.int64(sites[o, 0]) * depth + z) * height + y) * width
                # Clamped into its own row, the start of the window never moves backwards from output to output.
                start = base + min(max(x0, 0), width)
                if cursor < 0:
                    cursor = np.searchsorted(keys, start)
                while cursor < size and keys[cursor] < start:
                    cursor += 1
                ahead = cursor
                for tap in range(kernel[2]):
                    x = x0 + tap * dilation[2]
                    found = np.int32(-1)
                    if 0 <= x < width:
                        while ahead < size and keys[ahead] < base + x:
                            ahead += 1
                        if ahead < size and keys[ahead] == base + x:
                            found = rows[ahead]
                            if mirrored:
                                neighbours[volume - 1 - offset - tap, found] = column
                    neighbours[offset + tap, column] = found


@parallel_kernel
def _look_up(
    cells: NDArray[np.int32],
    sites: NDArray[np.int32],
    columns: NDArray[np.int32],
    shape: Triple,
    kernel: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    neighbours: NDArray[np.int32],
) -> None:
    """Fill ``neighbours``, which comes filled with -1, from a grid that holds the row of every active site."""
    depth, height, width = shape
    for o in prange(len(sites)):
        offset = 0
        for kz in range(kernel[0]):
            z = np.int64(sites[o, 1]) * stride[0] - padding[0] + kz * dilation[0]
            for ky in range(kernel[1]):
                y = np.int64(sites[o, 2]) * stride[1] - padding[1] + ky * dilation[1]
                for tap in range(kernel[2]):
                    x = np.int64(sites[o, 3]) * stride[2] - padding[2] + tap * dilation[2]
                    if 0 <= z < depth and 0 <= y < height and 0 <= x < width:
                        cell = ((np.int64(sites[o, 0]) * depth + z) * height + y) * width + x
                        neighbours[offset, columns[o]] = cells[cell]
                    offset += 1
