"""A frame's way, without ROS: decode, crop, sample, encode."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .clouds import Cloud, CloudData, decode_cloud, encode_subset
from .device import BackendChoice
from .errors import InputError
from .sampling import Sampler, SamplingResult


@dataclass(frozen=True)
class PipelineSettings:
    """What may change between frames.

    Attributes:
        n_samples: samples a frame.
        range_min, range_max: distances from the sensor [m] between which a point is used, both inclusive.
        roi_min, roi_max: opposite corners of an axis-aligned box in the cloud's frame [m] outside which points are
            not used; ``None`` for no box.
    """

    n_samples: int = 4096
    range_min: float = 0.0
    range_max: float = float("inf")
    roi_min: tuple[float, float, float] | None = None
    roi_max: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class FrameResult:
    """What one frame became.

    Attributes:
        sampled: the sampled points with all their original fields, in sampling order.
        cloud, rows: the decoded cloud and its used rows, ``None`` for all; what features are computed from.
        indices: (M,) int64 rows of the incoming cloud that were sampled.
        points_in, points_used: points in the message, and finite ones inside the region of interest.
        sampling: the sampler's result; its indices refer to the used points.
        milliseconds: per stage, in the order in which they ran.
    """

    sampled: CloudData
    cloud: Cloud
    rows: npt.NDArray[np.int64] | None
    indices: npt.NDArray[np.int64]
    points_in: int
    points_used: int
    sampling: SamplingResult
    milliseconds: dict[str, float]


@contextmanager
def stage(milliseconds: dict[str, float], name: str) -> Iterator[None]:
    """Measure the body into ``milliseconds[name]``."""
    begin = time.perf_counter()
    yield
    milliseconds[name] = (time.perf_counter() - begin) * 1e3


class FramePipeline:
    """Turns PointCloud2-like messages into sampled clouds; keeps its workspaces between frames. One call at a time."""

    def __init__(self, *, backend: str = "auto", method: str = "auto", threads: int | None = None) -> None:
        """The arguments and errors are those of `farthest_point_sampling`."""
        self._sampler = Sampler(backend=backend, method=method, threads=threads)

    @property
    def backend(self) -> BackendChoice:
        """The backend that runs, and why."""
        return self._sampler.backend

    def warm_up(self) -> None:
        """Compile everything, so that the first frame is not slowed by it."""
        self._sampler.warm_up()

    def process(self, message: Any, settings: PipelineSettings) -> FrameResult:
        """Run one frame.

        Args:
            message: anything with the attributes of ``sensor_msgs/PointCloud2``.
            settings: what to use and how many samples to take.

        Raises:
            InputError: the message is malformed, or no point of it can be used.
            BackendError: the device reported a fault.
        """
        milliseconds: dict[str, float] = {}
        with stage(milliseconds, "decode"):
            cloud = decode_cloud(message)
        with stage(milliseconds, "crop"):
            rows = usable_rows(cloud, settings)
            points = cloud.xyz if rows is None else np.take(cloud.xyz, rows, axis=0)
        with stage(milliseconds, "sample"):
            sampling = self._sampler(points, settings.n_samples)
            indices = sampling.indices if rows is None else rows[sampling.indices]
        with stage(milliseconds, "encode"):
            sampled = encode_subset(cloud, indices)
        return FrameResult(sampled, cloud, rows, indices, len(cloud), len(points), sampling, milliseconds)


def usable_rows(cloud: Cloud, settings: PipelineSettings) -> npt.NDArray[np.int64] | None:
    """Rows of the points of ``cloud`` that are finite and that ``settings`` let pass; ``None`` when all are.

    Raises:
        InputError: there is no such point.
    """
    xyz = cloud.xyz
    if len(xyz) == 0:
        raise InputError("the cloud has no points")
    usable = cloud.finite
    finite = int(np.count_nonzero(usable))
    if finite == 0:
        raise InputError(f"none of the cloud's {len(xyz)} points is finite")
    # Comparisons with NaN are false, so rows that are not finite stay out whatever the limits.
    with np.errstate(invalid="ignore", over="ignore"):
        if settings.range_min > 0 or settings.range_max < float("inf"):
            # Axis by axis: along a row of three NumPy works many times slower.
            squared = sum(np.square(axis, dtype=np.float64) for axis in xyz.T)
            usable = usable & (squared >= settings.range_min**2) & (squared <= settings.range_max**2)
        for axis, low in zip(xyz.T, settings.roi_min or (), strict=False):
            usable = usable & (axis >= np.float32(low))
        for axis, high in zip(xyz.T, settings.roi_max or (), strict=False):
            usable = usable & (axis <= np.float32(high))
    used = int(np.count_nonzero(usable))
    if used == 0:
        raise InputError(f"none of the cloud's {finite} finite points lies in the region of interest")
    return None if used == len(xyz) else np.flatnonzero(usable)
