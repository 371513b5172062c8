"""The bag that is whole after every message: read back at every moment, and at every place where a disk may be full."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.nodes.whole_mcap import WholeBag

STRING = "std_msgs/msg/String"
SIZE = 60_000  # of a message: 18 fill a chunk


def begin(path):
    bag = WholeBag(path)
    bag.open()
    return bag, bag.add_connection("/text", STRING, typestore=get_typestore(Stores.ROS2_HUMBLE))


def message(k):
    return 10**9 + k, bytes([k]) * SIZE


def content(place):
    with Reader(place) as reader:
        return [(time, bytes(cdr)) for _, time, cdr in reader.messages()]


def test_the_file_can_be_read_after_every_message(tmp_path):
    bag, connection = begin(tmp_path / "bag")
    file = tmp_path / "bag" / "bag.mcap"
    assert content(file) == []
    for k in range(40):  # two chunks, and a third in work
        bag.write(connection, *message(k))
        assert content(file) == [message(j) for j in range(k + 1)]
        assert file.stat().st_size < (k + 1) * (SIZE + 100) + 1000  # nothing stands in it twice
    bag.close()
    bag.abort()  # does nothing any more
    assert content(tmp_path / "bag") == content(file) == [message(k) for k in range(40)]
    with Reader(file) as reader:
        assert len(reader.storage.chunks) == 3  # the index
        assert reader.message_count == 40
        assert "string data" in reader.connections[0].msgdef.data


@contextlib.contextmanager
def no_file_larger_than(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_until_full(path, count):
    """Write messages until the disk is full; returns them, or ``None`` when there was room for ``count``."""
    written = []
    bag, connection = begin(path)
    try:
        for k in range(count):
            bag.write(connection, *message(k))
            written.append(message(k))
        bag.close()
    except OSError:
        bag.abort()
        assert content(path / f"{path.name}.mcap") == written
        return written
    assert content(path) == written
    return None


def lengths(tmp_path, count):
    """The file's length before and after the last of ``count`` messages, and closed; its name is in the metadata."""
    bag, connection = begin(tmp_path / "one")
    file = tmp_path / "one" / "one.mcap"
    sizes = [file.stat().st_size]
    for k in range(count):
        bag.write(connection, *message(k))
        sizes.append(file.stat().st_size)
    bag.close()
    return sizes[-2], sizes[-1], file.stat().st_size


@pytest.mark.parametrize("count", [1, 2, 18, 19])  # the chunk is finished with the 18th
def test_a_full_disk_costs_only_the_message_that_did_not_fit(tmp_path, count):
    before, after, closed = lengths(tmp_path, count)
    places = [*range(before, after, 5003), *range(after - 60, after + 3), *range(after, closed, 31), closed - 1]
    for size in sorted(set(places)):
        with no_file_larger_than(size):
            written = write_until_full(tmp_path / "bag", count)
        assert written is not None
        assert len(written) == (count if size >= after else count - 1)
        shutil.rmtree(tmp_path / "bag")
    with no_file_larger_than(closed):
        assert write_until_full(tmp_path / "bag", count) is None


@pytest.mark.parametrize("size", [0, 1, 70])
def test_a_disk_without_room_for_anything_is_left_as_it_was(tmp_path, size):
    with no_file_larger_than(size), pytest.raises(OSError, match="File too large"):
        begin(tmp_path / "bag")
    assert not any(tmp_path.iterdir())
    begin(tmp_path / "bag")[0].close()


NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")  # where anybody may mount
FILL = """
import subprocess, sys
from pathlib import Path
from test_whole_mcap import write_until_full
disk = sys.argv[1]
for size in (4, 8, 64, *range(1040, 1120, 8), 2200):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
    try:
        written = write_until_full(Path(disk, "bag"), 100)
    except OSError:
        assert not any(Path(disk).iterdir())
        written = []
    print(size, len(written), flush=True)
    subprocess.run(["umount", disk], check=True)
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0,
    reason="mounting is not allowed, even in a namespace of its own",
)
def test_a_file_system_that_is_really_full(tmp_path):
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", FILL, tmp_path],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    counts = {int(size): int(count) for size, count in (line.split() for line in done.stdout.splitlines())}
    assert counts[4] == 0
    assert counts[64] == 1
    assert 16 <= counts[1040] <= counts[1112] <= 18
    assert 34 <= counts[2200] <= 37
