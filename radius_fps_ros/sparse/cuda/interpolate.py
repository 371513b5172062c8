"""Trilinear interpolation over active sites on CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..geometry import Triple
from ..voxel_grid import VoxelGrid
from .kernels import KERNEL_INTERPOLATE, blocks, launch
from .rulebook import SiteList, sort_sites

MAX_LEVELS = 8  # of interpolate.cu
_LEVEL = np.dtype(
    [
        *((name, np.uint64) for name in ("features", "keys", "order", "count")),
        *((name, np.int32) for name in ("limit", "pitch", "channels", "batch_size")),
        ("shape", np.int32, 3),
        ("shift", np.float32, 3),
        ("scale", np.float32, 3),
    ],
    align=True,
)
_LEVELS = np.dtype([("level", _LEVEL, MAX_LEVELS), ("minimum", np.float32, 3), ("size", np.float32, 3)], align=True)


@dataclass(frozen=True)
class Level:
    """Features that can be interpolated.

    Attributes:
        features: (rows, pitch) float16 or float32, of which the first ``channels`` count.
        source: the sorted sites that the rows belong to.
        shape, scale, shift: as of a `SparseTensor`.
    """

    features: Any
    channels: int
    source: SiteList
    shape: Triple
    batch_size: int = 1
    scale: Triple = (1, 1, 1)
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def argument(self) -> Any:
        """The ``Level`` of interpolate.cu, to be passed by value."""
        source = self.source
        arrays = (self.features, source.keys, source.order, source.count)
        pointers = [0 if array is None else array.data.ptr for array in arrays]
        sizes = (source.limit, self.features.shape[1], self.channels, self.batch_size)
        return np.array((*pointers, *sizes, self.shape, self.shift, self.scale), dtype=_LEVEL)


def interpolate(
    features: Any, indices: Any, spatial_shape: Triple, batch_size: int, positions: Any, batch_index: Any
) -> Any:
    """Features (M, C) float32 at continuous site positions (M, 3) (z, y, x); see ``gather_features``."""
    import cupy

    channels = features.shape[1]
    level = Level(
        cupy.ascontiguousarray(features), channels, sort_sites(indices, spatial_shape), spatial_shape, batch_size
    )
    out = cupy.empty((len(positions), channels), dtype=cupy.float32)
    launch(
        KERNEL_INTERPOLATE,
        "interpolate",
        (blocks(32 * len(positions)),),
        (
            level.argument(),
            cupy.ascontiguousarray(positions, dtype=cupy.float32),
            cupy.ascontiguousarray(batch_index, dtype=cupy.int32),
            len(positions),
            out,
        ),
        HALF=int(features.dtype == np.float16),
    )
    return out


class SampleGather:
    """Records of samples, x, y, z and features of several levels, in one launch without a wait.

    Attributes:
        width: floats of a record.
    """

    def __init__(self, levels: Sequence[Level], grid: VoxelGrid) -> None:
        """``levels``, all of one type, in the order in which their channels are laid out; their arrays must live on."""
        self.width = 3 + sum(level.channels for level in levels)
        self._levels = tuple(levels)
        self._half = int(levels[0].features.dtype == np.float16)
        self._argument = np.zeros((), dtype=_LEVELS)
        for i, level in enumerate(levels):
            self._argument["level"][i] = level.argument()
        self._argument["minimum"], self._argument["size"] = grid.minimum, grid.voxel_size

    def enqueue(self, points: Any, samples: Any, records: Any) -> None:
        """Queue it on the current stream.

        Args:
            points: (N, 3) float32.
            samples: (M,) int64 rows of ``points``; the record of any other number is zero.
            records: (M, width) float32, written.
        """
        launch(
            KERNEL_INTERPOLATE,
            "gather_samples",
            (blocks(32 * len(samples)), len(self._levels)),
            (self._argument, points, len(points), samples, len(samples), records, self.width),
            HALF=self._half,
        )
