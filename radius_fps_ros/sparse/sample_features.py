"""Features of sampled points: interpolation in the levels of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..device import array_module, is_cupy_array
from ..errors import InputError
from .backends import backend_of
from .tensor import SparseTensor


def gather_features(
    maps: Mapping[str, SparseTensor],
    points: Any,
    *,
    levels: Sequence[str] = ("x_conv4",),
    batch_index: Any = None,
) -> Any:
    """Features at ``points``, trilinear over the active sites of each level, levels side by side.

    The weights of the active ones of the eight surrounding sites are scaled to sum to one (the devoxelization of Tang
    et al., "Searching Efficient 3D Architectures with Sparse Point-Voxel Convolution", ECCV 2020); where none is active
    the features are zero. A site lies at the centre of its receptive field.

    Args:
        maps: tensors by level, as the network returns them for a tensor made by ``voxelize``.
        points: (M, 3) x, y, z in metres, in the array library of ``maps``.
        levels: which levels, in the order in which their channels are laid out.
        batch_index: (M,) int32 sample of each point; all 0 when left out.

    Returns:
        (M, sum of the levels' channels) float32.

    Raises:
        InputError: an unknown level, points of another shape or library, or tensors that carry no voxel grid.
    """
    unknown = [level for level in levels if level not in maps]
    if unknown or not levels:
        raise InputError(f"levels must name at least one of {', '.join(maps)}, not {list(levels)}")
    if getattr(points, "ndim", 0) != 2 or points.shape[1] != 3:
        raise InputError(f"points must be an array of shape (M, 3), not {getattr(points, 'shape', points)}")
    xp = array_module(points)
    if batch_index is None:
        batch_index = xp.zeros(len(points), dtype=xp.int32)
    if batch_index.shape != (len(points),):
        raise InputError(f"batch_index must have the shape ({len(points)},), not {batch_index.shape}")
    columns = []
    for level in levels:
        tensor = maps[level]
        if is_cupy_array(tensor.features) != is_cupy_array(points):
            raise InputError("points must come from the array library of the tensors (both NumPy or both CuPy)")
        positions = _site_positions(tensor, points)
        columns.append(
            backend_of(tensor.features).interpolate(
                tensor.features,
                tensor.indices,
                tensor.spatial_shape,
                tensor.batch_size,
                positions,
                xp.ascontiguousarray(batch_index, dtype=xp.int32),
            )
        )
    return columns[0] if len(columns) == 1 else xp.concatenate(columns, axis=1)


def _site_positions(tensor: SparseTensor, points: Any) -> Any:
    """Continuous site indices (M, 3) float32 (z, y, x) of points in metres."""
    grid = _voxel_grid(tensor)
    xp = array_module(points)
    low, size = (xp.asarray(v, dtype=xp.float32) for v in (grid.minimum, grid.voxel_size))
    scale, shift = (xp.asarray(v, dtype=xp.float32) for v in (tensor.scale, tensor.shift))
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is beyond the grid: no site is near
        voxels = (points.astype(xp.float32) - low) / size - xp.float32(0.5)
        return xp.ascontiguousarray((voxels[:, ::-1] - shift) / scale)


def site_centres(tensor: SparseTensor) -> Any:
    """Centres (N, 3) float32 x, y, z in metres of a tensor's active sites.

    Raises:
        InputError: the tensor carries no voxel grid (it was not derived from ``voxelize``).
    """
    grid = _voxel_grid(tensor)
    xp = array_module(tensor.indices)
    scale, shift = (xp.asarray(v, dtype=xp.float32) for v in (tensor.scale, tensor.shift))
    voxels = tensor.indices[:, 1:].astype(xp.float32) * scale + shift + xp.float32(0.5)
    low, size = (xp.asarray(v, dtype=xp.float32) for v in (grid.minimum, grid.voxel_size))
    return xp.ascontiguousarray(voxels[:, ::-1]) * size + low


def _voxel_grid(tensor: SparseTensor) -> Any:
    if tensor.voxel_grid is None:
        raise InputError("the tensor carries no voxel grid; make the network's input with voxelize")
    return tensor.voxel_grid
