"""The statistics of every frame in a bag, to see after a drive what happened."""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import threading
import traceback
from pathlib import Path
from typing import Any

from radius_fps_interfaces.msg import FrameStats
from rclpy.serialization import serialize_message
from rosbags.rosbag2.errors import WriterError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from ..errors import InputError
from ..offline.definitions import NODE_QOS
from ..share import share_file
from .whole_mcap import WholeBag

TYPE = "radius_fps_interfaces/msg/FrameStats"
WAITING = 1000  # frames that may wait for a slow disk; more would be memory without bound


class StatsBag:
    """Records from its making to `close`, in a thread of its own, so that no frame waits for the disk.

    What cannot be recorded ends the recording, never the node: the log gets a sentence, and ``fault`` holds it.

    Attributes:
        path: the bag's folder; as asked for until it is made.
        recorded: frames that stand in the bag.
        fault: why nothing is recorded any more, or empty.
    """

    def __init__(self, path: str, topic: str, logger: Any) -> None:
        """``path``: the folder; where it exists a number is appended, and what it holds stays as it is.

        ``topic`` is the name under which the statistics are published; ``logger`` that of the node.
        """
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.recorded = 0
        self.fault = ""
        self._topic, self._logger = topic, logger
        self._queue: queue.SimpleQueue[FrameStats | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stats bag", daemon=True)
        self._thread.start()

    def record(self, stats: FrameStats) -> None:
        """Record statistics, which must not be changed any more; returns at once."""
        if self.fault:
            return
        if self._queue.qsize() < WAITING:
            self._queue.put(stats)
        else:
            self._give_up(f"{WAITING} frames wait for the disk")

    def close(self, timeout: float) -> None:
        """Finish the bag; a disk that takes longer than ``timeout`` [s] is left to itself."""
        self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._logger.warning(f"{self.path} is not finished after {timeout:g} s: the disk is slow")

    def _run(self) -> None:
        try:
            self._record_all()
        except Exception as error:
            if not isinstance(error, (OSError, InputError)):
                self._logger.error(f"recording failed:\n{traceback.format_exc()}")
            self._give_up(getattr(error, "strerror", None) or str(error) or repr(error))

    def _record_all(self) -> None:
        bag = self._open()
        try:
            connection = bag.add_connection(self._topic, TYPE, typestore=_typestore(), offered_qos_profiles=[NODE_QOS])
            self._logger.info(f"{self._topic} is recorded in {self.path}")
            while (stats := self._queue.get()) is not None:
                time = stats.published.sec * 10**9 + stats.published.nanosec
                bag.write(connection, time, serialize_message(stats))
                self.recorded += 1
            if self.recorded:
                bag.close()
        finally:
            bag.abort()  # does nothing after close
            if not self.recorded:
                shutil.rmtree(
                    self.path
                )  # a node that is started again and again must not fill the disk with empty bags

    def _open(self) -> WholeBag:
        wanted = self.path
        for number in itertools.count(1):
            try:
                bag = WholeBag(self.path)
                bag.open()
                break
            except WriterError:
                if not os.path.lexists(self.path):
                    raise
            self.path = wanted.with_name(f"{wanted.name}_{number}")
        return bag

    def _give_up(self, reason: str) -> None:
        if self.recorded:
            kept = f"; {self.path} holds the {self.recorded} frames before"
            self.fault = f"{self._topic} is no longer recorded: {reason}{kept}"
        else:
            self.fault = f"{self._topic} is not recorded in {self.path}: {reason}"
        self._logger.warning(self.fault)


def _typestore() -> Typestore:
    """The standard types and that of the statistics; raises InputError where its definition is not installed."""
    file = share_file("msg", "FrameStats.msg", package="radius_fps_interfaces")
    if file is None:
        raise InputError("FrameStats.msg of radius_fps_interfaces is not installed")
    store = get_typestore(Stores.ROS2_HUMBLE)
    store.register(get_types_from_msg(file.read_text(), TYPE))
    return store
