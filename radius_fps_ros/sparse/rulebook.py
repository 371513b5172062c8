"""Rulebooks: which input row contributes to which output row through which kernel offset.

Graham et al., "3D Semantic Segmentation with Submanifold Sparse Convolutional Networks", CVPR 2018, section 3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..device import array_module
from .backends import backend_of
from .geometry import ConvGeometry, Triple, triple
from .sites import check_sites, check_volume


@dataclass(frozen=True, eq=False)
class Rulebook:
    """The pairs of one convolution, held output-stationary.

    Attributes:
        geometry: the convolution's shape.
        in_indices: (N_in, 4) int32 active sites (batch, z, y, x) of the input, in the order given.
        in_spatial_shape: spatial shape of the input.
        out_indices: (N_out, 4) int32 active sites of the output. Submanifold: ``in_indices`` itself; regular: sorted by
            (batch, z, y, x).
        out_spatial_shape: spatial shape of the output.
        neighbours: (K, N_out) int32; the input row that offset k brings to an output row, or -1.
    """

    geometry: ConvGeometry
    in_indices: Any
    in_spatial_shape: Triple
    out_indices: Any
    out_spatial_shape: Triple
    neighbours: Any

    @functools.cached_property
    def indice_num(self) -> Any:
        """(K,) int32 number of pairs of each offset."""
        return (self.neighbours >= 0).sum(axis=1).astype("int32")

    @functools.cached_property
    def indice_pairs(self) -> Any:
        """(2, K, N) int32 pairs (input row, output row) of each offset, ascending by output row, padded with -1.

        N is the number of input rows: one offset brings an input row to one output row at most.
        """
        xp = array_module(self.neighbours)
        volume = self.neighbours.shape[0]
        pairs = xp.full((2, volume, len(self.in_indices)), -1, dtype=xp.int32)
        offset, row = xp.nonzero(self.neighbours >= 0)
        # nonzero() runs row-major, so a pair's place within its offset is its rank minus the offset's first rank.
        first = xp.cumsum(self.indice_num) - self.indice_num
        place = xp.arange(len(offset)) - first[offset]
        pairs[0, offset, place] = self.neighbours[offset, row]
        pairs[1, offset, place] = row
        return pairs

    def inverse(self) -> Rulebook:
        """The rulebook that runs the same pairs backwards: it restores this one's input sites."""
        xp = array_module(self.neighbours)
        swapped = xp.full((self.neighbours.shape[0], len(self.in_indices)), -1, dtype=xp.int32)
        offset, row = xp.nonzero(self.neighbours >= 0)
        swapped[offset, self.neighbours[offset, row]] = row
        return Rulebook(
            self.geometry,
            self.out_indices,
            self.out_spatial_shape,
            self.in_indices,
            self.in_spatial_shape,
            swapped,
        )


def build_rulebook(
    indices: Any,
    spatial_shape: Sequence[int],
    batch_size: int,
    kernel_size: int | Sequence[int] = 3,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] = 1,
    subm: bool = False,
    *,
    grid: Any = None,
) -> Rulebook:
    """Build the rulebook of a convolution over the active sites ``indices``; NumPy runs on the CPU, CuPy on CUDA.

    Args:
        indices: (N, 4) int32 distinct sites (batch, z, y, x).
        spatial_shape: (D, H, W).
        batch_size: number of samples; every batch index is below it.
        kernel_size, stride, padding, dilation: one integer or (z, y, x); see ``ConvGeometry.make``.
        subm: output sites are the input sites (submanifold); otherwise they are wherever an input contributes.
        grid: optional int32 array of at least batch_size * D * H * W elements, all -1, used for look-up and handed
            back all -1. Without it, memory follows the sites and never the volume.

    Raises:
        InputError: malformed sites or geometry, or a grid of the wrong size or type.
    """
    geometry = ConvGeometry.make(kernel_size, stride, padding, dilation, subm=subm)
    shape = triple(spatial_shape, "spatial_shape", minimum=1)
    check_sites(indices, shape, batch_size)
    return dispatch_rulebook(indices, shape, batch_size, geometry, grid)


def dispatch_rulebook(indices: Any, shape: Triple, batch_size: int, geometry: ConvGeometry, grid: Any) -> Rulebook:
    """The backend's ``build_rulebook`` for sites that are already checked."""
    check_volume(geometry.output_shape(shape), batch_size)
    rulebook: Rulebook = backend_of(indices).build_rulebook(indices, shape, batch_size, geometry, grid=grid)
    return rulebook
