"""The Hausdorff node: certified distances between meshes, as a service and as an action."""

from __future__ import annotations

import sys
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

from ..errors import InputError
from ..hausdorff import Certificate, Progress, certify_hausdorff, warm_up
from .admission import Admission
from .hausdorff_parameters import SPECS
from .mesh_sources import MeshCache, MeshLimits, requested_mesh
from .parameters import ParameterSet
from .run import run_node

NODE_NAME = "radius_fps_hausdorff"
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
        self._service = self.create_service(CertifyHausdorff, "~/certify", self._on_request, callback_group=group)
        self._action = ActionServer(
            self,
            CertifyAction,
            "~/certify_action",
            self._on_goal,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=group,
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

        result = self._certify(handle.request, CertifyAction.Result(), report)
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.status in (result.INVALID_INPUT, result.BUSY, result.FAILED):
            handle.abort()
        else:
            handle.succeed()
        return result

    def _certify(self, request: Any, response: Response, report: Callable[[Progress], bool | None]) -> Response:
        """Fill in the response; whatever is wrong with the request, the node stays up and says so."""

        def progress(state: Progress) -> bool | None:
            return False if self._stopping else report(state)

        with self._admission.admit() as admitted:
            if not admitted:
                response.status = response.BUSY
                response.message = "too many requests wait already; try again later"
                return response
            try:
                fill_response(response, self._run(request, progress), request.threshold)
            except InputError as error:
                response.status, response.message = response.INVALID_INPUT, str(error)
            except Exception as error:
                # Not the caller's fault: the traceback goes to the log, and the caller learns that it failed.
                self.get_logger().error(f"request failed: {error!r}", exc_info=True)
                response.status, response.message = response.FAILED, f"internal error: {error}"
        return response

    def _run(self, request: Any, progress: Callable[[Progress], bool | None]) -> Certificate:
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
    response.message = {
        "CONVERGED": "the interval is as narrow as asked",
        "PROVEN_BELOW": f"the distance is proven to be at most {threshold:g}",
        "PROVEN_ABOVE": f"the distance is proven to be above {threshold:g}",
        "TIME_LIMIT": "the time limit came first; the interval is valid",
        "MEMORY_LIMIT": "the memory limit came first; the interval is valid",
        "PRECISION_LIMIT": "the interval is as narrow as float64 allows for these coordinates; it is valid",
        "CANCELLED": "cancelled; the interval is valid",
    }[c.status.name]


def main() -> None:
    """Run the Hausdorff node as a process."""
    nodes: list[HausdorffNode] = []

    def make_node() -> HausdorffNode:
        nodes.append(HausdorffNode())
        return nodes[0]

    sys.exit(run_node(make_node, make_executor=lambda: MultiThreadedExecutor(num_threads=nodes[0].threads)))


if __name__ == "__main__":
    main()
