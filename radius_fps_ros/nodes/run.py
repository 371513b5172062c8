"""The main function of every node: spin until SIGINT or SIGTERM, then end in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from .memory import keep_freed_memory


def request_stop() -> None:
    """End this process's `run_node` as a signal from outside would."""
    os.kill(os.getpid(), signal.SIGTERM)


def run_node(
    make_node: Callable[[], Node],
    args: list[str] | None = None,
    make_executor: Callable[[], Executor] = SingleThreadedExecutor,
) -> int:
    """Run a node as a process; returns its exit code: the node's ``exit_code`` where it has one, else 0; 2 for bad ROS
    arguments.

    The executor spins in a thread and the main thread waits for the signal: rclpy's own handlers would shut the
    context down under a frame that is still in work; here ``node.stop_work()``, where there is one, ends it first, and
    returns False where it could not: then the process ends without waiting for it.
    """
    stop_signal = _stop_signal()
    keep_freed_memory()
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        node = make_node()
    except (
        rclpy_implementation.RCLError,
        rclpy_implementation.RCLInvalidROSArgsError,
        rclpy_implementation.UnknownROSArgsError,
    ) as error:
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
    stop_signal.recv(1)

    stop_work: Callable[[], bool | None] | None = getattr(node, "stop_work", None)
    idle = stop_work is None or stop_work() is not False
    executor.shutdown(timeout_sec=0.5)
    spinner.join(timeout=0.5)
    if faults:
        raise faults[0]
    exit_code: int = getattr(node, "exit_code", 0)
    node.destroy_node()
    rclpy.try_shutdown()
    if exit_code or not idle or spinner.is_alive():
        # A thread is still in compiled code, under which the interpreter must not be taken down; or the device is lost,
        # and CuPy would print a traceback for each thing that it frees there.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    return exit_code


def _stop_signal() -> socket.socket:
    """A socket that receives a byte with the first SIGINT or SIGTERM, whichever thread the kernel interrupts."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return receiver
