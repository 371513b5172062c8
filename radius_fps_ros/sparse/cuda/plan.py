"""What one network needs on the device whatever the frame: its levels of sites, its tables, its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..geometry import ConvGeometry, Triple
from ..network import LayerSpec
from ..tensor import compose_lattice
from .convolve import choose_algorithm, input_width, load_implicit_gemm, output_width, pack_weight
from .rulebook import MAX_TILES, SiteList, Tiling, output_sites

Lattice = list[tuple[int, Triple, Triple, tuple[float, float, float]]]


@dataclass(frozen=True)
class Table:
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
        runs = {
            choose_algorithm(algo, layer.geometry.volume, layer.in_channels, layer.out_channels, dtype)
            for layer in layers
        }
        self.algorithm = "native" if "native" in runs else "implicit_gemm"
        self.levels = 1
        self.tables: list[Table] = []
        self.table_of: list[int] = []
        by_key: dict[str, int] = {}
        level = 0
        for layer in self.layers:
            target = level if layer.geometry.subm else self.levels
            table = Table(level, target, layer.geometry)
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
        self._lattices: dict[Any, Lattice] = {}
        self.outputs = [i for i, layer in enumerate(self.layers) if layer.output is not None]
        self.input_width = input_width(layers[0].in_channels, self.dtype)
        self.widths = [output_width(layer.out_channels) for layer in layers]
        self.weights = []
        self.biases = []
        for layer, in_width, width in zip(self.layers, [self.input_width, *self.widths], self.widths, strict=False):
            bias = cupy.zeros(width, dtype=cupy.float32)
            bias[: layer.out_channels] = cupy.asarray(layer.bias)
            self.biases.append(bias)
            self.weights.append(self._weight(layer, in_width, width))
        cupy.cuda.get_current_stream().synchronize()  # passes may run on streams that do not wait for this one

    def _weight(self, layer: LayerSpec, in_width: int, width: int) -> Any:
        import cupy

        if self.algorithm == "implicit_gemm":
            load_implicit_gemm(layer.geometry.volume, in_width, width, self.dtype)
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

    def lattice(self, shape: Triple, scale: Triple, shift: tuple[float, float, float]) -> Lattice:
        """Level, spatial shape, scale and shift of every output; worked out once for an input."""
        key = (shape, scale, shift)
        if key not in self._lattices:
            found: Lattice = []
            for i, layer in enumerate(self.layers):
                shape = layer.geometry.output_shape(shape)
                scale, shift = compose_lattice(scale, shift, layer.geometry)
                if layer.output is not None:
                    found.append((self.tables[self.table_of[i]].target, shape, scale, shift))
            self._lattices = {key: found}
        return self._lattices[key]

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
