"""The configuration of a backbone: a YAML file or the published defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..errors import InputError
from .voxel_grid import VoxelGrid


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
    """Input voxels and network size; the defaults are the published CenterPoint configuration for nuScenes.

    Attributes:
        point_cloud_range: (x0, y0, z0, x1, y1, z1) in metres.
        voxel_size: (vx, vy, vz) in metres.
        max_voxels, max_points_per_voxel: caps of the voxelization.
        fields: the point fields that become input features, in order.
        channels: channels of the levels at strides 1, 2, 4 and 8.
        blocks: residual blocks of these levels.
        out_channels: channels of the output that is compressed along z.
    """

    point_cloud_range: tuple[float, ...] = (-54.0, -54.0, -5.0, 54.0, 54.0, 3.0)
    voxel_size: tuple[float, ...] = (0.075, 0.075, 0.2)
    max_voxels: int = 160_000
    max_points_per_voxel: int = 10
    fields: tuple[str, ...] = ("x", "y", "z", "intensity")
    channels: tuple[int, ...] = (16, 32, 64, 128)
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    out_channels: int = 128

    def __post_init__(self) -> None:
        VoxelGrid.make(self.point_cloud_range, self.voxel_size)
        _counts("channels", self.channels, 4, minimum=1)
        _counts("blocks", self.blocks, 4, minimum=0)
        _counts("out_channels, max_voxels, max_points_per_voxel", self._caps(), 3, minimum=1)
        if not self.fields or not all(isinstance(name, str) for name in self.fields):
            raise InputError(f"fields must name at least one point field, not {list(self.fields)}")

    def _caps(self) -> tuple[int, int, int]:
        return self.out_channels, self.max_voxels, self.max_points_per_voxel


def _counts(name: str, values: tuple[int, ...], length: int, *, minimum: int) -> None:
    if len(values) != length or any(not isinstance(v, int) or isinstance(v, bool) or v < minimum for v in values):
        raise InputError(f"{name} must be {length} integers of at least {minimum}, not {list(values)}")


def load_config(path: str | Path) -> BackboneConfig:
    """Read a YAML file whose keys are the attributes of ``BackboneConfig``; what it leaves out keeps the default.

    Raises:
        InputError: the file cannot be read, is not a mapping, or has an unknown key or a value of another kind.
    """
    import yaml  # type: ignore[import-untyped]

    try:
        loaded = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot read the configuration {path}: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise InputError(f"the configuration {path} must be a mapping of keys to values")
    defaults = {field.name: field.default for field in dataclasses.fields(BackboneConfig)}
    values: dict[str, Any] = {}
    for key, value in loaded.items():
        if key not in defaults:
            raise InputError(f"the configuration {path} has the unknown key {key!r}; known are {', '.join(defaults)}")
        if isinstance(defaults[key], tuple) != isinstance(value, list):
            kind = "a list" if isinstance(defaults[key], tuple) else "one number"
            raise InputError(f"the configuration {path} must give {key} as {kind}, not {value!r}")
        values[key] = tuple(value) if isinstance(value, list) else value
    try:
        return BackboneConfig(**values)
    except InputError as error:
        raise InputError(f"the configuration {path} is not usable: {error}") from error
