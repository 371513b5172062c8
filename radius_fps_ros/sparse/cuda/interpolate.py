"""Trilinear interpolation over active sites on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..geometry import Triple
from .kernels import KERNEL_INTERPOLATE, blocks, geometry_argument, launch
from .rulebook import sort_sites


def interpolate(
    features: Any, indices: Any, spatial_shape: Triple, batch_size: int, positions: Any, batch_index: Any
) -> Any:
    """Features (M, C) float32 at continuous site positions (M, 3) (z, y, x); see ``gather_features``."""
    import cupy

    source = sort_sites(indices, spatial_shape)
    out = cupy.empty((len(positions), features.shape[1]), dtype=cupy.float32)
    launch(
        KERNEL_INTERPOLATE,
        "interpolate",
        (blocks(32 * len(positions)),),
        (
            cupy.ascontiguousarray(features),
            features.shape[1],
            source.keys,
            source.order,
            source.limit,
            geometry_argument(spatial_shape),
            batch_size,
            cupy.ascontiguousarray(positions, dtype=cupy.float32),
            cupy.ascontiguousarray(batch_index, dtype=cupy.int32),
            len(positions),
            out,
        ),
        HALF=int(features.dtype == np.float16),
    )
    return out
