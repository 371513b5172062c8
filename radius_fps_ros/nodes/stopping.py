"""The signals that end a node's process."""

from __future__ import annotations

import functools
import os
import signal
import socket


@functools.cache
def stop_signal() -> socket.socket:
    """A socket that receives a byte with each SIGINT or SIGTERM from the first call on, whichever thread it reaches."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return receiver


def request_stop() -> None:
    """End this process's `radius_fps_ros.nodes.run.run_node` as a signal from outside would."""
    os.kill(os.getpid(), signal.SIGTERM)
