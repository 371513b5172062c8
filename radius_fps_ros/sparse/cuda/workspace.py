"""Everything one pass of a network needs on the device, with fixed capacities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..geometry import Triple
from .convolve import PairLists, launch_implicit_gemm, launch_native
from .kernels import geometry_argument
from .plan import Plan
from .rulebook import TILE_GROUP, SiteList, launch_count, launch_emit, launch_neighbours

_HEADROOM = 1.25  # capacity over the sites of the frame that it was measured on
_GRANULE = 1024


def fitting_capacities(sizes: Sequence[int], known: Sequence[int] | None) -> list[int]:
    """Capacities for a frame with ``sizes`` sites by level and some headroom; none below those ``known``."""
    capacities = [_GRANULE * max(1, -(-int(_HEADROOM * size) // _GRANULE)) for size in sizes]
    return capacities if known is None else [max(pair) for pair in zip(capacities, known, strict=True)]


def status_words(plan: Plan) -> int:
    """Length of the status of a `Workspace`."""
    return 1 + 2 * plan.levels


class Workspace:
    """Buffers for at most ``capacities`` sites a level, and the kernels that run over them.

    Sizes stay on the device: kernels are launched over the capacity and read how many rows there are. When a level
    does not fit, its kernels stop at the capacity, and the status tells how many sites were required.

    Attributes:
        sites: the active sites by level; those of level 0 are the input, which the caller writes, with their count.
        input: (capacities[0], input_width) features of level 0, which the caller writes, channels padded with zeros.
        features: the layers' outputs, of which those that the plan names as outputs outlive the pass.
        status: (status_words,) int32 that must be zero before a frame is put in place: a word of faults, how many sites
            each level has, how many each requires.
        required: of each level, its word of the status.
        nbytes: device memory that the buffers take.
    """

    def __init__(
        self, plan: Plan, shape: Triple, batch_size: int, capacities: Sequence[int], status: Any = None
    ) -> None:
        """Take the memory; ``status`` may be given."""
        import cupy

        self.plan, self.shape, self.batch_size = plan, shape, batch_size
        self.capacities = tuple(capacities)
        self.nbytes = 0
        shapes = plan.shapes(shape)
        self._geometries = [geometry_argument(shapes[t.source], t.geometry) for t in plan.tables]
        self._shapes = shapes
        self._tilings = plan.tilings(shape, batch_size)
        levels = plan.levels
        self.status = self._empty(status_words(plan), np.int32) if status is None else status
        self.required = [self.status[1 + levels + level :][:1] for level in range(levels)]
        groups = {level: -(-tiling.tiles // TILE_GROUP) for level, tiling in self._tilings.items()}
        self._all_group_counts = self._empty(sum(groups.values()), np.int32)
        self._group_counts, start = {}, 0
        for level, size in groups.items():
            self._group_counts[level] = self._all_group_counts[start : start + size]
            start += size
        self._tile_counts = {level: self._empty(tiling.tiles, np.int32) for level, tiling in self._tilings.items()}
        self.sites = [
            SiteList(
                self._empty((capacity, 4), np.int32),
                self._empty(capacity, np.int64),
                capacity,
                self.status[1 + level :][:1],
            )
            for level, capacity in enumerate(self.capacities)
        ]
        self._tables = [self._empty((t.geometry.volume, self.capacities[t.target]), np.int32) for t in plan.tables]
        self.input = self._empty((self.capacities[0], plan.input_width), plan.dtype)
        self.features = self._feature_buffers()
        if plan.algorithm == "native":
            self._pairs = [PairLists(table.shape[0], table.shape[1]) for table in self._tables]
            self.nbytes += sum(2 * pairs.in_rows.nbytes + pairs.counts.nbytes for pairs in self._pairs)
            self._sums = self._empty(max(buffer.size for buffer in self.features), np.float32)
        self._side_streams = tuple(cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def _empty(self, shape: Any, dtype: Any) -> Any:
        import cupy

        array = cupy.empty(shape, dtype=dtype)
        self.nbytes += array.nbytes
        return array

    def _feature_buffers(self) -> list[Any]:
        """One buffer a layer; layers whose results are not alive at the same time share one."""
        buffers: list[Any] = []
        free: dict[tuple[int, int], list[Any]] = {}
        for i, (table, width) in enumerate(zip(self.plan.table_of, self.plan.widths, strict=True)):
            key = (self.plan.tables[table].target, width)
            buffers.append(
                free[key].pop() if free.get(key) else self._empty((self.capacities[key[0]], width), self.plan.dtype)
            )
            for j in range(i + 1):
                if self.plan.last_reader[j] == i:
                    done = (self.plan.tables[self.plan.table_of[j]].target, self.plan.widths[j])
                    free.setdefault(done, []).append(buffers[j])
        return buffers

    def clear_status(self) -> None:
        """Queue what must come before a frame on the current stream."""
        import cupy

        self.status.data.memset_async(0, self.status.nbytes, cupy.cuda.get_current_stream())

    def enqueue(self, *, convolutions: bool = True) -> None:
        """Queue the pass, or its rulebooks alone, behind the current stream, which waits for it.

        Convolutions run on the current stream, sites and tables on two more, each as soon as it can. A capture of the
        current stream takes in all of it; the kernels must have run once before, as loading them cannot be captured.
        """
        import cupy

        main = cupy.cuda.get_current_stream()

        def follow(waiting: Any, stream: Any) -> None:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(stream)
            waiting.wait_event(event)

        sites, tables = self._side_streams
        follow(sites, main)
        follow(tables, main)
        if self._all_group_counts.size:
            self._all_group_counts.data.memset_async(0, self._all_group_counts.nbytes, sites)
        built = -1
        for i, table in enumerate(self.plan.table_of):
            if table > built:
                built = table
                with sites:
                    if self._write_sites(table):
                        follow(tables, sites)
                with tables:
                    self._build_table(table)
                follow(main, tables)
            if convolutions:
                self._convolve(i)
        follow(main, sites)

    def _write_sites(self, index: int) -> bool:
        """Write the sites of the level that table ``index`` opens; false when it opens none."""
        table = self.plan.tables[index]
        if table.target == table.source:
            return False
        source, target = self.sites[table.source], self.sites[table.target]
        counts = self._tile_counts[table.target], self._group_counts[table.target]
        tiling, geometry = self._tilings[table.target], self._geometries[index]
        launch_count(source, geometry, tiling, *counts)
        launch_emit(source, geometry, tiling, *counts, target, target.count, self.required[table.target])
        return True

    def _build_table(self, index: int) -> None:
        table = self.plan.tables[index]
        source, target = self.sites[table.source], self.sites[table.target]
        launch_neighbours(target, source, self._shapes[table.source], table.geometry, self._tables[index])
        if self.plan.algorithm == "native":
            self._pairs[index].fill(self._tables[index], target.count, target.limit)

    def _convolve(self, i: int) -> None:
        layer, table = self.plan.layers[i], self.plan.table_of[i]
        level = self.sites[self.plan.tables[table].target]
        inputs = self.features[i - 1] if i else self.input
        residual = None if layer.residual is None else self.features[layer.residual]
        common = (inputs, self.plan.weights[i], self.plan.biases[i], residual, self.features[i])
        if self.plan.algorithm == "native":
            sums = self._sums[: self.features[i].size].reshape(self.features[i].shape)
            launch_native(*common, self._pairs[table], sums, level.count, layer.relu)
        else:
            launch_implicit_gemm(*common, self._tables[table], level.count, level.limit, layer.relu)
