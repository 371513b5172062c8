"""How a command learns that it is to end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and a closed terminal interrupt as well, unless they are ignored, as under nohup."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_seen() -> Iterator[Callable[[], bool]]:
    """Tells of such a signal before Python can raise it: the main thread may be in compiled code, for minutes."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)

        def seen() -> bool:
            with suppress(BlockingIOError):
                return not set(ENDING).isdisjoint(receiver.recv(64))
            return False

        try:
            yield seen
        finally:
            signal.set_wakeup_fd(before)
