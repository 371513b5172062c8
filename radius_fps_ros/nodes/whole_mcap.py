"""A bag in MCAP that is whole after every message, however its writing ends."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.enums import CompressionMode
from rosbags.rosbag2.storage_mcap import McapWriter

# The records DataEnd and Footer, both without checksum and index, and the magic: what every reader looks for first.
END = (
    b"\x0f" + (4).to_bytes(8, "little") + bytes(4) + b"\x02" + (20).to_bytes(8, "little") + bytes(20) + b"\x89MCAP0\r\n"
)


class WholeMcap(McapWriter):
    """A storage file of rosbags that can be read at any time: it ends in order after every message.

    rosbags keeps messages in memory until they fill a chunk of 1 MiB, and writes the end of the file when it is closed.
    Here the messages of the chunk in work stand behind the finished chunks as plain records, followed by an end without
    index, and the finished chunk takes their place. Closing writes the index. The file is not whole only while a chunk
    is put in its place, for about a millisecond each MiB.
    """

    def __init__(self, path: Path, compression: CompressionMode) -> None:
        """Create the file in the folder ``path``, which must be empty; raises OSError, and then removes the folder."""
        try:
            super().__init__(path, compression)
            self.bio.flush()
            self._begin_chunk()
            self._save()
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def write(self, connection: Connection, timestamp: int, data: bytes | memoryview) -> None:
        """Write a message; it stands in the file when this returns. Raises OSError."""
        super().write(connection, timestamp, data)
        self._save()

    def close_chunk(self) -> None:
        """Put the finished chunk in the place of its records; raises OSError."""
        super().close_chunk()
        self.bio.write(END)
        self.bio.seek(-len(END), os.SEEK_CUR)
        self._begin_chunk()

    def abort(self) -> None:
        """Close without index, after an error too: what was saved before it can be read. Raises OSError."""
        with suppress(OSError):  # what its buffer still holds is not needed
            self.bio.close()
        saved = self._records.getvalue()[: self._saved] + END
        # These bytes have stood there before, so there is room for them on a full disk.
        with self.path.open("r+b", buffering=0) as file:
            file.truncate(self._start + len(saved))
            _write_at(file.fileno(), saved, self._start)

    def _begin_chunk(self) -> None:
        self._start = self.bio.tell()  # of the chunk in the file
        self._records = self.chunk.bio  # kept until the chunk is in the file: rosbags lets go of it before
        self._saved = 0  # bytes of the records that are in the file

    def _save(self) -> None:
        self._records.seek(self._saved)
        _write_at(self.bio.fileno(), self._records.read() + END, self._start + self._saved)
        self._saved = self._records.tell()


class WholeBag(Writer):
    """rosbags' writer of bags, with a `WholeMcap` as its storage file."""

    STORAGE_PLUGINS = {**Writer.STORAGE_PLUGINS, StoragePlugin.MCAP: WholeMcap}  # noqa: RUF012 as in the base class

    def __init__(self, path: Path) -> None:
        super().__init__(path, version=Writer.VERSION_LATEST, storage_plugin=StoragePlugin.MCAP)


def _write_at(descriptor: int, data: bytes, place: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, place)
        data, place = data[written:], place + written
