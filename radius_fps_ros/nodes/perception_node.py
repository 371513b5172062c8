"""The perception node: PointCloud2 in, exactly sampled PointCloud2 out."""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from radius_fps_interfaces.msg import FrameStats
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.time import Time
from sensor_msgs.msg import PointCloud2

from ..device import device_memory
from ..errors import InputError, RadiusFpsError
from ..frame_features import FeatureExtractor, feature_records
from ..pipeline import FramePipeline, FrameResult, stage
from .frame_log import FrameLog
from .messages import answered_stats, cloud_message, key_values, records_message, set_stages
from .parameters import ParameterSet
from .perception_parameters import SPECS, check_together, make_extractor, pipeline_settings
from .run import request_stop, run_node
from .worker import NewestItemWorker

NODE_NAME = "radius_fps_perception"
DIAGNOSTICS_PERIOD = 1.0  # s
STOP_TIMEOUT = 1.5  # s a frame in work may take to end when the node stops
# Deeper than the newest-frame slot behind it on purpose: what the middleware overwrites it does not count.
INPUT_DEPTH = 5
OUTPUT_DEPTH = 5


@dataclass(frozen=True)
class _Frame:
    message: PointCloud2
    received: Time
    begin: float


class PerceptionNode(LifecycleNode):
    """Managed node: configure compiles and allocates, activate listens, deactivate stops listening.

    Frames arrive in the executor's thread and are worked on in one thread of their own; the newest waits, an older one
    that still waits is dropped and counted.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NODE_NAME, **options)
        self._params = ParameterSet(self, SPECS, check_together)
        self._log = FrameLog()
        self._lost = 0
        self.exit_code = 0
        self._worker: NewestItemWorker[_Frame] | None = None
        self._points: Any = None
        if rclpy.get_rmw_implementation_identifier() == "rmw_fastrtps_cpp" and not _fastdds_profile_set():
            self.get_logger().warning(
                "Fast DDS runs with its default transports, which lose best-effort clouds of more than about 500 kB; "
                "start through the launch file or set FASTDDS_DEFAULT_PROFILES_FILE to this package's "
                "config/fastdds_shm.xml, for the publisher of points too"
            )

    # ---- life cycle ----

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Compile and allocate; fails with a sentence when a parameter or the backend cannot be used."""
        values = self._params.values
        for sentence in self._params.refused.values():
            self.get_logger().error(sentence)
        if self._params.refused:
            return TransitionCallbackReturn.FAILURE
        begin = time.perf_counter()
        try:
            self._pipeline = FramePipeline(
                backend=values["backend"], method=values["method"], threads=values["threads"] or None
            )
            self._pipeline.warm_up()
            choice = self._pipeline.backend
            self._extractor = make_extractor(values, choice.name)
            if self._extractor is not None:
                self._extractor.warm_up()
        except RadiusFpsError as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        self.get_logger().info(
            f"backend {choice.name} ({choice.reason}), ready after {time.perf_counter() - begin:.1f} s"
        )
        if self._extractor is None:
            self.get_logger().info(f"features are off (parameter features is {values['features']})")
        else:
            self.get_logger().info(f"features come from {self._extractor.network.weights_source}")
        output = QoSProfile(depth=OUTPUT_DEPTH)
        self._sampled = self.create_lifecycle_publisher(PointCloud2, "~/sampled", output)
        if self._extractor is not None:
            self._features = self.create_lifecycle_publisher(PointCloud2, "~/features", output)
            self._voxel_features = self.create_lifecycle_publisher(PointCloud2, "~/voxel_features", output)
        self._stats = self.create_lifecycle_publisher(FrameStats, "~/stats", output)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # On the steady clock: a paused or looping simulation clock must not silence the diagnostics.
        self._timer = self.create_timer(
            DIAGNOSTICS_PERIOD, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start listening; counts begin at zero."""
        result = super().on_activate(state)
        self._log = FrameLog()
        self._lost = 0
        self._worker = NewestItemWorker(self._work, self._end, "frames")
        qos = QoSProfile(
            depth=INPUT_DEPTH, reliability=ReliabilityPolicy[self._params.values["input_reliability"].upper()]
        )
        self._points = self.create_subscription(
            PointCloud2,
            "points",
            self._receive,
            qos,
            event_callbacks=SubscriptionEventCallbacks(message_lost=self._lose),
        )
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop listening and finish the frame in work."""
        self.stop_work()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give back what configure made."""
        self._release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop from whatever state."""
        self.stop_work()
        self._release()
        return super().on_shutdown(state)

    def stop_work(self) -> None:
        """Stop listening and wait for the frame in work, at most `STOP_TIMEOUT`."""
        if self._points is not None:
            self.destroy_subscription(self._points)
            self._points = None
        if self._worker is not None:
            if not self._worker.stop(STOP_TIMEOUT):
                self.get_logger().warning(f"a frame still in work after {STOP_TIMEOUT} s was abandoned")
            self._worker = None

    def _release(self) -> None:
        if not hasattr(self, "_timer"):
            return
        self.destroy_timer(self._timer)
        self.destroy_publisher(self._diagnostics)
        for name in ("_sampled", "_stats", "_features", "_voxel_features"):
            if hasattr(self, name):
                self.destroy_lifecycle_publisher(getattr(self, name))
                delattr(self, name)
        del self._timer, self._diagnostics, self._pipeline, self._extractor

    # ---- frames ----

    def _receive(self, message: PointCloud2) -> None:
        frame = _Frame(message, self.get_clock().now(), time.perf_counter())
        if self._worker is not None:
            self._worker.offer(frame)

    def _lose(self, event: Any) -> None:
        self._lost = event.total_count

    def _work(self, frame: _Frame) -> None:
        """Work on one frame; whatever is wrong with it, the node stays up and says so."""
        try:
            self._answer(frame)
        except InputError as error:
            self._refuse(frame, str(error))
        except Exception as error:
            self._refuse(frame, self._internal(error))

    def _internal(self, error: Exception) -> str:
        """The sentence for an error that is not the sender's fault; its traceback goes to the log."""
        self.get_logger().error(f"frame failed:\n{traceback.format_exc()}")
        return f"internal error: {' '.join(repr(error).split())}"

    def _end(self) -> None:
        """The frames' thread has died: end the process, so that whoever started it can start it again."""
        self.exit_code = 1
        request_stop()

    def _answer(self, frame: _Frame) -> None:
        values = self._params.values
        header = frame.message.header
        result = self._pipeline.process(frame.message, pipeline_settings(values))
        # The samples go out before the features are begun: who needs only them does not wait.
        milliseconds = dict(result.milliseconds)
        with stage(milliseconds, "publish"):
            self._sampled.publish(cloud_message(result.sampled, header))
        stats = answered_stats(result, header)
        if self._extractor is not None:
            milliseconds |= self._answer_features(self._extractor, result, stats)
        set_stages(stats, milliseconds)
        stats.total_milliseconds = (time.perf_counter() - frame.begin) * 1e3
        missed = stats.total_milliseconds > values["budget_ms"]
        if missed:
            stats.status = FrameStats.DEADLINE_MISSED
        if len(result.indices) < values["n_samples"]:
            stats.message = stats.message or f"the cloud has only {len(result.indices)} distinct usable points"
        self._log.answer(stats.total_milliseconds, missed)
        self._publish_stats(stats, frame)

    def _answer_features(self, extractor: FeatureExtractor, result: FrameResult, stats: FrameStats) -> dict[str, float]:
        """Compute and publish a frame's features, fill in their statistics, return their milliseconds by stage."""
        try:
            made = extractor(result.cloud, result.rows, result.indices)
        except Exception as error:
            # The samples are out already: the frame is answered, only without features.
            sentence = str(error) if isinstance(error, InputError) else self._internal(error)
            self._log.miss_features(sentence)
            stats.message = f"no features: {sentence}"
            return {}
        milliseconds = dict(made.milliseconds)
        with stage(milliseconds, "publish_features"):
            self._features.publish(records_message(feature_records(made.xyz, made.features), stats.header))
            if self._params.values["voxel_features"]:
                self._voxel_features.publish(records_message(made.voxel_records(), stats.header))
        stats.feature_channels = made.features.shape[1]
        stats.weights = extractor.network.weights_source
        stats.voxels, stats.voxels_dropped, stats.recaptures = made.voxels, made.dropped_voxels, made.recaptures
        return milliseconds

    def _refuse(self, frame: _Frame, sentence: str) -> None:
        if sentence != self._log.last_refusal:
            self.get_logger().warning(f"frame refused: {sentence}")
        self._log.refuse(sentence)
        stats = FrameStats(header=frame.message.header, status=FrameStats.REFUSED, message=sentence)
        stats.total_milliseconds = (time.perf_counter() - frame.begin) * 1e3
        stats.points_in = min(frame.message.width * frame.message.height, 2**32 - 1)
        self._publish_stats(stats, frame)

    def _publish_stats(self, stats: FrameStats, frame: _Frame) -> None:
        stats.frame = self._log.frames
        stats.received = frame.received.to_msg()
        stats.published = self.get_clock().now().to_msg()
        stats.samples_requested = self._params.values["n_samples"]
        stats.frames_dropped = self._dropped()
        stats.frames_refused = self._log.refused
        stats.deadlines_missed = self._log.deadlines_missed
        self._stats.publish(stats)

    def _dropped(self) -> int:
        worker = self._worker
        return self._lost + (worker.dropped if worker is not None else 0)

    # ---- diagnostics ----

    def _publish_diagnostics(self) -> None:
        log, active = self._log, self._worker is not None
        p50, p99 = log.latency((50, 99))
        level, message = DiagnosticStatus.OK, "answering" if log.answered else "waiting for points"
        if not active:
            message = "not active"
        elif log.refused:
            level, message = (
                DiagnosticStatus.WARN,
                f"{log.refused} frames refused, the last one because {log.last_refusal}",
            )
        elif log.features_missed:
            level, message = (
                DiagnosticStatus.WARN,
                f"{log.features_missed} frames without features, the last because {log.last_miss}",
            )
        elif log.deadlines_missed or self._dropped():
            level, message = DiagnosticStatus.WARN, "frames dropped or late"
        values = {
            "rate_hz": log.rate(5.0),
            "latency_ms_p50": p50,
            "latency_ms_p99": p99,
            "frames_answered": log.answered,
            "frames_refused": log.refused,
            "frames_dropped": self._dropped(),
            "deadlines_missed": log.deadlines_missed,
            "frames_without_features": log.features_missed if self._extractor is not None else "features are off",
            "weights": self._extractor.network.weights_source if self._extractor is not None else "",
            "backend": self._pipeline.backend.name,
            "backend_reason": self._pipeline.backend.reason,
        }
        memory = device_memory(self._pipeline.backend)
        if memory is not None:
            values["gpu_memory_mb"] = memory / 1e6
        status = DiagnosticStatus(
            level=level, name=f"{self.get_name()}: frames", message=message, hardware_id=self.get_fully_qualified_name()
        )
        status.values = key_values(values)
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)


def _fastdds_profile_set() -> bool:
    return any(os.environ.get(f"FASTDDS_{name}") for name in ("DEFAULT_PROFILES_FILE", "BUILTIN_TRANSPORTS")) or bool(
        os.environ.get("FASTRTPS_DEFAULT_PROFILES_FILE")
    )


def main() -> None:
    """Run the perception node as a process."""
    sys.exit(run_node(PerceptionNode))


if __name__ == "__main__":
    main()
