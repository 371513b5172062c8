"""The Hausdorff node: certified distances between meshes, as a service and as an action."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import ExitStack
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
from ..faults import faults_as_sentences
from ..hausdorff import Certificate, Progress, Status, certify_hausdorff, warm_up
from .admission import Admission, Turn
from .failures import take_failure
from .hausdorff_parameters import SPECS
from .mesh_sources import MeshCache, MeshLimits, requested_mesh
from .parameters import ParameterSet
from .patience import Patience, in_background
from .run import run_node
from .stopping import request_stop

NODE_NAME = "radius_fps_hausdorff"
QUEUE_DEPTH = 2000  # requests in the middleware
STOPPING = 0.5  # s for running requests to end when the node stops
GRACE = 0.12  # s for a search to end with the interval it has reached

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
        self._works: set[Future[Certificate | None]] = set()
        self.exit_code = 0
        self._warm_signal = self.create_guard_condition(self._offer)
        # In a thread of its own: compiling takes long the first time, and the node can be stopped meanwhile.
        self._warming = in_background(lambda: warm_up(values["backend"]))
        self._warming.add_done_callback(lambda _: None if self._stopping else self._warm_signal.trigger())

    def _offer(self) -> None:
        """Offer service and action, not before all is compiled: that would count for the first request's time."""
        try:
            self._warming.result()
        except Exception as error:
            self._end(self._take_failure(error, "compiling"))
            return
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
        if not self._params.refused:
            self.get_logger().info(f"ready; meshes by URI are read from {roots}")
        if missing := [str(root) for root in self._roots if not root.is_dir()]:
            self.get_logger().warning(f"allowed_roots names what is no folder now: {', '.join(missing)}")

    @property
    def threads(self) -> int:
        """Executor threads that all admitted requests and everything else need at once."""
        values = self._params.values
        return int(values["max_running"] + values["max_waiting"]) + 3

    def stop_work(self) -> bool:
        """End running requests, which answer CANCELLED with the interval reached; False when anything goes on."""
        self._stopping = True
        return self._warming.done() and not wait(self._works.copy(), STOPPING).not_done

    def _on_request(self, request: CertifyHausdorff.Request, response: Response) -> Response:
        return self._certify(request, response, lambda progress: None, lambda: False)

    def _on_goal(self, handle: ServerGoalHandle) -> Response:
        def report(progress: Progress) -> None:
            handle.publish_feedback(
                CertifyAction.Feedback(
                    lower=progress.lower,
                    upper=progress.upper,
                    surviving=progress.surviving,
                    elapsed=progress.elapsed,
                )
            )

        result = self._certify(handle.request, CertifyAction.Result(), report, lambda: handle.is_cancel_requested)
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.status in (result.INVALID_INPUT, result.BUSY, result.FAILED):
            handle.abort()
        else:
            handle.succeed()
        return result

    def _certify(
        self, request: Any, response: Response, report: Callable[[Progress], None], cancelled: Callable[[], bool]
    ) -> Response:
        """Fill in the response; whatever is wrong with the request, the node stays up and says so."""
        response.upper = float("inf")  # of every answer that knows nothing

        def given_up() -> bool:
            return self._stopping or cancelled()

        with ExitStack() as held:
            turn = held.enter_context(self._admission.admit(given_up))
            if turn is Turn.FULL:
                response.status, response.message = response.BUSY, "too many requests wait already; try again later"
                return response
            if turn is Turn.GIVEN_UP:
                return fill_unknown(response, Status.CANCELLED)
            try:
                patience = Patience(self._seconds(request), given_up)
                work = in_background(lambda: self._run(request, patience, report))
                self._works.add(work)
                work.add_done_callback(self._works.discard)
                patience.wait_for(work)
                if not work.done():
                    self._leave_behind(work, held.pop_all())
                certificate = work.result() if work.done() else None
                if certificate is None:
                    return fill_unknown(response, patience.ended() or Status.CANCELLED)
                fill_response(response, certificate, request.threshold)
            except InputError as error:
                response.status, response.message = response.INVALID_INPUT, str(error)
            except Exception as error:
                response.status, response.message = response.FAILED, self._take_failure(error)
        return response

    def _take_failure(self, error: Exception, work: str = "request") -> str:
        return take_failure(error, work, self.get_logger(), self._end)

    def _end(self, sentence: str) -> None:
        """End the process with an error, so that it can be started anew: a device that failed is lost to this one."""
        if not self.exit_code:
            self.exit_code = 1
            self.get_logger().error(f"{sentence}; the node ends")
            request_stop()

    def _leave_behind(self, work: Future[Certificate | None], turn: ExitStack) -> None:
        """Let work that nobody waits for count as a running request until it ends."""

        def over(work: Future[Certificate | None]) -> None:
            turn.close()
            error = work.exception()
            if isinstance(error, Exception) and not isinstance(error, InputError):
                self.get_logger().error(f"a request failed after it was answered: {self._take_failure(error)}")

        work.add_done_callback(over)

    def _seconds(self, request: Any) -> float:
        """The time limit of a request whose numbers can be used."""
        for sentence in self._params.refused.values():
            raise InputError(f"the node was started with a value that it refused, and answers nothing: {sentence}")
        for name in ("tolerance", "absolute_tolerance", "threshold", "time_limit"):
            if not getattr(request, name) >= 0:
                raise InputError(f"{name} must not be negative or NaN; it is {getattr(request, name)}")
        limit = float(self._params.values["time_limit"])
        return min(request.time_limit or limit, limit)

    def _run(self, request: Any, patience: Patience, report: Callable[[Progress], None]) -> Certificate | None:
        """The certificate; None when nobody waits for it any more, and nothing has been found."""

        def progress(state: Progress) -> bool | None:
            ended = patience.ended()
            if ended is None:
                report(state)
            return False if ended is Status.CANCELLED else None

        values = self._params.values
        limits = MeshLimits(self._roots, int(values["max_file_mb"] * 1e6), values["max_triangles"])
        a = requested_mesh("A", request.mesh_a, request.uri_a, limits, self._cache)
        if patience.ended() is not None:
            return None
        b = requested_mesh("B", request.mesh_b, request.uri_b, limits, self._cache)
        patience.grace = GRACE
        with faults_as_sentences("certifying"):
            return certify_hausdorff(
                a,
                b,
                tolerance=request.tolerance or values["tolerance"],
                absolute_tolerance=request.absolute_tolerance or None,
                symmetric=request.symmetric,
                threshold=request.threshold or None,
                time_limit=patience.seconds,
                memory_limit=int(values["memory_limit_mb"] * 1e6),
                backend=values["backend"],
                progress=progress,
            )


def fill_unknown(response: Response, status: Status) -> Response:
    """The answer to a request that ended too early to find anything: its interval stays [0, inf]."""
    ended = {Status.CANCELLED: "cancelled", Status.TIME_LIMIT: "the time limit came"}[status]
    response.status = getattr(response, status.name)
    response.message = f"{ended} before anything was known of the distance"
    return response


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
