"""Everything one pass of a network needs on the device, with fixed capacities, captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..geometry import ConvGeometry, Triple
from ..network import LayerSpec
from .convolve import (
    PairLists,
    choose_algorithm,
    choose_tile,
    input_width,
    launch_implicit_gemm,
    launch_native,
    output_width,
    pack_weight,
)
from .kernels import KERNEL_LOAD_FEATURES, blocks, geometry_argument, launch
from .rulebook import (
    MAX_TILES,
    TILE_GROUP,
    SiteList,
    Tiling,
    encode,
    launch_count,
    launch_emit,
    launch_neighbours,
    output_sites,
)


@dataclass(frozen=True)
class _Table:
    """A neighbour table: which levels it joins, and by which convolution."""

    source: int
    target: int
    geometry: ConvGeometry


class Plan:
    """What does not depend on the frame: levels of sites, tables between them, weights on the device.

    Level 0 holds the input sites; every regular convolution opens a level. ``algorithm`` is the one that runs.
    """

    def __init__(self, layers: Sequence[LayerSpec], dtype: str, algo: str) -> None:
        import cupy

        self.layers = tuple(layers)
        self.dtype = np.dtype(dtype)
        self.algorithm = choose_algorithm(algo, max(layer.geometry.volume for layer in layers))
        self.levels = 1
        self.tables: list[_Table] = []
        self.table_of: list[int] = []
        by_key: dict[str, int] = {}
        level = 0
        for layer in self.layers:
            target = level if layer.geometry.subm else self.levels
            table = _Table(level, target, layer.geometry)
            if layer.indice_key not in by_key:
                by_key[layer.indice_key] = len(self.tables)
                self.tables.append(table)
            known = self.tables[by_key[layer.indice_key]]
            if (known.source, known.geometry) != (table.source, table.geometry):
                raise InputError(
                    f"{layer.name}: indice_key {layer.indice_key!r} already belongs to {known.geometry} on other "
                    f"active sites or of another shape, not to {layer.geometry}"
                )
            self.table_of.append(by_key[layer.indice_key])
            self.levels, level = max(self.levels, target + 1), target
        # What reads a layer last: its buffer is free afterwards. Outputs are read when all is done.
        self.last_reader = [len(layers) if layer.output is not None else i + 1 for i, layer in enumerate(layers)]
        for i, layer in enumerate(self.layers):
            if layer.residual is not None:
                self.last_reader[layer.residual] = max(self.last_reader[layer.residual], i)
        self.input_width = input_width(layers[0].in_channels, self.dtype)
        self.widths = [output_width(layer.out_channels) for layer in layers]
        self.weights = []
        self.biases = []
        for layer, in_width, width in zip(self.layers, [self.input_width, *self.widths], self.widths, strict=False):
            bias = cupy.zeros(width, dtype=cupy.float32)
            bias[: layer.out_channels] = cupy.asarray(layer.bias)
            self.biases.append(bias)
            self.weights.append(self._weight(layer, in_width, width))

    def _weight(self, layer: LayerSpec, in_width: int, width: int) -> Any:
        import cupy

        if self.algorithm == "implicit_gemm":
            return pack_weight(cupy.asarray(layer.weight), in_width, width, self.dtype)
        padded = np.zeros((layer.geometry.volume, in_width, width), dtype=self.dtype)
        padded[:, : layer.in_channels, : layer.out_channels] = layer.weight
        return cupy.asarray(padded)

    def shapes(self, shape: Triple) -> list[Triple]:
        """Spatial shape of every level for an input of ``shape``."""
        found = [shape]
        for table in self.tables:
            if table.target == len(found):
                found.append(table.geometry.output_shape(found[table.source]))
        return found

    def tilings(self, shape: Triple, batch_size: int) -> dict[int, Tiling]:
        """How the output sites of each level that a regular convolution opens are dealt to blocks.

        Raises:
            InputError: there are too many cells to visit them all in every frame.
        """
        shapes = self.shapes(shape)
        found = {t.target: Tiling.plan(shapes[t.target], batch_size) for t in self.tables if t.target != t.source}
        for level, tiling in found.items():
            if tiling.tiles > MAX_TILES:
                raise InputError(
                    f"spatial_shape {shapes[level]} with batch_size {batch_size} has too many cells for a network "
                    f"on CUDA; at most about 2**38 are allowed"
                )
        return found

    def measure(self, source: SiteList, shape: Triple, batch_size: int) -> list[int]:
        """Number of sites of every level for the given input sites; waits for the device."""
        sizes, shapes = [source.limit], self.shapes(shape)
        for table in self.tables:
            if table.target == len(sizes):
                source = output_sites(source, shapes[table.source], batch_size, table.geometry)
                sizes.append(source.limit)
        return sizes


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
        # One word of faults, then per level how many rows there are and how many were required, then the group
        # counts: all that must be zero when a pass begins.
        groups = {level: -(-tiling.tiles // TILE_GROUP) for level, tiling in self._tilings.items()}
        levels = plan.levels
        self._zeroed = self._empty(1 + 2 * levels + sum(groups.values()), np.int32)
        self._status = self._zeroed[: 1 + 2 * levels]
        self._required = [self._zeroed[1 + levels + level :][:1] for level in range(levels)]
        self._group_counts, first = {}, 1 + 2 * levels
        for level, size in groups.items():
            self._group_counts[level] = self._zeroed[first : first + size]
            first += size
        self._tile_counts = {level: self._empty(tiling.tiles, np.int32) for level, tiling in self._tilings.items()}
        self.sites = [
            SiteList(
                self._empty((capacity, 4), np.int32),
                self._empty(capacity, np.int64),
                capacity,
                self._zeroed[1 + level :][:1],
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

        main, side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()  # buffers may still be in use by work queued there
        # A first run outside the capture loads the kernels, which a capture does not allow; it sees no rows.
        self._zeroed.data.memset_async(0, self._zeroed.nbytes, main)
        self._run_kernels(main, side, convolutions)
        main.synchronize()
        main.begin_capture()
        self._run_kernels(main, side, convolutions)
        return main.end_capture()

    def _run_kernels(self, main: Any, side: Any, convolutions: bool) -> None:
        """Rulebooks on ``side``, convolutions on ``main``, each of which waits for its table alone."""
        import cupy

        def signal(waiting: Any, stream: Any) -> None:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(stream)
            waiting.wait_event(event)

        signal(side, main)
        built = -1
        for i in range(len(self.plan.layers)):
            with side:
                if self.plan.table_of[i] > built:
                    built = self.plan.table_of[i]
                    self._build_table(built)
                    signal(main, side)
            if convolutions:
                with main:
                    self._convolve(i)

    def _build_table(self, index: int) -> None:
        table = self.plan.tables[index]
        source, target = self.sites[table.source], self.sites[table.target]
        if table.target != table.source:
            counts = self._tile_counts[table.target], self._group_counts[table.target]
            tiling, geometry = self._tilings[table.target], self._geometries[index]
            launch_count(source, geometry, tiling, *counts)
            launch_emit(source, geometry, tiling, *counts, target, target.count, self._required[table.target])
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
            tile = choose_tile(level.limit, self.plan.widths[i], layer.geometry.volume)
            launch_implicit_gemm(*common, self._tables[table], level.count, level.limit, layer.relu, tile)

    def load(self, indices: Any, features: Any) -> None:
        """Put a frame in place: contiguous, aligned arrays of at most ``capacities[0]`` rows."""
        import cupy

        self._zeroed.data.memset_async(0, self._zeroed.nbytes, cupy.cuda.get_current_stream())
        level, faults = self.sites[0], self._status[:1]
        encode(indices, self.shape, level.keys, faults, level.sites, level.count)
        n, channels = features.shape
        launch(
            KERNEL_LOAD_FEATURES,
            "load_features",
            (blocks(n * self.plan.input_width),),
            (features, n, channels, self._input, self.plan.input_width, faults),
            HALF_IN=int(features.dtype == np.float16),
            HALF_OUT=int(self.plan.dtype == np.float16),
        )

    def run(self, indices: Any, features: Any) -> tuple[int, list[int]]:
        """One pass; waits for it. Returns the fault bits and the sites that each level required."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        self.load(indices, features)
        self._graph.launch(stream)
        self._status.data.copy_to_host_async(self._host_status.ctypes.data, self._status.nbytes, stream)
        stream.synchronize()
        levels = self.plan.levels
        required = [len(indices), *(int(v) for v in self._host_status[2 + levels : 1 + 2 * levels])]
        return int(self._host_status[0]), required
