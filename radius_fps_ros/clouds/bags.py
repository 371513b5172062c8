"""The PointCloud2 messages of a recorded bag (sqlite3 or mcap) through rosbags; no ROS needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from ..errors import InputError
from .wording import describe_error, describe_names

POINT_CLOUD = "sensor_msgs/msg/PointCloud2"
STORAGE_SUFFIXES = (".db3", ".mcap")


@dataclass(frozen=True)
class BagMessage:
    """One recorded cloud: its topic, when it was recorded [ns], and its serialized bytes (CDR)."""

    topic: str
    timestamp: int
    cdr: bytes


class CloudBag:
    """An open bag; iterating gives its PointCloud2 messages in the order of their times.

    Attributes:
        path: the bag as the user named it.
        counts: how many messages each chosen topic holds, as the bag's index says.
    """

    def __init__(self, path: Path, reader: Reader, connections: list[Connection]) -> None:
        self.path = path
        self._reader = reader
        self._connections = connections
        self.counts: dict[str, int] = {}
        for connection in connections:
            self.counts[connection.topic] = self.counts.get(connection.topic, 0) + connection.msgcount

    def __iter__(self) -> Iterator[BagMessage]:
        """Yield the messages.

        Raises:
            InputError: the bag is damaged at this place, or holds not a single one.
        """
        messages = self._reader.messages(self._connections)
        count = 0
        while True:
            with _one_sentence(self.path, f"is damaged after {count} clouds"):
                record = next(messages, None)
            if record is None:
                break
            connection, timestamp, cdr = record
            yield BagMessage(connection.topic, timestamp, bytes(cdr))
            count += 1
        if count == 0:
            raise InputError(f"{self.path} has no message on {describe_names(self.counts)}")


@contextmanager
def open_bag(path: str | Path, topic: str | None = None) -> Iterator[CloudBag]:
    """Open a bag for its clouds: those of one topic, or of all topics of type PointCloud2.

    Args:
        path: the bag's folder, its metadata.yaml, or one .db3 or .mcap file.
        topic: the topic's name, with or without the leading slash.

    Raises:
        InputError: there is no such bag, it is damaged, it holds no PointCloud2, or has no such topic.
    """
    path = Path(path)
    place = _storage(path)
    for database in place.glob("*.db3") if place.is_dir() else (place,):
        _check_pages(path, database)
    with _one_sentence(path, "is not a readable bag"):
        reader = Reader(place)
        reader.open()
    try:
        yield CloudBag(path, reader, _choose(path, list(reader.connections), topic))
    finally:
        reader.close()


def cloud_topics(path: str | Path) -> list[str]:
    """Return the names of a bag's PointCloud2 topics; raises what `open_bag` raises."""
    with open_bag(path) as bag:
        return list(bag.counts)


def deserialize_cloud(cdr: bytes) -> Any:
    """Return a serialized PointCloud2 (CDR) as a message object that `decode_cloud` reads.

    Raises:
        InputError: the bytes are no PointCloud2.
    """
    with _one_sentence("the message", "is not a readable PointCloud2"):
        return _typestore().deserialize_cdr(cdr, POINT_CLOUD)


@lru_cache(maxsize=1)
def _typestore() -> Typestore:
    return get_typestore(Stores.ROS2_HUMBLE)  # PointCloud2 has been the same in every distribution


def _storage(path: Path) -> Path:
    """Return what rosbags opens: a folder with metadata, or a storage file."""
    if not path.exists():
        raise InputError(f"there is no bag at {path}")
    if path.name == "metadata.yaml":
        return path.parent
    if path.is_dir():
        if not (path / "metadata.yaml").exists():
            raise InputError(f"{path} is not a bag: it has no metadata.yaml; a .db3 or .mcap file can be named itself")
        return path
    if path.suffix not in STORAGE_SUFFIXES:
        raise InputError(f"{path} is not a bag; a bag's folder, metadata.yaml, .db3 or .mcap file is needed")
    return path


def _check_pages(path: Path, file: Path) -> None:
    """Refuse an SQLite file that ends inside a page: SQLite takes the rest as zeros, and clouds would be wrong."""
    try:
        with file.open("rb") as database:
            header = database.read(18)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if header.startswith(b"SQLite format 3\0") and len(header) == 18:
        page = int.from_bytes(header[16:], "big")
        page = 65536 if page == 1 else page
        if page and file.stat().st_size % page:
            raise InputError(f"{path} is not a readable bag: {file.name} is cut short, inside one of SQLite's pages")


def _choose(path: Path, connections: list[Connection], topic: str | None) -> list[Connection]:
    clouds = [connection for connection in connections if connection.msgtype == POINT_CLOUD]
    available = describe_names(sorted({connection.topic for connection in clouds}))
    if topic is None:
        if not connections:
            raise InputError(f"{path} is empty: it has no topics")
        if not clouds:
            others = describe_names(sorted({f"{c.topic} ({c.msgtype})" for c in connections}))
            raise InputError(f"{path} holds no {POINT_CLOUD}; its topics are: {others}")
        return clouds
    named = [connection for connection in connections if connection.topic in (topic, f"/{topic}")]
    chosen = [connection for connection in named if connection.msgtype == POINT_CLOUD]
    if not named:
        raise InputError(f"{path} has no topic {topic!r}; its PointCloud2 topics are: {available}")
    if not chosen:
        raise InputError(
            f"topic {topic!r} of {path} holds {named[0].msgtype}, not {POINT_CLOUD}; "
            f"its PointCloud2 topics are: {available}"
        )
    return chosen


@contextmanager
def _one_sentence(subject: object, verdict: str) -> Iterator[None]:
    """Turn whatever the bag library raises inside into an InputError.

    Damaged bytes make its parsers fail in all their ways (seen: its own errors, SQLite's, Unicode, overflow, memory),
    so no list of types would be complete. Nothing but calls into that library stands inside.
    """
    try:
        yield
    except Exception as error:
        raise InputError(f"{subject} {verdict}: {describe_error(error)}") from error
