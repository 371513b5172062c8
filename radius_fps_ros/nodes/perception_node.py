"""The perception node: PointCloud2 in, exactly sampled PointCloud2 out."""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from radius_fps_interfaces.msg import FrameStats
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2

from ..device import select_backend
from ..errors import RadiusFpsError
from ..faults import is_out_of_memory
from ..pipeline import make_pipeline
from .diagnostics import perception_diagnostics
from .frame_answerer import Frame, FrameAnswerer, Outputs
from .parameters import ParameterSet
from .perception_parameters import SPECS, check_together, make_extractor
from .qos_watch import QosWatch
from .run import run_node
from .sequence_gaps import SequenceGaps
from .stats_bag import StatsBag
from .stopping import request_stop
from .worker import NewestItemWorker

NODE_NAME = "radius_fps_perception"
DIAGNOSTICS_PERIOD = 1.0  # s
STOP_TIMEOUT = 1.0  # s a frame in work may take to end when the node stops
BAG_TIMEOUT = 0.5  # s that finishing the bag of statistics may take then
FAULT_LINGER = 1.0  # s that a node whose device failed stays, inactive, so that whoever watches it can see why
INPUT_DEPTH = 5
OUTPUT_DEPTH = 5

Transition = Callable[[Any, LifecycleState], TransitionCallbackReturn]


def _logged(transition: Transition) -> Transition:
    """Log what escapes a transition: rclpy answers it with error processing and tells nobody what it was."""

    @functools.wraps(transition)
    def run(node: Any, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except Exception:
            node.get_logger().error(f"{transition.__name__} failed:\n{traceback.format_exc()}")
            return TransitionCallbackReturn.ERROR

    return run


class PerceptionNode(LifecycleNode):
    """Managed node: configure compiles and allocates, activate listens, deactivate stops listening.

    Frames arrive in the executor's thread and are worked on in one thread of their own; the newest waits, an older one
    that still waits is dropped and counted. A device that failed cannot be revived within its process: the node becomes
    inactive, says so, and ends with exit code 1.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NODE_NAME, **options)
        self._params = ParameterSet(self, SPECS, check_together)
        self._qos = QosWatch(self)
        self.exit_code = 0
        self._worker: NewestItemWorker[Frame] | None = None
        self._points: Any = None
        self._outputs: Outputs | None = None
        self._stats_bag: StatsBag | None = None
        self._fault = ""
        self._fault_signal = self.create_guard_condition(self._end_after_fault)
        self._start_signal = self.create_guard_condition(self._start)
        if self._params.values["autostart"]:
            self._start_signal.trigger()
        if rclpy.get_rmw_implementation_identifier() == "rmw_fastrtps_cpp" and not _fastdds_profile_set():
            self.get_logger().warning(
                "Fast DDS runs with its default transports, which lose best-effort clouds of more than about 500 kB; "
                "start through the launch file or set FASTDDS_DEFAULT_PROFILES_FILE to this package's "
                "config/fastdds_shm.xml, for the publisher of points too"
            )

    # ---- life cycle ----

    @_logged
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Compile and allocate; fails with a sentence when a parameter or the backend cannot be used."""
        if self._refuse_transition():
            return TransitionCallbackReturn.FAILURE
        values = self._params.values
        for sentence in self._params.refused.values():
            self.get_logger().error(sentence)
        if self._params.refused:
            return TransitionCallbackReturn.FAILURE
        begin = time.perf_counter()
        try:
            extractor = make_extractor(values, select_backend(values["backend"]).name)
            pipeline = make_pipeline(
                backend=values["backend"],
                method=values["method"],
                threads=values["threads"] or None,
                extractor=extractor,
            )
            pipeline.warm_up()
        except (RadiusFpsError, MemoryError) as error:
            prefix = "out of memory: " if is_out_of_memory(error) else ""
            self.get_logger().error(f"{prefix}{error}")
            return TransitionCallbackReturn.FAILURE
        choice = pipeline.backend
        self.get_logger().info(
            f"backend {choice.name} ({choice.reason}), ready after {time.perf_counter() - begin:.1f} s"
        )
        if extractor is None:
            self.get_logger().info(f"features are off (parameter features is {values['features']})")
        else:
            self.get_logger().info(f"features come from {extractor.network.weights_source}")
        self._pipeline, self._weights = pipeline, None if extractor is None else extractor.network.weights_source
        self._outputs = self._make_outputs()
        self._answerer = self._make_answerer(self._outputs)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # On the steady clock: a paused or looping simulation clock must not silence the diagnostics.
        self._timer = self.create_timer(
            DIAGNOSTICS_PERIOD, self._publish_diagnostics, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        return super().on_configure(state)

    @_logged
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start listening; counts begin at zero."""
        if self._refuse_transition():
            return TransitionCallbackReturn.FAILURE
        assert self._outputs is not None
        result = super().on_activate(state)
        self._answerer = answerer = self._make_answerer(self._outputs)
        self._worker = worker = NewestItemWorker(answerer.work, self._end, "frames")
        self._gaps = gaps = SequenceGaps()
        answerer.dropped = lambda: gaps.missing + worker.dropped
        if folder := self._params.values["stats_bag"]:
            self._stats_bag = StatsBag(folder, self._outputs.stats.topic_name, self.get_logger())
            answerer.record = self._stats_bag.record
        qos = QoSProfile(
            depth=INPUT_DEPTH, reliability=ReliabilityPolicy[self._params.values["input_reliability"].upper()]
        )
        events = self._qos.subscription_events("points", self._publish_diagnostics)
        self._points = self.create_subscription(PointCloud2, "points", self._receive, qos, event_callbacks=events)
        self.get_logger().info(f"active, waiting for clouds on {self._points.topic_name}")
        return result

    @_logged
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop listening and finish the frame in work."""
        self.stop_work()
        return super().on_deactivate(state)

    @_logged
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give back what configure made."""
        if self._refuse_transition():
            return TransitionCallbackReturn.FAILURE
        self._release()
        return super().on_cleanup(state)

    @_logged
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop from whatever state."""
        if self.stop_work():
            self._release()
        return super().on_shutdown(state)

    @_logged
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After a transition that failed unexpectedly: give everything back and be unconfigured."""
        if self.stop_work():
            self._release()
        return super().on_error(state)

    def stop_work(self) -> bool:
        """Stop listening and wait for the frame in work, at most `STOP_TIMEOUT`; False when it has not ended."""
        if self._points is not None:
            self.destroy_subscription(self._points)
            self._points = None
        idle = self._worker is None or self._worker.stop(STOP_TIMEOUT)
        if self._stats_bag is not None:
            self._stats_bag.close(BAG_TIMEOUT)
        if idle:
            return True
        self.get_logger().warning(f"a frame still in work after {STOP_TIMEOUT:g} s was abandoned")
        return False

    def destroy_node(self) -> None:
        """Leave the graph, at once and for good."""
        super().destroy_node()
        # It holds the node, and with it the shared memory, which rclpy leaves to the garbage collector.
        self._state_machine.destroy_when_not_in_use()

    def _refuse_transition(self) -> bool:
        """Whether no transition but shutdown is possible now; the log says why."""
        if self._fault:
            self.get_logger().error(f"the device failed ({self._fault}); the process must be started anew")
        elif self._worker is not None and not self._worker.stop(0.0):
            self.get_logger().error("the frame abandoned by deactivate is still in work; try again when it has ended")
        else:
            return False
        return True

    def _make_outputs(self) -> Outputs:
        qos = QoSProfile(depth=OUTPUT_DEPTH)

        def publisher(kind: type, topic: str) -> Any:
            events = self._qos.publisher_events(topic)
            return self.create_lifecycle_publisher(kind, topic, qos, event_callbacks=events)

        sampled, stats = publisher(PointCloud2, "~/sampled"), publisher(FrameStats, "~/stats")
        if self._weights is None:
            return Outputs(sampled, stats)
        clouds = (publisher(PointCloud2, topic) for topic in ("~/features", "~/voxel_features"))
        return Outputs(sampled, stats, *clouds)

    def _make_answerer(self, outputs: Outputs) -> FrameAnswerer:
        return FrameAnswerer(self, self._params, self._pipeline, self._weights, outputs, self._device_failed)

    def _release(self) -> None:
        if self._outputs is None:
            return
        for output in (
            self._outputs.sampled,
            self._outputs.stats,
            self._outputs.features,
            self._outputs.voxel_features,
        ):
            if output is not None:
                self.destroy_lifecycle_publisher(output)
        self._outputs = None
        self.destroy_timer(self._timer)
        self.destroy_publisher(self._diagnostics)
        del self._pipeline, self._answerer
        self._worker = None

    def _start(self) -> None:
        """Configure and activate, in the executor's thread, where transitions are made."""
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    # ---- frames ----

    def _receive(self, message: PointCloud2, info: dict[str, Any]) -> None:
        received, begin = self.get_clock().now(), time.perf_counter()
        self._gaps.receive(info)
        if self._worker is not None:
            self._worker.offer(Frame(message, self._pipeline.load(message), received, begin))

    def _device_failed(self, sentence: str) -> None:
        if not self._fault:
            self._fault = sentence
            self._fault_signal.trigger()

    def _end_after_fault(self) -> None:
        """In the executor's thread, where transitions are made."""
        self.get_logger().error(f"{self._fault}; the node becomes inactive and ends, to be started anew")
        if self._points is not None:
            self.trigger_deactivate()
        if self._outputs is not None:
            self._publish_diagnostics()
        self.create_timer(FAULT_LINGER, self._end, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _end(self) -> None:
        """End the process with an error, so that whoever started it can start it again."""
        self.exit_code = 1
        request_stop()

    def _publish_diagnostics(self) -> None:
        array = perception_diagnostics(
            self,
            self._pipeline.backend,
            self._weights,
            self._answerer,
            topic=self.resolve_topic_name("points"),
            publishers=None if self._points is None else self._points.get_publisher_count(),
            fault=self._fault,
            mismatches=self._qos.sentences(),
            stats_bag=self._stats_bag,
        )
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
