"""The PointCloud2 messages of a recorded bag (sqlite3 or mcap) through rosbags; no ROS needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.interfaces import Connection
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from ..errors import InputError
from .encode import CloudData
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
    with _open_reader(path, _storage(path)) as reader:
        yield CloudBag(path, reader, _choose(path, list(reader.connections), topic))


@contextmanager
def _open_reader(path: Path, place: Path) -> Iterator[Reader]:
    for database in place.glob("*.db3") if place.is_dir() else (place,):
        _check_pages(path, database)
    with _one_sentence(path, "is not a readable bag"):
        reader = Reader(place)
        reader.open()
    try:
        yield reader
    finally:
        reader.close()


class Recording:
    """An open bag with everything in it, whatever its types.

    Attributes:
        path: the bag as the user named it.
        connections: its topics with their types, type definitions, QoS profiles and message counts.
        storage: ``"sqlite3"`` or ``"mcap"``.
        files: the files it consists of, in the order of their names.
        custom_data, ros_distro: what its metadata says.
    """

    def __init__(self, path: Path, place: Path, reader: Reader) -> None:
        self.path = path
        self._reader = reader
        self.connections: list[Connection] = list(reader.connections)
        self.files = sorted(_bag_files(place)) if place.is_dir() else [place]
        self.storage = "mcap" if any(".mcap" in file.suffixes for file in self.files) else "sqlite3"
        metadata = reader.storage.metadata
        self.custom_data: dict[str, str] = dict(metadata.custom or {})
        self.ros_distro: str = metadata.ros_distro or ""

    def clouds(self, topics: Sequence[str] = ()) -> list[Connection]:
        """Return the PointCloud2 connections of these topics, or of all; raises what `open_bag` raises."""
        wanted: Sequence[str | None] = topics or [None]
        chosen = [c for topic in wanted for c in _choose(self.path, self.connections, topic)]
        return list({(c.id, c.topic): c for c in chosen}.values())

    def messages(self, connections: Sequence[Connection], skip: int = 0) -> Iterator[tuple[Connection, int, bytes]]:
        """Yield (connection, nanoseconds, CDR bytes) in the bag's order, without the first ``skip``.

        Raises:
            InputError: the bag is damaged at this place.
        """
        count = skip
        messages = islice(self._reader.messages(connections), skip, None) if connections else iter(())
        while True:
            with _one_sentence(self.path, f"is damaged after {count} messages"):
                record = next(messages, None)
            if record is None:
                return
            connection, timestamp, cdr = record
            yield connection, timestamp, bytes(cdr)
            count += 1

    def at(self, topic: str, timestamp: int) -> bytes:
        """Return the first message of a topic that was recorded at ``timestamp`` [ns].

        Raises:
            InputError: there is none, or the bag is damaged there.
        """
        connections = [connection for connection in self.connections if connection.topic == topic]
        with _one_sentence(self.path, f"has no readable message on {topic!r} at {timestamp}"):
            _, _, cdr = next(self._reader.messages(connections, timestamp, timestamp + 1))
        return bytes(cdr)


@contextmanager
def open_recording(path: str | Path) -> Iterator[Recording]:
    """Open a bag for everything in it; see `open_bag`.

    Raises:
        InputError: there is no such bag, or it is damaged.
    """
    path = Path(path)
    place = _storage(path)
    with _open_reader(path, place) as reader:
        yield Recording(path, place, reader)


def _bag_files(folder: Path) -> Iterator[Path]:
    for file in folder.iterdir():
        if file.name == "metadata.yaml" or any(suffix in file.suffixes for suffix in STORAGE_SUFFIXES):
            yield file


def deserialize_cloud(cdr: bytes) -> Any:
    """Return a serialized PointCloud2 (CDR) as a message object that `decode_cloud` reads.

    Raises:
        InputError: the bytes are no PointCloud2.
    """
    with _one_sentence("the message", "is not a readable PointCloud2"):
        return _typestore().deserialize_cdr(cdr, POINT_CLOUD)


def serialize_cloud(data: CloudData, header: Any) -> bytes:
    """Return a PointCloud2 with this header, which `deserialize_cloud` made, as CDR bytes (little-endian)."""
    types = _typestore().types
    field = types["sensor_msgs/msg/PointField"]
    message = types[POINT_CLOUD](
        header=header,
        height=data.height,
        width=data.width,
        fields=[field(name=f.name, offset=f.offset, datatype=f.datatype, count=f.count) for f in data.fields],
        is_bigendian=data.is_bigendian,
        point_step=data.point_step,
        row_step=data.row_step,
        data=np.frombuffer(data.data, np.uint8),
        is_dense=data.is_dense,
    )
    return bytes(_typestore().serialize_cdr(message, POINT_CLOUD))


@lru_cache(maxsize=1)
def _typestore() -> Typestore:
    return get_typestore(Stores.ROS2_HUMBLE)  # PointCloud2 has been the same in every distribution


def _storage(path: Path) -> Path:
    """Return what rosbags opens: a folder with metadata, or a storage file."""
    try:
        if not path.exists():
            raise InputError(f"there is no bag at {path}")
        is_folder = path.is_dir()
        has_metadata = is_folder and (path / "metadata.yaml").exists()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if path.name == "metadata.yaml":
        return path.parent
    if is_folder:
        if not has_metadata:
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
