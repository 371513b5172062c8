"""The main function of every node: spin until SIGINT or SIGTERM, then end in order."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from ..errors import RadiusFpsError
from .memory import keep_freed_memory
from .stopping import request_stop, stop_signal

CLOSING = 0.5  # s that callbacks which are running may take to end when the process stops


class RosStartError(RadiusFpsError, RuntimeError):
    """ROS cannot be started in this process; the message says why."""


def start_ros(args: list[str] | None = None, context: rclpy.Context | None = None) -> None:
    """`rclpy.init` without its signal handlers; ``args``: those of the process where they are ``None``.

    Raises:
        RosStartError: ROS refuses the arguments, or cannot write its log.
    """
    try:
        rclpy.init(args=args, context=context, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        sentence = str(error).splitlines()[0]
        # A file that it cannot open is a plain RuntimeError.
        if type(error) is RuntimeError or "initialize logging" in sentence:
            wanted = "set ROS_LOG_DIR to a folder where it can"
            raise RosStartError(f"ROS cannot write its log; {wanted}: {sentence}") from None
        raise RosStartError(f"the ROS arguments cannot be used: {sentence}") from None


def run_node(
    make_node: Callable[[], Node],
    args: list[str] | None = None,
    make_executor: Callable[[], Executor] = SingleThreadedExecutor,
) -> int:
    """Run a node as a process; returns its exit code: the node's ``exit_code`` where it has one, else 0; 2 where ROS
    cannot be started.

    The executor spins in a thread and the main thread waits for the signal: rclpy's own handlers would shut the
    context down under a frame that is still in work; here ``node.stop_work()``, where there is one, ends it first, and
    returns False where it could not: then the process ends without waiting for it.
    """
    stopped = stop_signal()
    keep_freed_memory()
    try:
        start_ros(args)
        node = make_node()
    except RosStartError as error:
        print(error, file=sys.stderr)
        return 2
    except rclpy_implementation.RCLError as error:
        print(f"the ROS arguments cannot be used: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    executor = make_executor()
    executor.add_node(node)
    faults: list[BaseException] = []

    def spin() -> None:
        try:
            executor.spin()
        except ExternalShutdownException:
            pass  # somebody shut the context down: an orderly end
        except BaseException as error:
            faults.append(error)
        request_stop()

    spinner = threading.Thread(target=spin, name="executor", daemon=True)
    spinner.start()
    stopped.recv(1)

    stop_work: Callable[[], bool | None] | None = getattr(node, "stop_work", None)
    idle = stop_work is None or stop_work() is not False
    # A pool of threads is waited for without end by shutdown itself.
    closer = threading.Thread(target=executor.shutdown, kwargs={"timeout_sec": CLOSING}, daemon=True)
    closer.start()
    closer.join(2 * CLOSING)
    spinner.join(CLOSING)
    if faults:
        raise faults[0]
    exit_code: int = getattr(node, "exit_code", 0)
    node.destroy_node()
    rclpy.try_shutdown()
    if exit_code or not idle or spinner.is_alive() or closer.is_alive():
        # A thread is still in compiled code, under which the interpreter must not be taken down; or the device is lost,
        # and CuPy would print a traceback for each thing that it frees there.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    return exit_code
