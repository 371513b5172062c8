"""The contract of a frame's way: what may be set, what comes out, and what every pipeline offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .clouds import CloudData
from .device import BackendChoice
from .errors import InputError
from .frame_features import FrameFeatures
from .sampling import SamplingStats


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
        """Compile everything and, on a device, make buffers for a LiDAR's cloud, so that no frame waits for it."""

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
