"""A node of this package as a process of its own, and its life cycle seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any

import rclpy
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future

from ..errors import RadiusFpsError
from ..share import PACKAGE, share_file
from .run import start_ros

ASK_AGAIN = 1.0  # s without an answer after which a node is asked for its state once more


class NodeProcessError(RadiusFpsError, RuntimeError):
    """The node's process did not do what was asked of it; the message says what."""


def use_large_cloud_transport() -> None:
    """Set Fast DDS's profile for this process and its children, unless the user has chosen one.

    It must happen before ``rclpy.init``; ``config/fastdds_shm.xml`` says why it is needed.
    """
    profile = share_file("config", "fastdds_shm.xml")
    if profile is not None:
        os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(profile))


@contextmanager
def spinning_node(name: str, namespace: str = "") -> Iterator[Node]:
    """A node with a DDS participant of its own, spinning in a thread.

    A participant of its own knows no process that died before: one that knew it counts it as present, services and all,
    until its lease of 20 s runs out.
    """
    context = rclpy.Context()
    start_ros([], context)
    node = rclpy.create_node(
        name, namespace=namespace, context=context, enable_rosout=False, start_parameter_services=False
    )
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin, name=name, daemon=True)
    spinner.start()
    try:
        yield node
    finally:
        executor.shutdown(timeout_sec=1.0)
        spinner.join(2.0)
        node.destroy_node()
        rclpy.try_shutdown(context=context)


def request_transition(node: Node, node_name: str, transition: int, check: Callable[[str], None]) -> bool:
    """Ask the managed node ``node_name`` (fully qualified) for a transition; True when it succeeded.

    ``node`` must be spinning in another thread. ``check`` is called repeatedly with words for what is still missing,
    and raises to give up.
    """
    # A node answers a client that it does not know yet into the void. Endpoints become known in the order in which they
    # were made, so whoever gets an answer from `state`, which can be asked again and again, will get one from `change`.
    change = node.create_client(ChangeState, f"{node_name}/change_state")
    state = node.create_client(GetState, f"{node_name}/get_state")
    try:
        for client in (change, state):
            while not client.wait_for_service(timeout_sec=0.2):
                check("did not offer its life cycle")
        known = False
        while not known:
            check("did not tell its state")
            known = _wait(state.call_async(GetState.Request()), ASK_AGAIN)
        future = change.call_async(ChangeState.Request(transition=Transition(id=transition)))
        while not _wait(future, 0.1):
            check(f"did not finish transition {transition}")
        return bool(future.result().success)
    finally:
        node.destroy_client(change)
        node.destroy_client(state)


def _wait(future: Future, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not future.done() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(future.done())


class NodeProcess:
    """Runs ``python -m radius_fps_ros.nodes.<module>``; a context manager that ends it by SIGINT."""

    def __init__(
        self,
        module: str,
        *,
        namespace: str = "",
        parameters: dict[str, Any] | None = None,
        remappings: Sequence[str] = (),
        output: IO[str] | None = None,
        program: Sequence[str] | None = None,
    ) -> None:
        """Start the process; ``output`` takes what it logs (default: where this process logs).

        ``program``: arguments of the interpreter that run the node in another way than ``-m``.
        """
        arguments = [word for rule in remappings for word in ("-r", rule)]
        if namespace:
            arguments += ["-r", f"__ns:={namespace}"]
        for name, value in (parameters or {}).items():
            arguments += ["-p", f"{name}:={_yaml(value)}"]
        program = program or ("-m", f"{PACKAGE}.nodes.{module}")
        command = [sys.executable, *program, "--ros-args", *arguments]
        self.module = module
        self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()

    def stop(self, timeout: float = 30.0) -> int:
        """Send SIGINT and return the exit code; kill the process when it has not ended after ``timeout`` [s]."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def change_state(self, node: Node, node_name: str, transition: int, timeout: float = 120.0) -> bool:
        """Ask the managed node ``node_name`` (fully qualified) for a transition; True when it succeeded.

        ``node`` must be spinning in another thread. Configuring compiles on the first run, hence the long default.

        Raises:
            NodeProcessError: the process ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout
        return request_transition(node, node_name, transition, lambda what: self._check(deadline, what))

    def bring_up(self, node: Node, node_name: str) -> None:
        """Configure and activate.

        Raises:
            NodeProcessError: a transition was refused; the node's log says why.
        """
        for transition, word in (
            (Transition.TRANSITION_CONFIGURE, "configured"),
            (Transition.TRANSITION_ACTIVATE, "activated"),
        ):
            if not self.change_state(node, node_name, transition):
                raise NodeProcessError(f"{self.module} could not be {word}; its log says why")

    def _check(self, deadline: float, what: str) -> None:
        code = self.process.poll()
        if code is not None:
            raise NodeProcessError(f"{self.module} ended with exit code {code}")
        if time.monotonic() > deadline:
            raise NodeProcessError(f"{self.module} {what} in time")


def _yaml(value: Any) -> str:
    # ROS reads parameter values as YAML, where true is lower case and a string of digits would become a number.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
