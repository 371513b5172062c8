"""A bag that grows by whole parts and can be continued after any interruption.

``OUT.partial`` holds ``job.json`` (what was asked), ``bag/`` (the finished storage files of the split bag) and
``<k>.json`` for each part. A part counts once its ``<k>.json`` stands under that name, which happens after its storage
file is on the disk; everything else in there is dropped when the run is continued. The last step renames ``bag/`` to
OUT.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.errors import WriterError

from ..errors import InputError
from .definitions import HASH_NOT_SET, OutputTopic
from .settings import STORAGES

REPORT = "report.json"
PLUGINS = dict(zip(STORAGES, (StoragePlugin.SQLITE3, StoragePlugin.MCAP), strict=True))
INFORMATION = "rosbag2_bagfile_information"
Record = dict[str, Any]


class PartialBag:
    """See the module; one process at a time.

    Attributes:
        records: what `finish_part` was given for each finished part, those of earlier runs included.
        folder: where it grows.
    """

    def __init__(self, out: Path, folder: Path, storage: str, topics: Sequence[OutputTopic]) -> None:
        self.out = out
        self.folder = folder
        self.records: list[Record] = []
        self._plugin = PLUGINS[storage]
        self._topics = topics
        self._writer: Writer | None = None
        self._connections: list[Connection] = []
        while (file := folder / f"{len(self.records)}.json").exists():
            record = json.loads(file.read_text())
            if not all((self.bag / path).exists() for path in _files(record)):
                break  # the bag was completed and has gone since
            self.records.append(record)
        self._drop_unfinished()

    @property
    def bag(self) -> Path:
        """The folder of finished storage files."""
        return self.folder / "bag"

    def write(self, topic: int, timestamp: int, cdr: bytes) -> None:
        """Append a message to the part in work; ``topic`` is a place in the topics.

        Raises:
            InputError: the disk is full or broken.
        """
        with self._storing():
            if self._writer is None:
                self._open_part()
            assert self._writer is not None
            self._writer.write(self._connections[topic], timestamp, cdr)

    def finish_part(self, record: Record) -> None:
        """Make everything written so far durable, together with ``record``, which JSON must be able to hold.

        Raises:
            InputError: the disk is full or broken.
        """
        number = len(self.records)
        with self._storing():
            record = {**record, "metadata": None}
            if self._writer is not None:
                writer, self._writer = self._writer, None
                writer.close()
                record["metadata"] = yaml.safe_load(writer.metapath.read_text())[INFORMATION]
                (file,) = (file for file in writer.path.iterdir() if file.name != "metadata.yaml")
                _sync(file)
                file.replace(self.bag / file.name)
                _sync(self.bag)
                shutil.rmtree(writer.path)
            _write_durably(self.folder / f"{number}.json", json.dumps(record))
        self.records.append(record)

    def drop_part(self) -> None:
        """Give up what was written since the last finished part."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError, sqlite3.Error):  # the disk has failed already; what it holds is not used
                writer.abort()
            self._drop_unfinished()

    def write_metadata(self, custom_data: dict[str, str], ros_distro: str) -> None:
        """Write the whole bag's metadata.yaml.

        Raises:
            InputError: the disk is full or broken.
        """
        parts = [record["metadata"] for record in self.records if record["metadata"] is not None]
        information = {INFORMATION: _joined(parts, custom_data, ros_distro)}
        self.write_text("metadata.yaml", yaml.safe_dump(information, sort_keys=False))

    def write_text(self, name: str, text: str) -> None:
        """Write another file into the bag's folder; raises what `write` raises."""
        with self._storing():
            _write_durably(self.bag / name, text)

    def complete(self) -> None:
        """Rename the finished bag to OUT and remove the rest."""
        with self._storing():
            if self.out.exists():
                shutil.rmtree(self.out)  # empty, or given up by the user's restart
            self.bag.rename(self.out)
            _sync(self.out.parent)
            self.discard()

    def discard(self) -> None:
        """Remove everything."""
        self.drop_part()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open_part(self) -> None:
        path = self.folder / "work" / f"{self.out.name}_{len(self.records)}"
        writer = Writer(path, version=Writer.VERSION_LATEST, storage_plugin=self._plugin)
        writer.open()
        self._writer = writer
        self._connections = [
            writer.add_connection(
                topic.name,
                topic.type,
                msgdef=topic.definition,
                rihs01=topic.type_hash,
                offered_qos_profiles=topic.qos,
            )
            for topic in self._topics
        ]

    def _drop_unfinished(self) -> None:
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        finished = {path for record in self.records for path in _files(record)}
        self.bag.mkdir(exist_ok=True)
        for file in self.bag.iterdir():
            if file.name not in finished:
                file.unlink()

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, WriterError) as error:
            self.drop_part()
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"{self.out} cannot be written: {reason}; what was finished is kept in {self.folder}, "
                "and the same command goes on from there"
            ) from error


@contextmanager
def open_partial_bag(
    out: Path, job: dict[str, Any], storage: str, topics: Sequence[OutputTopic], restart: bool = False
) -> Iterator[PartialBag]:
    """Begin a bag, or go on with one that an earlier run of the same job left.

    Args:
        out: the folder that the finished bag gets.
        job: everything that decides what is written.
        storage, topics: of the bag.
        restart: begin anew, whatever was left, and replace a finished output.

    Raises:
        InputError: ``out`` exists, an earlier run's job differs, another process writes it, or it cannot be written.
    """
    folder = partial_folder(out)
    try:
        _check_free(out, restart)
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{out} is being written by another process") from None
        job = json.loads(json.dumps(job))  # as it will be read back
        begun = folder / "job.json"
        if not begun.exists():
            _check_ours(folder)
        try:
            if restart or not (folder / "0.json").exists():
                _clear(folder)
            else:
                _check_same(json.loads(begun.read_text()), job, folder)
            if not begun.exists():
                _write_durably(begun, json.dumps(job, indent=1))
            partial = PartialBag(out, folder, storage, topics)
        except OSError as error:
            raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
        try:
            yield partial
        finally:
            partial.drop_part()
            if not partial.records:
                partial.discard()


def partial_folder(out: Path) -> Path:
    """Where a bag grows before it is complete."""
    return out.with_name(f"{out.name}.partial")


def _check_free(out: Path, restart: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / REPORT).exists():
        raise InputError(f"{out} exists already; name another output")
    if not restart:
        raise InputError(f"{out} exists already and is complete; name another output, or replace it with --restart")


def _check_ours(folder: Path) -> None:
    strangers = sorted(file.name for file in folder.iterdir() if file.name not in ("lock", "job.json.new"))
    if strangers:
        raise InputError(f"{folder} exists and is no interrupted run, it holds {strangers[0]!r}; name another output")


def _check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    for name in (*now, *before):
        if before.get(name) != now.get(name):
            if name == "bag":
                what = "from a bag that has been changed since"
            elif name in ("version", "backend"):
                what = f"with {name} {before.get(name)}, and this is {now.get(name)}"
            else:
                what = f"with --{name} {_shown(before.get(name))}, not {_shown(now.get(name))}"
            raise InputError(f"{folder} was begun {what}; finish it as it was begun, or begin anew with --restart")


def _shown(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return {"None": "unset", "": "unset", "True": "on", "False": "off"}.get(text, text[:120])


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name == "lock":
            continue
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _files(record: Record) -> list[str]:
    """The storage files of a part: one, or none where nothing was written."""
    return list(record["metadata"]["relative_file_paths"]) if record["metadata"] is not None else []


def _joined(parts: list[dict[str, Any]], custom_data: dict[str, str], ros_distro: str) -> dict[str, Any]:
    """The metadata of a split bag from that of its parts, which list the same topics in the same order."""
    spans = [
        (part["starting_time"]["nanoseconds_since_epoch"], part["duration"]["nanoseconds"])
        for part in parts
        if part["message_count"]
    ]
    start = min(begin for begin, _ in spans)
    topics = [dict(entry) for entry in parts[0]["topics_with_message_count"]]
    for k, topic in enumerate(topics):
        topic["message_count"] = sum(part["topics_with_message_count"][k]["message_count"] for part in parts)
        if topic["topic_metadata"]["type_description_hash"] == HASH_NOT_SET:
            topic["topic_metadata"]["type_description_hash"] = ""
    return {
        **parts[0],
        "relative_file_paths": [path for part in parts for path in part["relative_file_paths"]],
        "starting_time": {"nanoseconds_since_epoch": start},
        "duration": {"nanoseconds": max(begin + duration for begin, duration in spans) - start},
        "message_count": sum(part["message_count"] for part in parts),
        "topics_with_message_count": topics,
        "files": [file for part in parts for file in part["files"]],
        "custom_data": custom_data or None,
        "ros_distro": ros_distro or parts[0]["ros_distro"],
    }


def _write_durably(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8", errors="backslashreplace")  # a file name in it need not be text
    _sync(new)
    new.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
