"""A frame's way through the perception node: answered or refused, in either case told in its statistics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from radius_fps_interfaces.msg import FrameStats
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2

from ..budget import Budget, Grant
from ..errors import InputError
from ..faults import free_device_memory, is_out_of_memory
from ..frame import Pipeline
from ..frame_features import FrameFeatures
from ..stages import stage
from .failures import take_failure
from .frame_log import FrameLog
from .messages import answered_stats, cloud_message, records_message, set_stages
from .parameters import ParameterSet
from .perception_parameters import budget_settings, pipeline_settings

BY_SAMPLE = ("sample", "encode", "pack", "download", "publish")  # stages whose time grows with the number of samples


@dataclass(frozen=True)
class Frame:
    """An incoming cloud, and when its callback got it by the node's clock and by `time.perf_counter`.

    ``loaded`` is what `Pipeline.load` made of the message.
    """

    message: PointCloud2
    loaded: Any
    received: Time
    begin: float


@dataclass(frozen=True)
class Outputs:
    """The publishers of a frame's results; those of the features are ``None`` where features are off."""

    sampled: Any
    stats: Any
    features: Any = None
    voxel_features: Any = None


class FrameAnswerer:
    """Works on frames one at a time, from activation to deactivation: counts and budget begin anew with each."""

    def __init__(
        self,
        node: Node,
        params: ParameterSet,
        pipeline: Pipeline,
        weights: str | None,
        outputs: Outputs,
        device_failed: Callable[[str], None],
    ) -> None:
        """``weights``: where those of the features come from, ``None`` without features.

        ``device_failed`` is called with a sentence when the device is lost, in the thread that works on frames.
        """
        self.log = FrameLog()
        self.grant: Grant | None = None
        self.dropped: Callable[[], int] = lambda: 0
        self.record: Callable[[FrameStats], None] = lambda stats: None
        self._node, self._params, self._outputs = node, params, outputs
        self._pipeline, self._weights = pipeline, weights
        self._device_failed = device_failed
        self._budget = Budget()

    def work(self, frame: Frame) -> None:
        """Work on one frame; whatever is wrong with it, the node says so."""
        try:
            self._answer(frame)
        except Exception as error:
            self._refuse(frame, self._explain(error))

    def _explain(self, error: Exception) -> str:
        if isinstance(error, InputError):
            return str(error)
        if is_out_of_memory(error):
            free_device_memory(self._pipeline.backend)
        return take_failure(error, "frame", self._node.get_logger(), self._device_failed)

    def _answer(self, frame: Frame) -> None:
        values = self._params.values
        header = frame.message.header
        grant = self._next_grant(values)
        begin = time.perf_counter()
        settings = pipeline_settings(values, grant.samples)
        result = self._pipeline.process(frame.loaded, settings, features=grant.features)
        # On the CPU the features are not begun yet: who needs only the samples does not wait for them.
        milliseconds = dict(result.milliseconds)
        with stage(milliseconds, "publish"):
            self._outputs.sampled.publish(cloud_message(result.sampled, header))
        stats = answered_stats(result, header)
        sampled = time.perf_counter()
        features: dict[str, float] = {}
        if result.features is not None:
            features = self._answer_features(result.features, stats)
        # Wall time, so that nothing between the stages is forgotten.
        extracting = (time.perf_counter() - sampled) * 1e3 + result.features_ms if features else None
        by_sample = sum(milliseconds.get(name, 0.0) for name in BY_SAMPLE)
        fixed = (sampled - begin) * 1e3 - by_sample - result.features_ms
        self._budget.record(grant, fixed, by_sample, extracting)
        set_stages(stats, milliseconds | features)
        stats.total_milliseconds = (time.perf_counter() - frame.begin) * 1e3
        missed = stats.total_milliseconds > values["budget_ms"]
        if missed:
            stats.status = FrameStats.DEADLINE_MISSED
        few = f"the cloud has only {len(result.indices)} distinct usable points"
        sentences = (stats.message, few if len(result.indices) < grant.samples else "", grant.reason)
        stats.message = "; ".join(filter(None, sentences))
        stats.samples_granted, stats.full_milliseconds = grant.samples, grant.full_ms
        stats.features_every = grant.features_every if self._weights is not None else 0
        self.log.answer(stats.total_milliseconds, missed, grant.degraded)
        self._publish_stats(stats, frame)

    def _next_grant(self, values: Any) -> Grant:
        before, grant = self.grant, self._budget.grant(budget_settings(values), self._weights is not None)
        self.grant = grant
        was_degraded = before is not None and before.degraded
        if grant.degraded and not was_degraded:
            self._node.get_logger().warning(f"over budget: {grant.reason}")
        elif was_degraded and not grant.degraded:
            self._node.get_logger().info("within the budget again: every frame gets all that is asked for")
        return grant

    def _answer_features(self, features: Callable[[], FrameFeatures], stats: FrameStats) -> dict[str, float]:
        """Have and publish a frame's features, fill in their statistics, return their milliseconds by stage."""
        try:
            made = features()
        except Exception as error:
            # The samples are out already: the frame is answered, only without features.
            sentence = self._explain(error)
            self.log.miss_features(sentence)
            stats.message = f"no features: {sentence}"
            return {}
        milliseconds = dict(made.milliseconds)
        with stage(milliseconds, "publish_features"):
            self._outputs.features.publish(records_message(made.records(), stats.header))
            if self._params.values["voxel_features"]:
                self._outputs.voxel_features.publish(records_message(made.voxel_records(), stats.header))
        stats.feature_channels = made.channels
        stats.weights = self._weights or ""
        stats.voxels, stats.voxels_dropped, stats.recaptures = made.voxels, made.dropped_voxels, made.recaptures
        return milliseconds

    def _refuse(self, frame: Frame, sentence: str) -> None:
        if sentence != self.log.last_refusal:
            self._node.get_logger().warning(f"frame refused: {sentence}")
        self.log.refuse(sentence)
        stats = FrameStats(header=frame.message.header, status=FrameStats.REFUSED, message=sentence)
        stats.total_milliseconds = (time.perf_counter() - frame.begin) * 1e3
        stats.points_in = min(frame.message.width * frame.message.height, 2**32 - 1)
        self._publish_stats(stats, frame)

    def _publish_stats(self, stats: FrameStats, frame: Frame) -> None:
        stats.frame = self.log.frames
        # A simulated clock may jump back between the two.
        stats.received = frame.received.to_msg()
        stats.published = max(frame.received, self._node.get_clock().now()).to_msg()
        stats.samples_requested = self._params.values["n_samples"]
        stats.frames_dropped = self.dropped()
        stats.frames_refused = self.log.refused
        stats.deadlines_missed = self.log.deadlines_missed
        stats.frames_degraded = self.log.degraded
        self._outputs.stats.publish(stats)
        self.record(stats)
