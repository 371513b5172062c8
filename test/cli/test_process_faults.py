"""``radius-fps process`` when something is wrong: bad messages, interruptions, refusals."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import pytest
from process_bags import PLUGINS, START, STEP, N, cloud_cdr, content, empty, lacking, malformed, on, write_bag
from rosbags.rosbag2 import Writer

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.clouds.bags import deserialize_cloud
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.offline import Job, process_bag

# ---- bad messages ----


def test_bad_messages_are_reported_once_a_kind_and_counted(process, tmp_path):
    bad = {
        1: cloud_cdr(1)[:90],
        2: malformed(2),
        3: malformed(3),
        5: lacking(5),
        6: lacking(6),
        7: cloud_cdr(7)[:4],
        9: empty(9),
    }
    bag = write_bag(tmp_path / "bag", frames=10, topics=("/top",), replaced=bad)
    code, out, err = process(bag, "-o", tmp_path / "out", "--features", "--copy", "/top")
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 4, err
    assert "cloud 2 on /top is refused: the message is not a readable PointCloud2" in lines[0]
    assert "cloud 3 on /top is refused: data holds" in lines[1]
    assert "cloud 6 on /top is without features: " in lines[2]
    assert "intensity" in lines[2]
    assert "cloud 10 on /top is refused: the cloud has no points" in lines[3]
    assert "10 clouds on /top, 5 processed, 5 refused" in out
    assert "note: 5 of 10 clouds were refused" in out
    assert "note: 2 clouds have samples but no features" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["counts"] == {
        "clouds": 10, "processed": 5, "refused": 5, "without_features": 2, "copied": 10, "written": 10 + 5 + 3,
    }  # fmt: skip
    assert sorted(kind["count"] for kind in report["refusals"]) == [1, 2, 2]
    assert report["frames"]["refused"] == [False, True, True, True, False, False, False, True, False, True]
    assert [time for time, _ in on(tmp_path / "out", "/top/sampled")] == [START + k * STEP for k in (0, 4, 5, 6, 8)]
    assert len(on(tmp_path / "out", "/top/features")) == 3
    assert [cdr for _, cdr in on(tmp_path / "out", "/top")][1:3] == [bad[1], bad[2]]


def test_nothing_usable(process, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=3, topics=("/top",), replaced={k: malformed(k) for k in range(3)})
    code, out, err = process(bag, "-o", tmp_path / "out", "--copy", "all")
    assert (code, out) == (2, "")
    assert "has nothing to process: all 3 clouds refused, the first because data holds" in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["bag"]


def test_a_damaged_place_ends_the_bag_there(process, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=40, topics=("/top",), points=3000)
    (file,) = bag.glob("*.mcap")
    damaged = bytearray(file.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 80_000] = b"\xff" * 80_000  # more than a message: the head of one is among them
    file.write_bytes(damaged)
    code, out, err = process(bag, "-o", tmp_path / "out")
    assert code == 0
    assert re.search(r"radius-fps: .*bag is damaged after \d+ messages: .*; what follows in it is left out\n", err)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert 0 < report["counts"]["processed"] < 40
    assert "is damaged after" in report["damage"]
    assert "note: " in out


# ---- interruptions ----

SLOW = """
import sys, time
from radius_fps_ros.cli import main
from radius_fps_ros.offline.frames import FrameWorker
whole = FrameWorker.__call__
def slow(self, cdr):
    time.sleep(0.03)
    return whole(self, cdr)
FrameWorker.__call__ = slow
sys.argv[0] = "radius-fps"
main()
"""


def start(*arguments):
    words = [str(argument) for argument in ("process", *arguments)]
    return subprocess.Popen([sys.executable, "-c", SLOW, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "signals"), [("sqlite3", (signal.SIGKILL, signal.SIGTERM)), ("mcap", (signal.SIGINT,))]
)
def test_an_interrupted_run_goes_on(process, tmp_path, name, signals):
    """Killed and stopped in turn, then finished."""
    bag = write_bag(tmp_path / "bag", name, frames=120, topics=("/top",), replaced={k: malformed(2) for k in (3, 110)})
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    arguments = (bag, "-o", out, "--n", N, "--copy", "all", "--save-every", 0.2)
    parts, kept = 0, 0
    for number in signals:
        running = start(*arguments)  # each cloud is slowed down, so that it cannot be through before the signal
        wait_for(partial / f"{parts}.json", running)
        running.send_signal(number)
        printed, err = running.communicate(timeout=120)
        assert printed == b""
        assert (b"going on after" in err) == (parts > 0)
        assert not out.exists()
        parts = len(list(partial.glob("[0-9]*.json")))
        if number == signal.SIGKILL:
            assert running.returncode == -signal.SIGKILL
            continue
        assert running.returncode == 130
        told = re.search(rb"interrupted after (\d+) of 120 clouds, which are kept in .*out.partial; the same", err)
        assert told
        kept = int(told[1])
        assert 0 < kept < 120

    code, _, err = process(*arguments)
    assert code == 0
    assert err.startswith(f"radius-fps: going on after {kept} of 120 clouds\n")
    assert not partial.exists()
    code, _, _ = process(bag, "-o", tmp_path / "whole", "--copy", "all")
    assert code == 0
    assert content(out) == content(tmp_path / "whole")
    reports = [json.loads((path / "report.json").read_text()) for path in (out, tmp_path / "whole")]
    for key in ("counts", "topics", "copied_topics", "refusals", "coverage_radius"):
        assert reports[0][key] == reports[1][key]
    assert reports[0]["frames"]["coverage_radius"] == reports[1]["frames"]["coverage_radius"]
    assert [report["interruptions"] for report in reports] == [1, 0]


class Silent:
    """An observer that stops a run after some clouds."""

    def __init__(self, most):
        self.left = most

    def begin(self, clouds, done):
        pass

    def advance(self):
        self.left -= 1

    def say(self, sentence):
        pass

    def should_stop(self):
        return self.left <= 0


def test_another_setting_or_a_changed_bag_does_not_go_on(process, refused, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=10, topics=("/top",))
    out, observer = tmp_path / "out", Silent(4)
    outcome = process_bag(Job(bag, out, pipeline=PipelineSettings(N)), observer, observer.should_stop)
    assert (outcome.complete, outcome.done, outcome.clouds) == (False, 4, 10)
    assert f"was begun with --n {N}, not 21; finish it as it was begun" in refused(bag, "-o", out, "--n", 21)
    assert "was begun with --copy none, not /words" in refused(bag, "-o", out, "--copy", "/words")
    assert "was begun with --features off, not on" in refused(bag, "-o", out, "--features")
    assert "was begun with --storage mcap, not sqlite3" in refused(bag, "-o", out, "--storage", "sqlite3")
    os.utime(bag / "metadata.yaml", (1, 1))
    assert "was begun from a bag that has been changed since" in refused(bag, "-o", out)
    code, _, err = process(bag, "-o", out, "--n", 21, "--restart")
    assert (code, err) == (0, "")
    assert len(on(out, "/top/sampled")) == 10


@pytest.mark.parametrize("name", PLUGINS)
def test_a_full_disk(process, done, tmp_path, name):
    """A real fault of the operating system: no file may grow beyond a limit, and then it may."""
    bag = write_bag(tmp_path / "bag", name, frames=30, topics=("/top",), points=3000)
    done(bag, "-o", tmp_path / "whole", "--copy", "all")  # and everything is compiled
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        # A part grows with all work so far, so that one of them passes the limit in the end.
        code, _, err = process(bag, "-o", tmp_path / "out", "--copy", "all", "--save-every", 1000)
        assert code == 2
        assert not (tmp_path / "out.partial").exists()  # not one part was finished
        observer = Silent(4)
        job = Job(bag, tmp_path / "out", copy=("all",), pipeline=PipelineSettings(N), save_every=1000)
        assert process_bag(job, observer, observer.should_stop).done == 4
        code, _, err = process(bag, "-o", tmp_path / "out", "--copy", "all", "--save-every", 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    sentence = err.splitlines()[-1]
    assert re.match(
        r"radius-fps: .*out cannot be written: .*; what was finished is kept in .*out\.partial, and", sentence
    )
    code, _, err = process(bag, "-o", tmp_path / "out", "--copy", "all")
    assert code == 0
    assert "going on after 4 of 30 clouds" in err
    assert content(tmp_path / "out") == content(tmp_path / "whole")


# ---- refusals ----


class TestRefusals:
    """Each ends with one sentence and exit code 2, before anything is written."""

    def test_an_output_that_exists(self, done, refused, bags, tmp_path):
        done(bags["mcap"], "-o", tmp_path / "out")
        assert "out exists already and is complete; name another output, or replace it" in refused(
            bags["mcap"], "-o", tmp_path / "out"
        )
        done(bags["mcap"], "-o", tmp_path / "out", "--n", 3, "--restart")
        assert decode_cloud(deserialize_cloud(on(tmp_path / "out", "/top/sampled")[0][1])).xyz.shape == (3, 3)
        (tmp_path / "else").write_text("precious")
        assert "else exists already; name another output" in refused(bags["mcap"], "-o", tmp_path / "else", "--restart")

    def test_one_inside_the_other(self, refused, tmp_path):
        bag = write_bag(tmp_path / "all" / "bag")
        (file,) = bag.glob("*.mcap")
        for inside in (bag, bag / "out", file):
            assert "lies inside the bag" in refused(bag, "-o", inside)
        assert "lies inside the bag" in refused(bag / "metadata.yaml", "-o", bag / "x" / "y")
        assert "lies inside the output" in refused(bag, "-o", tmp_path / "all", "--restart")
        assert sorted(path.name for path in bag.iterdir()) == sorted([file.name, "metadata.yaml"])

    def test_bags_that_are_none(self, refused, tmp_path):
        assert "there is no bag at" in refused(tmp_path / "gone", "-o", tmp_path / "out")
        nothing = write_bag(tmp_path / "nothing", topics=())
        assert "holds no sensor_msgs/msg/PointCloud2; its topics are:" in refused(nothing, "-o", tmp_path / "out")
        silent = write_bag(tmp_path / "silent", frames=0)
        assert "has no message on '/top', '/side'" in refused(silent, "-o", tmp_path / "out")
        with Writer(tmp_path / "empty", version=9):
            pass
        assert "empty is empty: it has no topics" in refused(tmp_path / "empty", "-o", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "out.partial").exists()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--topic", "/gone"), "has no topic '/gone'; its PointCloud2 topics are: '/side', '/top'"),
            (("--topic", "/words"), "holds std_msgs/msg/String, not sensor_msgs/msg/PointCloud2"),
            (("--copy", "/gone"), "--copy /gone: the bag has no such topic; its topics are: '/odd', '/side', "),
            (("--copy", "all", "--copy", "/words"), "--copy all and --copy none stand alone"),
            (("--weights", "w.pth"), "--weights has no effect without --features"),
            (("--features", "--weights", "gone.pth"), "the weights gone.pth cannot be read: No such file"),
            (("--features", "--config", "gone.yaml"), "cannot read the configuration gone.yaml"),
            (("--features", "--levels", "x_conv9"), "--levels must name levels out of x_conv1, x_conv2"),
            (("--range-min", 5, "--range-max", 4), "--range-min 5 must not be above --range-max 4"),
            (("--roi-min", 1, 1, 1, "--roi-max", 2, 0, 2), "must not be above --roi-max"),
            (("--threads", 0), "threads must be at least 1, not 0"),
        ],
    )
    def test_options(self, refused, bags, tmp_path, options, words):
        assert words in refused(bags["mcap"], "-o", tmp_path / "out", *options)
        assert list(tmp_path.iterdir()) == []
