"""The growing bag alone: whatever step a run is killed at, the next one ends with the same messages."""

import json
import os
import shutil
from pathlib import Path

import pytest
from rosbags.rosbag2 import Reader

from radius_fps_ros.errors import InputError
from radius_fps_ros.offline.definitions import HASH_NOT_SET, NODE_QOS, OutputTopic
from radius_fps_ros.offline.partial_bag import PartialBag, open_partial_bag, partial_folder

TOPICS = (
    OutputTopic("/a", "std_msgs/msg/String", "string data\n", "RIHS01_" + 64 * "1", (NODE_QOS,)),
    OutputTopic("/b", "some_msgs/msg/Unknown", "", HASH_NOT_SET, ()),
)
MESSAGES = [(k % 2, 1000 + k, f"message {k}".encode()) for k in range(10)]
JOB = {"n": 5, "roi-min": [1.5, 2, 3], "bag": {"x.mcap": [3, 4]}, "copy": ["none"]}


class KilledError(BaseException):
    pass


def drive(out, storage, job=JOB, every=3, **options):
    """Write all messages in parts, from where an earlier run stopped."""
    with open_partial_bag(out, job, storage, TOPICS, **options) as partial:
        position = partial.records[-1]["position"] if partial.records else 0
        for topic, time, cdr in MESSAGES[position:]:
            partial.write(topic, time, cdr)
            position += 1
            if position % every == 0 or position == len(MESSAGES):
                partial.finish_part({"position": position})
        partial.write_metadata({"who": "me"}, "kilted")
        partial.write_text("report.json", "{}")
        partial.complete()
        return [record["position"] for record in partial.records]


def content(bag):
    with Reader(bag) as reader:
        places = {c.topic: k for k, c in enumerate(reader.connections)}
        return [(places[c.topic], time, bytes(cdr)) for c, time, cdr in reader.messages()]


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_a_split_bag(tmp_path, storage):
    out = tmp_path / "deep" / "out"
    assert drive(out, storage) == [3, 6, 9, 10]
    assert content(out) == MESSAGES
    assert not partial_folder(out).exists()
    assert len(list(out.iterdir())) == 4 + 2
    with Reader(out) as reader:
        assert [c.msgcount for c in reader.connections] == [5, 5]
        assert [c.digest for c in reader.connections] == [TOPICS[0].type_hash, ""]
        assert [c.ext.offered_qos_profiles for c in reader.connections] == [[NODE_QOS], []]
        assert (reader.start_time, reader.end_time, reader.message_count) == (1000, 1010, 10)
        assert reader.storage.metadata.custom == {"who": "me"}
        assert reader.storage.metadata.ros_distro == "kilted"
        assert [file["message_count"] for file in reader.storage.files] == [3, 3, 3, 1]


STEPS = ((os, "fsync"), (Path, "replace"), (Path, "rename"), (shutil, "rmtree"), (Path, "unlink"), (Path, "mkdir"))


def test_killed_at_every_step(tmp_path):
    """Injected before each call that changes the disk for good; nothing is tidied up afterwards, as after kill -9."""
    step = 0
    while True:
        out = tmp_path / f"out{step}"
        with pytest.MonkeyPatch.context() as patch:
            left = [step]

            def killing(real, left=left):
                def call(*arguments, **options):
                    left[0] -= 1
                    if left[0] == -1:
                        raise KilledError
                    return real(*arguments, **options)

                return call

            for owner, name in STEPS:
                patch.setattr(owner, name, killing(getattr(owner, name)))
            patch.setattr(PartialBag, "drop_part", lambda self: None)
            patch.setattr(PartialBag, "discard", lambda self: shutil.rmtree(self.folder))
            try:
                drive(out, "mcap", every=6)
                killed = False
            except KilledError:
                killed = True
        if not killed:
            break
        if not (out / "metadata.yaml").exists():
            drive(out, "mcap", every=6)
        assert content(out) == MESSAGES, step
        step += 1
    assert step > 20


def test_killed_after_the_last_step_and_the_output_removed(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(PartialBag, "discard", lambda self: None)
        drive(out, "mcap")
    assert partial_folder(out).exists()
    shutil.rmtree(out)
    drive(out, "mcap")
    assert content(out) == MESSAGES
    assert not partial_folder(out).exists()


def test_finished_parts_are_not_written_again(tmp_path):
    out = tmp_path / "out"
    with open_partial_bag(out, JOB, "mcap", TOPICS) as partial:
        partial.write(*MESSAGES[0])
        partial.finish_part({"position": 1})
        partial.write(*MESSAGES[1])
    before = (partial_folder(out) / "bag" / "out_0.mcap").stat().st_mtime_ns
    assert drive(out, "mcap") == [1, 3, 6, 9, 10]
    assert (out / "out_0.mcap").stat().st_mtime_ns == before


def test_nothing_stays_of_a_run_without_a_part(tmp_path):
    with open_partial_bag(tmp_path / "out", JOB, "mcap", TOPICS) as partial:
        partial.write(*MESSAGES[0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 6}, "was begun with --n 5, not 6; finish it as it was begun, or begin anew with --restart"),
        ({"roi-min": None}, "was begun with --roi-min 1.5 2 3, not unset;"),
        ({"bag": {"x.mcap": [3, 5]}}, "was begun from a bag that has been changed since;"),
        ({"version": "2"}, "was begun with version None, and this is 2;"),
    ],
)
def test_another_job_is_refused(tmp_path, change, words):
    out = tmp_path / "out"
    with open_partial_bag(out, JOB, "mcap", TOPICS) as partial:
        partial.write(*MESSAGES[0])
        partial.finish_part({"position": 1})
    with pytest.raises(InputError) as refused:
        drive(out, "mcap", JOB | change)
    assert words in str(refused.value)
    assert drive(out, "mcap", JOB | change, restart=True) == [3, 6, 9, 10]
    assert content(out) == MESSAGES


def test_outputs_that_exist(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    drive(out, "mcap")  # an empty folder is as good as none
    with pytest.raises(InputError, match="out exists already and is complete; name another output, or replace it"):
        drive(out, "mcap")
    assert drive(out, "sqlite3", restart=True) == [3, 6, 9, 10]
    assert content(out) == MESSAGES
    (out / "report.json").unlink()
    with pytest.raises(InputError, match=r"out exists already; name another output$"):
        drive(out, "mcap", restart=True)
    assert content(out) == MESSAGES
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(InputError, match="file exists already"):
        drive(file, "mcap", restart=True)
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        drive(file / "out", "mcap")
    strange = tmp_path / "new.partial"
    strange.mkdir()
    (strange / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"new\.partial exists and is no interrupted run, it holds 'thesis\.tex'"):
        drive(tmp_path / "new", "mcap", restart=True)
    assert (strange / "thesis.tex").exists()


def test_one_process_at_a_time(tmp_path):
    with (
        open_partial_bag(tmp_path / "out", JOB, "mcap", TOPICS),
        pytest.raises(InputError, match="is being written by another process"),
        open_partial_bag(tmp_path / "out", JOB, "mcap", TOPICS),
    ):
        pass


def test_records_come_back(tmp_path):
    record = {"position": 1, "frames": [{"coverage_radius": float("inf"), "topic": "/ü"}]}
    with open_partial_bag(tmp_path / "out", JOB, "mcap", TOPICS) as partial:
        partial.finish_part(record)
    with open_partial_bag(tmp_path / "out", json.loads(json.dumps(JOB)), "mcap", TOPICS) as partial:
        assert partial.records == [record | {"metadata": None}]
