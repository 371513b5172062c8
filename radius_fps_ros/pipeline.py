"""A frame's way through host memory, without ROS: decode, crop, sample, encode; and which pipeline a backend has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .clouds import Cloud, decode_cloud, encode_subset
from .device import BackendChoice, select_backend
from .frame import FrameResult, Pipeline, PipelineSettings, check_usable
from .frame_features import FeatureExtractor
from .sampling import Sampler
from .stages import stage


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
