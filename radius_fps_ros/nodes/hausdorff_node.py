"""The Hausdorff node: certified distances between meshes, as a service and as an action."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geometry_msgs.msg import Point
from radius_fps_interfaces.action import CertifyHausdorff as CertifyAction
from radius_fps_interfaces.srv import CertifyHausdorff
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from ..errors import InputError
from ..hausdorff import Certificate, Progress, certify_hausdorff, warm_up
from .admission import Admission, Turn
from .hausdorff_parameters import SPECS
from .mesh_sources import MeshCache, MeshLimits, requested_mesh
from .parameters import ParameterSet
from .run import run_node

NODE_NAME = "radius_fps_hausdorff"
QUEUE_DEPTH = 2000  # requests in the middleware

Response = Any  # CertifyHausdorff.Response or CertifyAction.Result: the same members


class HausdorffNode(Node):
    """Answers `~/certify` and `~/certify_action`; long requests do not hold up short ones or the parameters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(NODE_NAME, **options)
        self._params = ParameterSet(self, SPECS)
        values = self._params.values
        for sentence in self._params.refused.values():
            self.get_logger().error(sentence)
        self._roots = tuple(Path(root).resolve() for root in values["allowed_roots"])
        self._cache = MeshCache(values["cache_triangles"])
        self._admission = Admission(values["max_running"], values["max_waiting"])
        self._stopping = False
        warm_up(values["backend"])  # before the service is there: compiling would count for the first request's time
        group = ReentrantCallbackGroup()
        # Deeper than all that are admitted: what the middleware drops would never learn that the node is busy.
        qos = QoSProfile(depth=QUEUE_DEPTH)
        self._service = self.create_service(
            CertifyHausdorff, "~/certify", self._on_request, qos_profile=qos, callback_group=group
        )
        self._action = ActionServer(
            self,
            CertifyAction,
            "~/certify_action",
            self._on_goal,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=group,
            goal_service_qos_profile=qos,
            result_service_qos_profile=qos,
            cancel_service_qos_profile=qos,
        )
        roots = ", ".join(map(str, self._roots)) or "nowhere (allowed_roots is empty)"
        self.get_logger().info(f"ready; meshes by URI are read from {roots}")

    @property
    def threads(self) -> int:
        """Executor threads that all admitted requests and everything else need at once."""
        values = self._params.values
        return int(values["max_running"] + values["max_waiting"]) + 3

    def stop_work(self) -> None:
        """End running requests; they answer CANCELLED with the interval reached."""
        self._stopping = True

    def _on_request(self, request: CertifyHausdorff.Request, response: Response) -> Response:
        return self._certify(request, response, lambda progress: None)

    def _on_goal(self, handle: ServerGoalHandle) -> Response:
        def report(progress: Progress) -> bool | None:
            handle.publish_feedback(
                CertifyAction.Feedback(
                    lower=progress.lower,
                    upper=progress.upper,
                    surviving=progress.surviving,
                    elapsed=progress.elapsed,
                )
            )
            return False if handle.is_cancel_requested else None

        result = self._certify(handle.request, CertifyAction.Result(), report, lambda: handle.is_cancel_requested)
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.status in (result.INVALID_INPUT, result.BUSY, result.FAILED):
            handle.abort()
        else:
            handle.succeed()
        return result

    def _certify(
        self,
        request: Any,
        response: Response,
        report: Callable[[Progress], bool | None],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Response:
        """Fill in the response; whatever is wrong with the request, the node stays up and says so."""

        def progress(state: Progress) -> bool | None:
            return False if self._stopping else report(state)

        with self._admission.admit(lambda: self._stopping or cancelled()) as turn:
            if turn is not Turn.RUN:
                response.status, response.message = {
                    Turn.FULL: (response.BUSY, "too many requests wait already; try again later"),
                    Turn.GIVEN_UP: (response.CANCELLED, "cancelled while it waited; nothing is known of the distance"),
                }[turn]
                response.upper = float("inf")
                return response
            try:
                fill_response(response, self._run(request, progress), request.threshold)
            except InputError as error:
                response.status, response.message = response.INVALID_INPUT, str(error)
            except Exception as error:
                # Not the caller's fault: the traceback goes to the log, and the caller learns that it failed.
                self.get_logger().error(f"request failed:\n{traceback.format_exc()}")
                response.status = response.FAILED
                response.message = f"internal error: {' '.join(repr(error).split())}"
        return response

    def _run(self, request: Any, progress: Callable[[Progress], bool | None]) -> Certificate:
        for sentence in self._params.refused.values():
            raise InputError(f"the node was started with a value that it refused, and answers nothing: {sentence}")
        values = self._params.values
        limits = MeshLimits(self._roots, int(values["max_file_mb"] * 1e6), values["max_triangles"])
        a = requested_mesh("A", request.mesh_a, request.uri_a, limits, self._cache)
        b = requested_mesh("B", request.mesh_b, request.uri_b, limits, self._cache)
        for name in ("tolerance", "absolute_tolerance", "threshold", "time_limit"):
            if not getattr(request, name) >= 0:
                raise InputError(f"{name} must not be negative or NaN; it is {getattr(request, name)}")
        return certify_hausdorff(
            a,
            b,
            tolerance=request.tolerance or values["tolerance"],
            absolute_tolerance=request.absolute_tolerance or None,
            symmetric=request.symmetric,
            threshold=request.threshold or None,
            time_limit=min(request.time_limit or values["time_limit"], values["time_limit"]),
            memory_limit=int(values["memory_limit_mb"] * 1e6),
            backend=values["backend"],
            progress=progress,
        )


def fill_response(response: Response, certificate: Certificate, threshold: float) -> None:
    """Copy a certificate into a service response or an action result."""
    c = certificate
    response.status = getattr(response, c.status.name)
    response.lower, response.upper = c.lower, c.upper
    response.witness_a, response.witness_b = (Point(x=x, y=y, z=z) for x, y, z in (c.witness_a, c.witness_b))
    response.triangles = c.triangles
    response.milliseconds = c.milliseconds
    response.backend = c.backend
    response.message = c.status.meaning(threshold)


def main() -> None:
    """Run the Hausdorff node as a process."""
    nodes: list[HausdorffNode] = []

    def make_node() -> HausdorffNode:
        nodes.append(HausdorffNode())
        return nodes[0]

    sys.exit(run_node(make_node, make_executor=lambda: MultiThreadedExecutor(num_threads=nodes[0].threads)))


if __name__ == "__main__":
    main()
