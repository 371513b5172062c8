"""A frame's way, without ROS: decode, crop, sample, encode, and the features at the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .clouds import Cloud, CloudData, decode_cloud, encode_subset
from .device import BackendChoice, select_backend
from .errors import InputError
from .frame_features import FeatureExtractor, FrameFeatures
from .sampling import Sampler, SamplingStats
from .stages import stage


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
        indices: (M,) int64 rows of the incoming cloud that were sampled.
        points_in, points_used: points in the message, and finite ones inside the region of interest.
        coverage_radius: the largest distance from a used point to its nearest sample [m].
        stats: how the samples were computed.
        milliseconds: per stage, in the order in which they ran.
        features: gives the features at the samples, once and before the next frame: computes them where the CPU works,
            and reads what came along with the samples where CUDA does. Raises InputError where the frame has none, and
            BackendError. ``None`` when they were not asked for.
        features_ms: the part of the call's time that already went into the features [ms].
    """

    sampled: CloudData
    indices: npt.NDArray[np.int64]
    points_in: int
    points_used: int
    coverage_radius: float
    stats: SamplingStats
    milliseconds: dict[str, float]
    features: Callable[[], FrameFeatures] | None = None
    features_ms: float = 0.0


class Pipeline(Protocol):
    """Turns PointCloud2-like messages into samples and features. One frame at a time."""

    @property
    def backend(self) -> BackendChoice:
        """The backend that runs, and why."""

    def warm_up(self) -> None:
        """Compile everything, so that the first frame is not slowed by it."""

    def load(self, message: Any) -> Any:
        """Begin with a frame before its turn, while another is in work; what `process` takes in place of the message.

        Never raises: what is wrong with the message, `process` says.
        """

    def process(self, message: Any, settings: PipelineSettings, *, features: bool = True) -> FrameResult:
        """Run one frame.

        Args:
            message: anything with the attributes of ``sensor_msgs/PointCloud2``, or what `load` returned for it.
            settings: what to use and how many samples to take.
            features: whether features are wanted too, where there is a network.

        Raises:
            InputError: the message is malformed, or no point of it can be used.
            BackendError: the device reported a fault.
        """


def make_pipeline(
    *,
    backend: str = "auto",
    method: str = "auto",
    threads: int | None = None,
    extractor: FeatureExtractor | None = None,
) -> Pipeline:
    """The pipeline of the backend; ``extractor`` must be for the same one.

    The other arguments and the errors are those of `farthest_point_sampling`.
    """
    choice = select_backend(backend)
    if choice.name == "cuda":
        from .cuda_frame import CudaFramePipeline

        return CudaFramePipeline(choice, method, extractor)
    return FramePipeline(backend=backend, method=method, threads=threads, extractor=extractor)


class FramePipeline:
    """A frame's way through host memory, stage after stage; keeps its workspaces between frames. See `Pipeline`."""

    def __init__(
        self,
        *,
        backend: str = "auto",
        method: str = "auto",
        threads: int | None = None,
        extractor: FeatureExtractor | None = None,
    ) -> None:
        """The arguments are those of `make_pipeline`."""
        self._sampler = Sampler(backend=backend, method=method, threads=threads)
        self._extractor = extractor

    @property
    def backend(self) -> BackendChoice:
        """The backend that runs, and why."""
        return self._sampler.backend

    def warm_up(self) -> None:
        """See `Pipeline.warm_up`."""
        self._sampler.warm_up()
        if self._extractor is not None:
            self._extractor.warm_up()

    def load(self, message: Any) -> Any:
        """The message itself: nothing can be begun with."""
        return message

    def process(self, message: Any, settings: PipelineSettings, *, features: bool = True) -> FrameResult:
        """Run one frame; see `Pipeline.process` for ``message``, ``settings``, ``features`` and the errors."""
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
        extractor = self._extractor
        return FrameResult(
            sampled=sampled,
            indices=indices,
            points_in=len(cloud),
            points_used=len(points),
            coverage_radius=sampling.coverage_radius,
            stats=sampling.stats,
            milliseconds=milliseconds,
            features=(lambda: extractor(cloud, rows, indices)) if extractor is not None and features else None,
        )


def usable_rows(cloud: Cloud, settings: PipelineSettings) -> npt.NDArray[np.int64] | None:
    """Rows of the points of ``cloud`` that are finite and that ``settings`` let pass; ``None`` when all are.

    Raises:
        InputError: there is no such point.
    """
    xyz = cloud.xyz
    usable = cloud.finite
    finite = int(np.count_nonzero(usable))
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
    check_usable(len(xyz), finite, used)
    return None if used == len(xyz) else np.flatnonzero(usable)


def check_usable(points: int, finite: int, used: int) -> None:
    """Refuse a cloud without points to work on.

    Args:
        points, finite, used: its points, those of them that are finite, and those inside the region of interest too.

    Raises:
        InputError: there is none.
    """
    if points == 0:
        raise InputError("the cloud has no points")
    if finite == 0:
        raise InputError(f"none of the cloud's {points} points is finite")
    if used == 0:
        raise InputError(f"none of the cloud's {finite} finite points lies in the region of interest")
