"""Points to a sparse tensor of voxels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import array_module, is_cupy_array, select_backend
from ..errors import InputError
from .config import BackboneConfig
from .sites import check_volume
from .tensor import SparseTensor
from .voxel_grid import VoxelGrid


def voxelize(
    points: Any,
    features: Any,
    *,
    point_cloud_range: Sequence[float],
    voxel_size: Sequence[float],
    max_voxels: int = 160_000,
    max_points_per_voxel: int = 10,
    backend: str = "auto",
) -> SparseTensor:
    """Average the features of the points in each voxel; sites come sorted by (batch, z, y, x).

    The range is half-open: a point on the maximum is outside. Positions are computed in float32, and a point inside the
    range never lands outside the shape, however its quotient rounds. Points whose coordinates are not finite or lie
    outside the range are left out. Voxels beyond ``max_voxels`` (those whose first point comes last) and points beyond
    ``max_points_per_voxel`` (by row) are left out too; ``stats`` counts all of them.

    Args:
        points: (N, 3) x, y, z in metres; or a list of such arrays, one a sample of the batch.
        features: (N, C) to average, often x, y, z, intensity; a list when ``points`` is one.
        point_cloud_range: (x0, y0, z0, x1, y1, z1) in metres.
        voxel_size: (vx, vy, vz) in metres.
        max_voxels: cap of voxels for each sample.
        max_points_per_voxel: cap of points for each voxel.
        backend: ``"auto" | "cpu" | "cuda"``; arrays come back in the library they came from.

    Returns:
        Tensor with float32 features, shape (ceil((z1 - z0) / vz) + 1, ceil((y1 - y0) / vy), ceil((x1 - x0) / vx)) and
        ``stats``: points, invalid_points, out_of_range_points, voxels, dropped_voxels, over_voxel_cap_points,
        over_point_cap_points.

    Raises:
        InputError: malformed arrays or parameters, a range of more than 2**62 voxels, or a feature inside the range
            that is not finite.
    """
    grid = VoxelGrid.make(point_cloud_range, voxel_size)
    for name, cap in (("max_voxels", max_voxels), ("max_points_per_voxel", max_points_per_voxel)):
        if cap < 1:
            raise InputError(f"{name} must be at least 1, not {cap}")
    if isinstance(points, (list, tuple)) != isinstance(features, (list, tuple)):
        raise InputError("points and features must both be arrays, or both be lists with one array a sample")
    clouds = list(points) if isinstance(points, (list, tuple)) else [points]
    values = list(features) if isinstance(features, (list, tuple)) else [features]
    if not clouds or len(clouds) != len(values):
        raise InputError(f"got {len(clouds)} arrays of points and {len(values)} of features; give one of each a sample")
    for cloud, value in zip(clouds, values, strict=True):
        _check(cloud, value)
    check_volume(grid.spatial_shape, len(clouds))
    choice = select_backend(backend, *clouds, *values)
    starts = [0]
    for cloud in clouds:
        starts.append(starts[-1] + len(cloud))
    xp = array_module(*clouds)
    stacked = [
        xp.ascontiguousarray(arrays[0] if len(arrays) == 1 else xp.concatenate(arrays), dtype=xp.float32)
        for arrays in (clouds, values)
    ]
    if choice.name == "cpu":
        from . import cpu

        made = cpu.voxelize(stacked[0], stacked[1], tuple(starts), grid, max_voxels, max_points_per_voxel)
    else:
        import cupy

        from . import cuda

        moved = [cupy.asarray(array) for array in stacked]
        means, indices, counts = cuda.voxelize(
            moved[0], moved[1], tuple(starts), grid, max_voxels, max_points_per_voxel
        )
        made = (means, indices, counts) if xp is cupy else (cupy.asnumpy(means), cupy.asnumpy(indices), counts)
    stats = {**made[2], "backend": choice.name}
    return SparseTensor(made[0], made[1], grid.spatial_shape, len(clouds), voxel_grid=grid, stats=stats, check=False)


def voxelize_for(config: BackboneConfig, points: Any, features: Any, *, backend: str = "auto") -> SparseTensor:
    """`voxelize` with the range, voxel size and caps of ``config``; the other arguments and the errors are the same."""
    return voxelize(
        points,
        features,
        point_cloud_range=config.point_cloud_range,
        voxel_size=config.voxel_size,
        max_voxels=config.max_voxels,
        max_points_per_voxel=config.max_points_per_voxel,
        backend=backend,
    )


def _check(points: Any, features: Any) -> None:
    for name, array, columns in (("points", points, "3"), ("features", features, "C")):
        kind = getattr(getattr(array, "dtype", None), "kind", None)
        if kind != "f" or array.ndim != 2 or (columns == "3" and array.shape[1] != 3) or array.shape[1] == 0:
            found = f"{getattr(array, 'dtype', type(array).__name__)} of shape {getattr(array, 'shape', '?')}"
            raise InputError(f"{name} must be a floating-point array of shape (N, {columns}), not {found}")
    if len(points) != len(features):
        raise InputError(f"points have {len(points)} rows and features {len(features)}; they must agree")
    if is_cupy_array(points) != is_cupy_array(features):
        raise InputError("points and features must come from the same array library (both NumPy or both CuPy)")
    if len(points) >= np.iinfo(np.int32).max:
        raise InputError(f"a sample has {len(points)} points; fewer than 2**31 are allowed")
