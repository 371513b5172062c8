"""The voxel grid: how metres become voxels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from .geometry import Triple

Metres3 = tuple[float, float, float]


def _cells(low: float, high: float, size: float) -> int:
    """Voxels that cover [low, high): a quotient that is whole but for rounding stays whole (108 / 0.075 = 1440)."""
    cells = (high - low) / size
    nearest = round(cells)
    return nearest if abs(cells - nearest) < 1e-4 else math.ceil(cells)


def _numbers(values: Sequence[float]) -> list[float]:
    """The values as floats; empty, which no check lets pass, when one of them is no number."""
    try:
        return [float(v) for v in values]
    except (TypeError, ValueError):
        return []


@dataclass(frozen=True)
class VoxelGrid:
    """A half-open range, cut into voxels; all in metres and (x, y, z) order.

    Attributes:
        minimum, maximum: opposite corners of the range; the maximum is outside.
        voxel_size: edges of a voxel.
    """

    minimum: Metres3
    maximum: Metres3
    voxel_size: Metres3

    @classmethod
    def make(cls, point_cloud_range: Sequence[float], voxel_size: Sequence[float]) -> VoxelGrid:
        """Check ``point_cloud_range`` (x0, y0, z0, x1, y1, z1) and ``voxel_size`` (vx, vy, vz), in metres.

        Raises:
            InputError: wrong count, not finite, an empty range, or a voxel size that is not positive.
        """
        bounds, size = _numbers(point_cloud_range), _numbers(voxel_size)
        if len(bounds) != 6 or not all(map(math.isfinite, bounds)) or any(bounds[i] >= bounds[i + 3] for i in range(3)):
            raise InputError(
                f"point_cloud_range must be (x0, y0, z0, x1, y1, z1) with each minimum below its maximum, "
                f"not {tuple(point_cloud_range)}"
            )
        if len(size) != 3 or not all(math.isfinite(v) and v > 0 for v in size):
            raise InputError(f"voxel_size must be three positive lengths (vx, vy, vz), not {tuple(voxel_size)}")
        grid = cls((bounds[0], bounds[1], bounds[2]), (bounds[3], bounds[4], bounds[5]), (size[0], size[1], size[2]))
        if max(grid.cells) >= 2**24:
            raise InputError(f"the range holds {grid.cells} voxels along x, y, z; at most 2**24 an axis are allowed")
        return grid

    @property
    def cells(self) -> Triple:
        """Voxels along (x, y, z)."""
        axes = zip(self.minimum, self.maximum, self.voxel_size, strict=True)
        x, y, z = (_cells(low, high, size) for low, high, size in axes)
        return x, y, z

    @property
    def spatial_shape(self) -> Triple:
        """(D, H, W); one layer is added on top, as the published configurations do (41 for 40 layers)."""
        x, y, z = self.cells
        return z + 1, y, x


def bad_features(not_finite: int, inside: int) -> str:
    """The sentence for features that cannot be averaged."""
    return (
        f"features hold NaN or infinite values in {not_finite} of the {inside} points inside the range; "
        f"only finite features are allowed"
    )
