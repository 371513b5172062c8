"""Rulebooks on CUDA: sorted sites, output sites, neighbour tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..geometry import ConvGeometry, Triple
from ..rulebook import Rulebook
from ..sites import check_grid
from .kernels import KERNEL_RULEBOOK, aligned, blocks, geometry_argument, launch

NOT_FINITE = 4  # bit of the fault word, as in sites.cuh; the others all call for sort_sites

TILE_GROUP = 256  # GROUP of rulebook.cu
MAX_TILES = 2**20
_TILE_WORDS = 8192  # 32 KiB of shared memory
_TILE_THREADS = 256
_WANTED_TILES = 2048  # more repeat the searches, fewer leave the densest tile to work alone
_TILING = np.dtype([(name, np.int32) for name in ("lines", "words", "groups", "chunks")])


@dataclass(frozen=True)
class SiteList:
    """Active sites in ascending order on the device.

    Attributes:
        sites: (capacity, 4) int32.
        keys: (capacity,) int64, ascending.
        limit: number of sites, or the capacity when ``count`` is given.
        count: device int32 with the number of sites, or ``None``.
        order: (N,) int32 row that each position had before sorting, or ``None`` when they were sorted.
    """

    sites: Any
    keys: Any
    limit: int
    count: Any = None
    order: Any = None


@dataclass(frozen=True)
class Tiling:
    """How output lines are dealt to blocks; see ``rulebook.cu``."""

    lines: int
    words: int
    groups: int
    chunks: int
    tiles: int

    @classmethod
    def plan(cls, out_shape: Triple, batch_size: int) -> Tiling:
        """About ``_WANTED_TILES`` tiles, fewer when there are fewer lines, more when a bitmap would be too large."""
        depth, height, width = out_shape
        words = -(-width // 32)
        if words > _TILE_WORDS:
            lines, words = 1, _TILE_WORDS
        else:
            wanted = -(-batch_size * depth * height // _WANTED_TILES)
            lines = max(1, min(max(4, wanted), _TILE_WORDS // words, height))
        groups, chunks = -(-height // lines), -(-width // (32 * words))
        return cls(lines, words, groups, chunks, batch_size * depth * groups * chunks)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.lines * self.words

    def argument(self) -> Any:
        """The ``Tiling`` of ``rulebook.cu``, to be passed by value."""
        return np.array((self.lines, self.words, self.groups, self.chunks), dtype=_TILING)


def launch_count(source: SiteList, geometry: Any, tiling: Tiling, tile_counts: Any, group_counts: Any) -> None:
    """Count the output sites of every tile; ``group_counts`` must be zero before."""
    arguments = (source.sites, source.keys, source.count, source.limit, geometry, tiling.argument())
    launch(
        KERNEL_RULEBOOK,
        "count_outputs",
        (tiling.tiles,),
        (*arguments, tile_counts, group_counts),
        threads=_TILE_THREADS,
        shared=tiling.shared_bytes,
    )


def launch_emit(
    source: SiteList,
    geometry: Any,
    tiling: Tiling,
    tile_counts: Any,
    group_counts: Any,
    target: SiteList,
    written: Any,
    required: Any,
) -> None:
    """Write at most ``target.limit`` output sites, how many were ``written`` and how many were ``required``."""
    arguments = (source.sites, source.keys, source.count, source.limit, geometry, tiling.argument())
    launch(
        KERNEL_RULEBOOK,
        "emit_outputs",
        (tiling.tiles,),
        (*arguments, tile_counts, group_counts, target.sites, target.keys, target.limit, written, required),
        threads=_TILE_THREADS,
        shared=tiling.shared_bytes,
    )


def launch_neighbours(
    outputs: SiteList, source: SiteList, shape: Triple, geometry: ConvGeometry, table: Any, grid: Any = None
) -> None:
    """Fill ``table`` (K, pitch) for the rows of ``outputs.sites``."""
    kz, ky, _ = geometry.kernel_size
    launch(
        KERNEL_RULEBOOK,
        "find_neighbours",
        (blocks(outputs.limit), kz * ky),
        (
            outputs.sites,
            outputs.count,
            outputs.limit,
            source.keys,
            source.order,
            grid,
            source.count,
            source.limit,
            geometry_argument(shape, geometry),
            table,
            np.int64(table.shape[1]),
        ),
    )


def encode(indices: Any, shape: Triple, keys: Any, faults: Any) -> None:
    """Write the keys of ``indices`` and set bits in ``faults``."""
    n = len(indices)
    launch(KERNEL_RULEBOOK, "encode_sites", (blocks(n),), (indices, n, geometry_argument(shape), keys, faults))


def sort_sites(indices: Any, shape: Triple) -> SiteList:
    """The sites in ascending order; waits for the device.

    Raises:
        InputError: the same site occurs twice.
    """
    import cupy

    indices = aligned(indices)
    n = len(indices)
    keys, faults = cupy.empty(n, dtype=cupy.int64), cupy.zeros(1, dtype=cupy.int32)
    encode(indices, shape, keys, faults)
    found = int(faults[0])
    if found == 0:
        return SiteList(indices, keys, n)
    order = cupy.argsort(keys)
    ordered = cupy.ascontiguousarray(indices[order])
    faults.fill(0)
    encode(ordered, shape, keys, faults)
    if int(faults[0]):
        raise duplicate_site(ordered, keys)
    return SiteList(ordered, keys, n, order=order.astype(cupy.int32))


def duplicate_site(ordered: Any, keys: Any) -> InputError:
    """The error for sites that occur twice; ``ordered`` and ``keys`` are sorted."""
    import cupy

    first = int(cupy.argmax(keys[1:] == keys[:-1]))
    site = tuple(int(v) for v in cupy.asnumpy(ordered[first]))
    return InputError(f"indices hold the same site twice, for example (batch, z, y, x) = {site}; sites must differ")


def output_sites(source: SiteList, shape: Triple, batch_size: int, geometry: ConvGeometry) -> SiteList:
    """Sorted output sites of a regular convolution, exactly as many as there are; waits for the device."""
    import cupy

    out_shape = geometry.output_shape(shape)
    tiling = Tiling.plan(out_shape, batch_size)
    if tiling.tiles > MAX_TILES:
        return _output_sites_by_sorting(source, out_shape, geometry)
    argument = geometry_argument(shape, geometry)
    tile_counts = cupy.empty(tiling.tiles, dtype=cupy.int32)
    group_counts = cupy.zeros(-(-tiling.tiles // TILE_GROUP), dtype=cupy.int32)
    launch_count(source, argument, tiling, tile_counts, group_counts)
    n = int(group_counts.sum())
    target = SiteList(cupy.empty((n, 4), dtype=cupy.int32), cupy.empty(n, dtype=cupy.int64), n)
    unused = cupy.empty(2, dtype=cupy.int32)
    launch_emit(source, argument, tiling, tile_counts, group_counts, target, unused[:1], unused[1:])
    return target


def _output_sites_by_sorting(source: SiteList, out_shape: Triple, geometry: ConvGeometry) -> SiteList:
    """The same for spaces so large that visiting their tiles would take longer than sorting all candidates."""
    import cupy

    inputs = source.sites.astype(cupy.int64)
    padding, dilation, stride, limit = (
        cupy.asarray(v, dtype=cupy.int64) for v in (geometry.padding, geometry.dilation, geometry.stride, out_shape)
    )
    candidates = []
    for offset in geometry.offsets():
        shifted = inputs[:, 1:] + padding - cupy.asarray(offset, dtype=cupy.int64) * dilation
        site = shifted // stride
        valid = ((shifted >= 0) & (site * stride == shifted) & (site < limit)).all(axis=1)
        site = site[valid]
        line = (inputs[valid, 0] * out_shape[0] + site[:, 0]) * out_shape[1] + site[:, 1]
        candidates.append(line * out_shape[2] + site[:, 2])
    keys = cupy.unique(cupy.concatenate(candidates))
    line, plane = keys // out_shape[2], keys // (out_shape[2] * out_shape[1])
    columns = (plane // out_shape[0], plane % out_shape[0], line % out_shape[1], keys % out_shape[2])
    sites = cupy.ascontiguousarray(cupy.stack(columns, axis=1).astype(cupy.int32))
    return SiteList(sites, keys, len(keys))


def build_rulebook(
    indices: Any, spatial_shape: Triple, batch_size: int, geometry: ConvGeometry, *, grid: Any = None
) -> Rulebook:
    """See ``radius_fps_ros.sparse.build_rulebook``; the arguments are already checked.

    Raises:
        InputError: the same site occurs twice.
    """
    import cupy

    out_shape = geometry.output_shape(spatial_shape)
    if grid is not None:
        check_grid(grid, spatial_shape, batch_size)
    if geometry.subm and grid is not None:
        table = _neighbours_by_grid(aligned(indices), spatial_shape, geometry, grid)
        return Rulebook(geometry, indices, spatial_shape, indices, out_shape, table)
    source = sort_sites(indices, spatial_shape)
    if geometry.subm:
        outputs = SiteList(aligned(indices), None, len(indices))
    else:
        outputs = output_sites(source, spatial_shape, batch_size, geometry)
    table = cupy.empty((geometry.volume, outputs.limit), dtype=cupy.int32)
    launch_neighbours(outputs, source, spatial_shape, geometry, table)
    return Rulebook(geometry, indices, spatial_shape, indices if geometry.subm else outputs.sites, out_shape, table)


def _neighbours_by_grid(indices: Any, shape: Triple, geometry: ConvGeometry, grid: Any) -> Any:
    import cupy

    n = len(indices)
    keys, faults = cupy.empty(n, dtype=cupy.int64), cupy.zeros(1, dtype=cupy.int32)
    encode(indices, shape, keys, faults)
    faults.fill(0)  # unsorted sites are fine here; duplicates show when the grid is emptied
    launch(KERNEL_RULEBOOK, "fill_grid", (blocks(n),), (keys, n, grid))
    outputs = SiteList(indices, keys, n)
    table = cupy.empty((geometry.volume, n), dtype=cupy.int32)
    launch_neighbours(outputs, outputs, shape, geometry, table, grid)
    launch(KERNEL_RULEBOOK, "clear_grid", (blocks(n),), (keys, n, grid, faults))
    if int(faults[0]):
        order = cupy.argsort(keys)
        raise duplicate_site(indices[order], keys[order])
    return table
