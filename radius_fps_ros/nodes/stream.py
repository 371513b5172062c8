"""Serialized clouds with their times, from a bag or from the synthetic street, and their paced publication."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from ..clouds import Cloud, encode_cloud
from ..clouds.bags import open_bag
from ..clouds.synthetic import FRAME_SECONDS, StreetScene
from ..errors import InputError
from .messages import cloud_message

LONGEST_GAP = 86_400.0  # s between two clouds; a bag with more has wrong stamps and would seem to hang


@dataclass(frozen=True)
class StreamFrame:
    """One serialized PointCloud2 (CDR), when it is due [s from the start of the stream], and when recorded [ns]."""

    topic: str
    seconds: float
    cdr: bytes
    recorded: int = 0


def street_frames(count: int, seed: int = 0) -> Iterator[StreamFrame]:
    """The synthetic 64-beam street at 10 Hz, frame id ``lidar``."""
    scene = StreetScene(seed=seed)
    for k in range(count):
        message = cloud_message(encode_cloud(Cloud.of_records(scene.frame(k))), Header(frame_id="lidar"))
        seconds = k * FRAME_SECONDS
        message.header.stamp.sec = int(seconds)
        message.header.stamp.nanosec = round(seconds % 1 * 1e9)
        yield StreamFrame("points", seconds, serialize_message(message))


def bag_frames(path: Path, topic: str | None = None) -> Iterator[StreamFrame]:
    """The PointCloud2 messages of a bag, raw, in the order of their times; of one topic or of all.

    Raises:
        InputError: the bag cannot be read, or has no such topic.
    """
    with open_bag(path, topic) as bag:
        first = last = 0
        for number, message in enumerate(bag):
            first = first if number else message.timestamp
            gap = (message.timestamp - last) * 1e-9 if number else 0.0
            if abs(gap) > LONGEST_GAP:
                raise InputError(f"{path} has a gap of {gap:.3g} s after {number} clouds; its times cannot be right")
            last = message.timestamp
            _check_cloud(path, number, message.cdr)
            yield StreamFrame(message.topic, (message.timestamp - first) * 1e-9, message.cdr, message.timestamp)


def _check_cloud(path: Path, number: int, cdr: bytes) -> None:
    # Subscribers would answer bytes that they cannot read with silence.
    try:
        deserialize_message(cdr, PointCloud2)
    except Exception as error:
        raise InputError(
            f"{path}: cloud {number} is no readable PointCloud2 ({' '.join(str(error).split())})"
        ) from None


def play(
    frames: Iterable[StreamFrame],
    publish: Callable[[StreamFrame], None],
    *,
    rate: float = 1.0,
    stop: threading.Event | None = None,
) -> int:
    """Publish each frame when it is due, ``rate`` times as fast as recorded; returns how many were published.

    A late frame goes out at once and the clock is not shifted, so that a slow moment does not slow the whole stream.
    """
    begin = time.monotonic()
    count = 0
    for frame in frames:
        wait = begin + frame.seconds / rate - time.monotonic()
        if stop is not None:
            if stop.wait(max(wait, 0)):
                break
        elif wait > 0:
            time.sleep(wait)
        publish(frame)
        count += 1
    return count
