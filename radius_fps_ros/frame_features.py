"""Voxel features of one frame's samples, without ROS: voxelize, backbone, gather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .clouds import Cloud
from .errors import InputError
from .faults import faults_as_sentences
from .share import share_file
from .sparse import (
    BackboneConfig,
    SparseTensor,
    VoxelResBackBone8x,
    gather_features,
    input_features,
    load_config,
    site_centres,
    voxelize,
)
from .stages import stage

NETWORKS = ("full", "light")
FEATURE_LEVELS = ("x_conv1", "x_conv2", "x_conv3", "x_conv4", "encoded")


@dataclass(frozen=True)
class FrameFeatures:
    """Features of one frame.

    Attributes:
        rows: (M, 3 + C) float32: x, y, z of the samples in sampling order [m], and their features, interpolated; zero
            where no active site is near.
        last_stage: gives the network's ``encoded`` tensor, in the backend's array library, until the next frame.
        voxels, dropped_voxels: active input sites, and those beyond the cap.
        recaptures: how often the CUDA pass had to grow its buffers so far.
        milliseconds: per stage, in the order in which they ran.
    """

    rows: npt.NDArray[np.float32]
    last_stage: Callable[[], SparseTensor]
    voxels: int
    dropped_voxels: int
    recaptures: int
    milliseconds: dict[str, float]

    @property
    def channels(self) -> int:
        """C, features a sample."""
        return int(self.rows.shape[1]) - 3

    def records(self) -> npt.NDArray[np.void]:
        """(M,) records x, y, z [m] and ``features`` of the samples, a view of ``rows``."""
        return _as_records(self.rows)

    def voxel_records(self) -> npt.NDArray[np.void]:
        """(V,) records x, y, z [m] and ``features`` of the active sites of the last stage."""
        tensor = self.last_stage()
        return _as_records(_side_by_side(_on_host(site_centres(tensor)), _on_host(tensor.features)))


class FeatureExtractor:
    """Runs the backbone on a frame's used points and gathers features at its samples. One call at a time."""

    def __init__(
        self,
        config: BackboneConfig,
        *,
        weights: Path | None = None,
        seed: int = 0,
        dtype: str = "float32",
        backend: str = "auto",
        levels: Sequence[str] = ("x_conv4",),
    ) -> None:
        """See `VoxelResBackBone8x` for the arguments and errors; ``levels`` as in `gather_features`."""
        self.config = config
        self.levels = tuple(levels)
        self.network = VoxelResBackBone8x.from_config(config, weights=weights, seed=seed, dtype=dtype, backend=backend)

    def warm_up(self) -> None:
        """Compile everything, so that the first frame is not slowed by it."""
        cloud = _example_cloud(self.config)
        self(cloud, None, np.arange(0, len(cloud), 10))

    def __call__(
        self, cloud: Cloud, rows: npt.NDArray[np.int64] | None, samples: npt.NDArray[np.int64]
    ) -> FrameFeatures:
        """Features at rows ``samples`` (M,) of a cloud whose rows ``rows`` (``None``: all) may be used.

        Raises:
            InputError: the cloud lacks a field that the network reads, or holds features that are not finite.
            BackendError: the device reported a fault.
        """
        with faults_as_sentences(f"computing features of {len(cloud)} points"):
            return self._extract(cloud, rows, samples)

    def _extract(
        self, cloud: Cloud, rows: npt.NDArray[np.int64] | None, samples: npt.NDArray[np.int64]
    ) -> FrameFeatures:
        milliseconds: dict[str, float] = {}
        with stage(milliseconds, "upload"):
            used = cloud if rows is None else cloud.take(rows)
            xyz = np.take(cloud.xyz, samples, axis=0)
            points, columns, at = self._on_backend(used.xyz, input_features(used.records, self.config.fields), xyz)
        with stage(milliseconds, "voxelize"):
            tensor = voxelize(
                points,
                columns,
                point_cloud_range=self.config.point_cloud_range,
                voxel_size=self.config.voxel_size,
                max_voxels=self.config.max_voxels,
                max_points_per_voxel=self.config.max_points_per_voxel,
                backend=self.network.backend,
            )
        with stage(milliseconds, "backbone"):
            maps = self.network(tensor)
        with stage(milliseconds, "gather"):
            features = _on_host(gather_features(maps, at, levels=self.levels))
        return FrameFeatures(
            rows=_side_by_side(xyz, features),
            last_stage=lambda: maps["encoded"],
            voxels=len(tensor),
            dropped_voxels=int(tensor.stats["dropped_voxels"]),
            recaptures=int(maps.stats.get("recaptures", 0)),
            milliseconds=milliseconds,
        )

    def _on_backend(self, *arrays: npt.NDArray[np.float32]) -> tuple[Any, ...]:
        if self.network.backend == "cpu":
            return arrays
        import cupy

        return tuple(cupy.asarray(array) for array in arrays)


def _example_cloud(config: BackboneConfig) -> Cloud:
    """A small cloud to warm up with: random points in the range of ``config``, and the fields that it reads."""
    low, high = np.reshape(config.point_cloud_range, (2, 3))
    xyz = np.random.default_rng(0).uniform(low, high, size=(2000, 3))
    names = dict.fromkeys(("x", "y", "z", *config.fields))
    records = np.zeros(len(xyz), [(name, np.float32) for name in names])
    records["x"], records["y"], records["z"] = xyz.T
    return Cloud.of_records(records)


def named_config(name: str, backend: str) -> BackboneConfig:
    """The configuration that users name: ``full``, ``light``, ``auto`` (full with CUDA, light without) or a YAML file.

    Args:
        name: the name or the file.
        backend: ``"cpu"`` or ``"cuda"``, which runs the network.

    Raises:
        InputError: the configuration is not there or cannot be used.
    """
    if name == "auto":
        name = "full" if backend == "cuda" else "light"
    if name not in NETWORKS:
        return load_config(Path(name))
    path = share_file("config", f"backbone_{name}.yaml")
    if path is None:
        raise InputError(f"the configuration of the {name} network, backbone_{name}.yaml, is not installed")
    return load_config(path)


def _side_by_side(xyz: npt.NDArray[Any], features: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    rows = np.empty((len(xyz), 3 + features.shape[1]), np.float32)
    rows[:, :3], rows[:, 3:] = xyz, features
    return rows


def _as_records(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.void]:
    """(M,) records of rows x, y, z, features: one field each for x, y and z, and one for all features."""
    dtype = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("features", "<f4", (rows.shape[1] - 3,))])
    return rows.view(dtype).reshape(-1)


def _on_host(array: Any) -> npt.NDArray[Any]:
    return np.asarray(array.get() if hasattr(array, "get") else array)
