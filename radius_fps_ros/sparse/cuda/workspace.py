"""Everything one pass of a network needs on the device, with fixed capacities, captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..geometry import Triple
from .convolve import PairLists, fitting_tiles, launch_implicit_gemm, launch_native
from .kernels import KERNEL_FRAME, THREADS, blocks, find_function, geometry_argument, kernel_arguments
from .plan import Plan
from .rulebook import TILE_GROUP, SiteList, launch_count, launch_emit, launch_neighbours

_COPIES = 8  # buffers that one launch of store_results takes
_COPIES_ARGUMENT = np.dtype(
    [
        ("from", np.uint64, _COPIES),
        ("to", np.uint64, _COPIES),
        ("count", np.uint64, _COPIES),
        ("words", np.int32, _COPIES),
    ]
)


class Workspace:
    """Buffers for at most ``capacities`` sites a level, and the graph that runs over them.

    Sizes stay on the device: kernels are launched over the capacity and read how many rows there are. When a level
    does not fit, its kernels stop at the capacity and ``run`` reports how many sites were required.

    Attributes:
        nbytes: device memory that the buffers take.
    """

    def __init__(self, plan: Plan, shape: Triple, batch_size: int, capacities: Sequence[int]) -> None:
        import cupy

        self.plan, self.shape, self.batch_size = plan, shape, batch_size
        self.capacities = tuple(capacities)
        self.nbytes = 0
        shapes = plan.shapes(shape)
        self._geometries = [geometry_argument(shapes[t.source], t.geometry) for t in plan.tables]
        self._shapes = shapes
        self._tilings = plan.tilings(shape, batch_size)
        # One word of faults, then per level how many rows there are and how many were required.
        levels = plan.levels
        self._status = self._empty(1 + 2 * levels, np.int32)
        self._required = [self._status[1 + levels + level :][:1] for level in range(levels)]
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
                self._status[1 + level :][:1],
            )
            for level, capacity in enumerate(self.capacities)
        ]
        self._tables = [self._empty((t.geometry.volume, self.capacities[t.target]), np.int32) for t in plan.tables]
        self._input = self._empty((self.capacities[0], plan.input_width), plan.dtype)
        self.features = self._feature_buffers()
        if plan.algorithm == "native":
            self._pairs = [PairLists(table.shape[0], table.shape[1]) for table in self._tables]
            self.nbytes += sum(2 * pairs.in_rows.nbytes + pairs.counts.nbytes for pairs in self._pairs)
            self._sums = self._empty(max(buffer.size for buffer in self.features), np.float32)
        # Pinned, so that the copy back does not hold up the host.
        self._pinned = cupy.cuda.alloc_pinned_memory(self._status.nbytes)
        self._host_status = np.frombuffer(self._pinned, dtype=np.int32, count=self._status.size)
        self._plan_copies()
        half = int(plan.dtype == np.float16)
        self._load_frame = [find_function(KERNEL_FRAME, "load_frame", HALF_IN=i, HALF_OUT=half) for i in (0, 1)]
        self._store_results = find_function(KERNEL_FRAME, "store_results", HALF_IN=0, HALF_OUT=half)
        first = self.sites[0]
        self._load_arguments = kernel_arguments(
            (
                geometry_argument(shape),
                first.sites,
                first.keys,
                self._input,
                plan.input_width,
                first.count,
                self._status,
            )
        )
        self._graph = self.capture()

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

    def capture(self, *, convolutions: bool = True) -> Any:
        """The pass (or its rulebooks alone) as a CUDA graph over the inputs that ``load`` puts in place."""
        import cupy

        main, *others = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
        cupy.cuda.get_current_stream().synchronize()  # buffers may still be in use by work queued there
        # A first run outside the capture loads the kernels, which a capture does not allow; it sees no rows.
        self._status.data.memset_async(0, self._status.nbytes, main)
        self._run_kernels(main, others, convolutions)
        main.synchronize()
        main.begin_capture()
        self._run_kernels(main, others, convolutions)
        return main.end_capture()

    def _run_kernels(self, main: Any, others: Sequence[Any], convolutions: bool) -> None:
        """Convolutions on ``main``; sites on one of the others and tables on the other, each as soon as it can."""
        import cupy

        def follow(waiting: Any, stream: Any) -> None:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(stream)
            waiting.wait_event(event)

        sites, tables = others
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
                with main:
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
        launch_emit(source, geometry, tiling, *counts, target, target.count, self._required[table.target])
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
        inputs = self.features[i - 1] if i else self._input
        residual = None if layer.residual is None else self.features[layer.residual]
        common = (inputs, self.plan.weights[i], self.plan.biases[i], residual, self.features[i])
        if self.plan.algorithm == "native":
            sums = self._sums[: self.features[i].size].reshape(self.features[i].shape)
            launch_native(*common, self._pairs[table], sums, level.count, layer.relu)
        else:
            tile = fitting_tiles(self.plan.widths[i], layer.geometry.volume, inputs.shape[1], inputs.dtype)[0]
            launch_implicit_gemm(*common, self._tables[table], level.count, level.limit, layer.relu, tile)

    def run(self, indices: Any, features: Any, *, copy: bool) -> tuple[int, list[int], dict[tuple[str, int], Any]]:
        """One pass over contiguous, aligned arrays of at most ``capacities[0]`` rows; waits for it.

        Returns the fault bits, the sites that each level required, and the arrays ``("features", layer)`` and
        ``("sites", level)`` of the outputs with rows up to the capacity: copies, or with ``copy=False`` the buffers.
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        self.load(indices, features)
        self._graph.launch(stream)
        results = self._copy_results() if copy else self._results
        self._status.data.copy_to_host_async(self._host_status.ctypes.data, self._status.nbytes, stream)
        stream.synchronize()
        levels = self.plan.levels
        required = [len(indices), *(int(v) for v in self._host_status[2 + levels : 1 + 2 * levels])]
        return int(self._host_status[0]), required, results

    def load(self, indices: Any, features: Any) -> None:
        """Put a frame in place."""
        import cupy

        self._status.data.memset_async(0, self._status.nbytes, cupy.cuda.get_current_stream())
        n, channels = features.shape
        grid = (blocks(n * self.plan.input_width),)
        arguments = (indices, features, np.int32(n), np.int32(channels), *self._load_arguments)
        self._load_frame[features.dtype == np.float16](grid, (THREADS,), arguments)

    def _plan_copies(self) -> None:
        """Lay out the results of a pass, features and sites, in one allocation."""
        levels = {i: self.plan.tables[self.plan.table_of[i]].target for i in self.plan.outputs}
        buffers = {("features", i): (self.features[i], self.sites[level].count) for i, level in levels.items()}
        buffers |= {("sites", level): (self.sites[level].sites, self.sites[level].count) for level in levels.values()}
        self._places: dict[tuple[str, int], int] = {}
        self._arena_bytes = 0
        for key, (buffer, _) in buffers.items():
            self._places[key] = self._arena_bytes
            self._arena_bytes += -(-buffer.nbytes // 256) * 256
        self._results = {key: buffer for key, (buffer, _) in buffers.items()}
        self._copies = []
        keys = list(buffers)
        for some in (keys[first : first + _COPIES] for first in range(0, len(keys), _COPIES)):
            argument = np.zeros((), dtype=_COPIES_ARGUMENT)
            for slot, key in enumerate(some):
                buffer, count = buffers[key]
                argument["from"][slot], argument["to"][slot] = buffer.data.ptr, self._places[key]
                argument["count"][slot] = count.data.ptr
                argument["words"][slot] = buffer.shape[1] * buffer.itemsize // 16
            words = max(buffers[key][0].nbytes // 16 for key in some)
            self._copies.append((argument, (blocks(words, 4 * THREADS), len(some))))

    def _copy_results(self) -> dict[tuple[str, int], Any]:
        """Queue the copies of all results, whose sizes only the device knows yet."""
        import cupy

        arena = cupy.empty(self._arena_bytes, dtype=cupy.uint8)
        for relative, grid in self._copies:
            argument = relative.copy()
            argument["to"] += np.uint64(arena.data.ptr)
            self._store_results(grid, (THREADS,), (argument,))
        return {
            key: arena[self._places[key] :][: buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            for key, buffer in self._results.items()
        }
