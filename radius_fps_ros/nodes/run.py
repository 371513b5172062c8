"""The main function of every node: spin until SIGINT or SIGTERM, then end in order with exit code 0."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def request_stop() -> None:
    """End this process's `run_node` as a signal from outside would."""
    os.kill(os.getpid(), signal.SIGTERM)


def run_node(
    make_node: Callable[[], Node],
    args: list[str] | None = None,
    make_executor: Callable[[], Executor] = SingleThreadedExecutor,
) -> int:
    """Run a node as a process; returns its exit code: the node's ``exit_code`` where it has one, else 0.

    The executor spins in a thread and the main thread waits for the signal: rclpy's own handlers would shut the
    context down under a frame that is still in work; here ``node.stop_work()``, where there is one, ends it first.
    """
    # Blocked before any thread starts, so that all inherit it and only sigwait below receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except rclpy_implementation.RCLInvalidROSArgsError as error:
        sys.exit(f"the ROS arguments cannot be used: {str(error).splitlines()[0]}")
    node = make_node()
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
    signal.sigwait(STOP_SIGNALS)

    stop_work: Callable[[], None] | None = getattr(node, "stop_work", None)
    if stop_work is not None:
        stop_work()
    executor.shutdown(timeout_sec=0.5)
    spinner.join(timeout=0.5)
    if faults:
        raise faults[0]
    exit_code: int = getattr(node, "exit_code", 0)
    node.destroy_node()
    rclpy.try_shutdown()
    return exit_code
