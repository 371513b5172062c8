"""``radius-fps process``: bags in, bags and reports out, interruptions and bad messages in between."""

import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from rosbags.highlevel import AnyReader
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.cli import main
from radius_fps_ros.clouds import Cloud, CloudData, Field, decode_cloud, encode_cloud
from radius_fps_ros.clouds.bags import POINT_CLOUD, deserialize_cloud, open_bag, serialize_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.frame_features import FeatureExtractor, feature_records
from radius_fps_ros.offline import Job, process_bag
from radius_fps_ros.pipeline import FramePipeline, PipelineSettings
from radius_fps_ros.sparse import load_config

ROOT = Path(__file__).resolve().parents[2]
STORE = get_typestore(Stores.ROS2_KILTED)
PLUGINS = {"sqlite3": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}
STRING = "std_msgs/msg/String"
ODD_TYPE, ODD_DEFINITION = "odd_msgs/msg/Odd", "uint8 kind\nstring<=9 word  # kept\n"
LATCHED = Qos(
    QosHistory.KEEP_LAST, 7, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, QosTime(1, 2), QosTime(3, 4),
    QosLiveliness.AUTOMATIC, QosTime(5, 6), False,
)  # fmt: skip
START, STEP = 1_700_000_000_000_000_000, 100_000_000
N = 20


def cloud_cdr(k, points=300):
    stamp = STORE.types["builtin_interfaces/msg/Time"](sec=k, nanosec=5)
    header = STORE.types["std_msgs/msg/Header"](stamp=stamp, frame_id=f"lidar {k}")
    return serialize_cloud(encode_cloud(Cloud.of_records(street_scan(points, seed=k))), header)


def write_bag(path, storage="mcap", frames=4, topics=("/top", "/side"), replaced=(), points=300):
    """Clouds on ``topics``, a String and an unknown type between them; ``replaced`` maps frames to other bytes."""
    replaced = dict(replaced)
    with Writer(path, version=9, storage_plugin=PLUGINS[storage]) as writer:
        writer.set_custom_data("car", "blue")
        clouds = [writer.add_connection(name, POINT_CLOUD, typestore=STORE) for name in topics]
        words = writer.add_connection("/words", STRING, typestore=STORE, offered_qos_profiles=[LATCHED])
        odd = writer.add_connection("/odd", ODD_TYPE, msgdef=ODD_DEFINITION, rihs01="RIHS01_" + 64 * "7")
        for k in range(frames):
            at = START + k * STEP
            for shift, cloud in enumerate(clouds):
                cdr = replaced.get(k) or cloud_cdr(2 * k + shift, points)
                writer.write(cloud, at + shift, cdr)
            writer.write(words, at + 10, STORE.serialize_cdr(STORE.types[STRING](data=f"word {k}"), STRING))
            writer.write(odd, at + 11, bytes([0, 1, 0, 0, k, 0, 255]))
    return path


def content(path):
    with Reader(path) as reader:
        return [(c.topic, c.msgtype, time, bytes(cdr)) for c, time, cdr in reader.messages()]


def on(path, topic):
    return [(time, cdr) for name, _, time, cdr in content(path) if name == topic]


def expected(path, topic, settings=None):
    """The samples that the pipeline gives for each cloud, as the node would publish them."""
    pipeline = FramePipeline(backend="cpu")
    answers = []
    for when, cdr in on(path, topic):
        message = deserialize_cloud(cdr)
        result = pipeline.process(message, settings or PipelineSettings(N))
        answers.append((when, serialize_cloud(result.sampled, message.header)))
    return answers


@pytest.fixture
def page():
    """Asked for by tests of the report's page, which takes a second to draw; the others do without."""


@pytest.fixture(autouse=True)
def _no_page(request, monkeypatch):
    if "page" not in request.fixturenames:
        monkeypatch.setattr("radius_fps_ros.offline.page.write_page", lambda *arguments: "")


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command inside this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        given = ["radius-fps", "process", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", given if "--n" in given or "--help" in given else [*given, "--n", str(N)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def done(call):
    """The stdout of a run that must succeed; nothing may stand on stderr."""

    def done(*arguments):
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        return out

    return done


@pytest.fixture
def refusal(call):
    """The one line on stderr with which the command ends; exit code 2, nothing on stdout."""

    def refusal(*arguments):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("radius-fps: ")
        assert err.count("\n") == 1
        return err

    return refusal


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    return {storage: write_bag(folder / f"a {storage} drive", storage) for storage in PLUGINS}


@pytest.fixture(params=PLUGINS)
def storage(request):
    return request.param


@pytest.fixture
def bag(bags, storage):
    return bags[storage]


# ---- what is written ----


@pytest.mark.parametrize("other", [False, True])
def test_every_cloud_topic_gets_its_samples(done, bag, storage, other, tmp_path):
    out = tmp_path / "out"
    written = ({"sqlite3": "mcap", "mcap": "sqlite3"} if other else {}).get(storage, storage)
    printed = done(bag, "-o", out, *(("--storage", written) if other else ()))
    assert f"{bag}: 8 clouds on /top, /side, 8 processed, 0 refused, 0 messages copied" in printed
    assert f"written to {out}: 8 messages, report.json and report.html" in printed
    for topic in ("/top", "/side"):
        assert on(out, f"{topic}/sampled") == expected(bag, topic)
    assert len(content(out)) == 8
    information = yaml.safe_load((out / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert information["storage_identifier"] == written
    assert information["message_count"] == 8
    assert information["custom_data"] == {"car": "blue"}
    with AnyReader([out]) as reader:
        fields = {c.topic: reader.deserialize(cdr, c.msgtype).fields for c, _, cdr in reader.messages()}
    assert [f.name for f in fields["/top/sampled"]] == list(street_scan(9).dtype.names)


def test_chosen_topics_and_region(done, bags, tmp_path):
    done(
        bags["mcap"], "-o", tmp_path / "out", "--topic", "side", "--n", 7, "--range-min", 3, "--range-max", 40,
        "--roi-min", -20, -15, -9, "--roi-max", 20, 15, 9, "--method", "brute", "--backend", "cpu", "--threads", 1,
    )  # fmt: skip
    settings = PipelineSettings(7, 3, 40, (-20, -15, -9), (20, 15, 9))
    assert {topic for topic, *_ in content(tmp_path / "out")} == {"/side/sampled"}
    assert on(tmp_path / "out", "/side/sampled") == expected(bags["mcap"], "/side", settings)


def test_features_are_those_of_the_node(done, bags, tmp_path):
    printed = done(bags["mcap"], "-o", tmp_path / "out", "--features", "--topic", "/top", "--levels", "x_conv2,x_conv4")
    assert "note: the features come from seeded random weights (seed 0), not trained" in printed
    extractor = FeatureExtractor(load_config(ROOT / "config" / "backbone_light.yaml"), levels=("x_conv2", "x_conv4"))
    pipeline = FramePipeline(backend="cpu")
    answers = []
    for when, cdr in on(bags["mcap"], "/top"):
        message = deserialize_cloud(cdr)
        result = pipeline.process(message, PipelineSettings(N))
        made = extractor(result.cloud, result.rows, result.indices)
        records = Cloud.of_records(feature_records(made.xyz, made.features))
        answers.append((when, serialize_cloud(encode_cloud(records), message.header)))
    assert on(tmp_path / "out", "/top/features") == answers
    assert on(tmp_path / "out", "/top/sampled") == expected(bags["mcap"], "/top")


def test_the_messages_are_those_that_the_node_sends(done, bags, tmp_path):
    serialization = pytest.importorskip("rclpy.serialization", reason="ROS 2 is not installed")
    from sensor_msgs.msg import PointCloud2

    from radius_fps_ros.nodes.messages import cloud_message, records_message

    done(bags["mcap"], "-o", tmp_path / "out", "--features", "--topic", "/top")
    pipeline = FramePipeline(backend="cpu")
    extractor = FeatureExtractor(load_config(ROOT / "config" / "backbone_light.yaml"))
    samples, features = (on(tmp_path / "out", f"/top/{kind}") for kind in ("sampled", "features"))
    for k, (_, cdr) in enumerate(on(bags["mcap"], "/top")):
        message = serialization.deserialize_message(cdr, PointCloud2)
        result = pipeline.process(message, PipelineSettings(N))
        made = extractor(result.cloud, result.rows, result.indices)
        # Not byte by byte: the middleware leaves in the padding whatever the memory held before.
        sent = cloud_message(result.sampled, message.header)
        assert serialization.deserialize_message(samples[k][1], PointCloud2) == sent
        assert len(samples[k][1]) == len(serialization.serialize_message(sent))
        sent = records_message(feature_records(made.xyz, made.features), message.header)
        assert serialization.deserialize_message(features[k][1], PointCloud2) == sent


def test_the_ranges_are_those_of_the_node():
    specs = pytest.importorskip("radius_fps_ros.nodes.perception_parameters", reason="ROS 2 is not installed").SPECS
    from radius_fps_ros.cli.process import command

    options = {option.name: option for option in command.params}
    names = {"n_samples": "n_samples", "range_min": "range_min", "range_max": "range_max", "seed": "seed"}
    for spec in specs:
        if spec.name in names:
            option = options[names[spec.name]]
            assert (option.type.min, option.type.max, option.default) == (spec.low, spec.high, spec.default)
        elif spec.name in ("backend", "method", "feature_dtype"):
            option = options[spec.name.removeprefix("feature_")]
            assert tuple(option.type.choices) == spec.choices
            assert option.default == spec.default


# ---- copied topics ----


def test_copies(done, bag, storage, tmp_path):
    done(bag, "-o", tmp_path / "all", "--copy", "all")
    originals = content(bag)
    assert [m for m in content(tmp_path / "all") if not m[0].endswith("/sampled")] == originals
    done(bag, "-o", tmp_path / "two", "--copy", "words", "--copy", "/odd", "--topic", "/top")
    kept = [m for m in originals if m[0] in ("/words", "/odd")]
    assert [m for m in content(tmp_path / "two") if m[0] != "/top/sampled"] == kept
    with Reader(tmp_path / "two") as reader:
        words, odd, sampled = reader.connections
        assert words.ext.offered_qos_profiles == [LATCHED]
        assert words.digest == STORE.hash_rihs01(STRING)
        assert (odd.msgtype, odd.msgdef.data, odd.digest) == (ODD_TYPE, ODD_DEFINITION, "RIHS01_" + 64 * "7")
        assert sampled.ext.offered_qos_profiles[0].depth == 5
        assert reader.storage.metadata.custom == {"car": "blue"}
    report = json.loads((tmp_path / "two" / "report.json").read_text())
    assert report["counts"]["copied"] == 8
    assert report["copied_topics"] == {"/words": 4, "/odd": 4}


def test_a_single_storage_file_is_a_bag_too(done, bag, storage, tmp_path):
    (file,) = bag.glob("*.mcap" if storage == "mcap" else "*.db3")
    done(file, "-o", tmp_path / "out", "--copy", "all")
    assert [m for m in content(tmp_path / "out") if not m[0].endswith("/sampled")] == content(bag)
    with Reader(tmp_path / "out") as reader:
        hashes = {c.topic: c.digest for c in reader.connections}
    assert hashes["/words"] == STORE.hash_rihs01(STRING)
    assert hashes["/odd"].startswith("RIHS01_")  # an mcap file alone has no hashes: this one is of the definition


@pytest.fixture
def old_bag(tmp_path):
    """An sqlite3 bag as ROS 2 Humble writes it: without type definitions or hashes."""
    path = write_bag(tmp_path / "old", "sqlite3")
    with sqlite3.connect(path / "old.db3") as database:
        database.execute("UPDATE schema SET schema_version = 3")
        database.execute("DROP TABLE message_definitions")
        database.execute("ALTER TABLE topics DROP COLUMN type_description_hash")
    metadata = yaml.safe_load((path / "metadata.yaml").read_text())
    information = metadata["rosbag2_bagfile_information"]
    information["version"] = 5
    for entry in information["topics_with_message_count"]:
        del entry["topic_metadata"]["type_description_hash"]
        profiles = entry["topic_metadata"]["offered_qos_profiles"]
        entry["topic_metadata"]["offered_qos_profiles"] = yaml.safe_dump(profiles) if profiles else ""
    (path / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    return path


@pytest.mark.parametrize("written", PLUGINS)
def test_a_type_that_the_bag_does_not_define_is_copied_byte_for_byte(done, old_bag, tmp_path, written):
    printed = done(old_bag, "-o", tmp_path / "out", "--copy", "all", "--storage", written)
    assert (
        f"note: the bag does not define {ODD_TYPE}; such messages are copied with an empty type definition" in printed
    )
    assert [m for m in content(tmp_path / "out") if not m[0].endswith("/sampled")] == content(old_bag)
    with AnyReader([tmp_path / "out"]) as reader:
        found = {c.topic: c for c in reader.connections}
        assert found["/odd"].msgdef.data == ""
        assert found["/odd"].digest == ""
        assert found["/words"].msgdef.data.startswith("string data")  # a standard type is known
        assert found["/words"].ext.offered_qos_profiles == [LATCHED]
        words = [reader.deserialize(cdr, STRING).data for _, _, cdr in reader.messages([found["/words"]])]
    assert words == ["word 0", "word 1", "word 2", "word 3"]


def test_an_output_is_a_bag_that_can_be_processed(done, refusal, bags, tmp_path):
    done(bags["mcap"], "-o", tmp_path / "first", "--copy", "all", "--save-every", 0)
    assert len(list((tmp_path / "first").glob("*.mcap"))) > 1  # a split bag
    sentence = refusal(tmp_path / "first", "-o", tmp_path / "second", "--copy", "all")
    assert "the bag has a topic '/top/sampled' already; leave it out of --copy, or choose with --topic" in sentence
    done(tmp_path / "first", "-o", tmp_path / "second", "--topic", "/top/sampled", "--n", 5, "--copy", "/words")
    first = [decode_cloud(deserialize_cloud(cdr)).xyz for _, cdr in on(tmp_path / "first", "/top/sampled")]
    second = [decode_cloud(deserialize_cloud(cdr)).xyz for _, cdr in on(tmp_path / "second", "/top/sampled/sampled")]
    for many, few in zip(first, second, strict=True):
        np.testing.assert_array_equal(many[:5], few)


# ---- bad messages ----


def malformed(k):
    """A PointCloud2 whose data is shorter than it says."""
    whole = encode_cloud(Cloud.of_records(street_scan(50 + k)))
    cut = CloudData(whole.width, whole.fields, False, whole.point_step, whole.data[: -9 * whole.point_step], True)
    return serialize_cloud(cut, deserialize_cloud(cloud_cdr(k)).header)


def lacking(k):
    """A cloud without intensity, which the network reads."""
    records = np.zeros(30, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
    records["x"] = np.arange(30)
    return serialize_cloud(encode_cloud(Cloud.of_records(records)), deserialize_cloud(cloud_cdr(k)).header)


def empty(k):
    header = deserialize_cloud(cloud_cdr(k)).header
    return serialize_cloud(
        CloudData(0, [Field("x", 0, 7)], False, 4, encode_cloud(Cloud.of_records(street_scan(1))).data[:0], True),
        header,
    )


def test_bad_messages_are_reported_once_a_kind_and_counted(call, tmp_path):
    bad = {1: cloud_cdr(1)[:90], 2: malformed(2), 3: malformed(3), 5: lacking(5), 6: lacking(6), 7: cloud_cdr(7)[:4]}
    bag = write_bag(tmp_path / "bag", frames=9, topics=("/top",), replaced=bad)
    code, out, err = call(bag, "-o", tmp_path / "out", "--features", "--copy", "/top")
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 3, err
    assert "cloud 2 on /top is refused: the message is not a readable PointCloud2" in lines[0]
    assert "cloud 3 on /top is refused: data holds" in lines[1]
    assert "cloud 6 on /top is without features: " in lines[2]
    assert "intensity" in lines[2]
    assert "9 clouds on /top, 5 processed, 4 refused" in out
    assert "note: 4 of 9 clouds were refused" in out
    assert "note: 2 clouds have samples but no features" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["counts"] == {
        "clouds": 9, "processed": 5, "refused": 4, "without_features": 2, "copied": 9, "written": 9 + 5 + 3,
    }  # fmt: skip
    assert sorted(kind["count"] for kind in report["refusals"]) == [2, 2]
    assert report["frames"]["refused"] == [False, True, True, True, False, False, False, True, False]
    assert [time for time, _ in on(tmp_path / "out", "/top/sampled")] == [START + k * STEP for k in (0, 4, 5, 6, 8)]
    assert len(on(tmp_path / "out", "/top/features")) == 3
    assert [cdr for _, cdr in on(tmp_path / "out", "/top")][1:3] == [bad[1], bad[2]]


def test_nothing_usable(call, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=3, topics=("/top",), replaced={k: malformed(k) for k in range(3)})
    code, out, err = call(bag, "-o", tmp_path / "out", "--copy", "all")
    assert (code, out) == (2, "")
    assert "has nothing to process: all 3 clouds refused, the first because data holds" in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["bag"]


def test_a_damaged_place_ends_the_bag_there(call, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=40, topics=("/top",), points=3000)
    (file,) = bag.glob("*.mcap")
    damaged = bytearray(file.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 80_000] = b"\xff" * 80_000  # more than a message: the head of one is among them
    file.write_bytes(damaged)
    code, out, err = call(bag, "-o", tmp_path / "out")
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
def test_an_interrupted_run_goes_on(call, tmp_path, name, signals):
    """Killed and stopped in turn, then finished."""
    bag = write_bag(tmp_path / "bag", name, frames=120, topics=("/top",), replaced={k: malformed(2) for k in (3, 110)})
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    arguments = (bag, "-o", out, "--n", N, "--copy", "all", "--save-every", 0.02)
    parts, kept = 0, 0
    for number in signals:
        process = start(*arguments)  # each cloud is slowed down, so that it cannot be through before the signal
        wait_for(partial / f"{parts}.json", process)
        process.send_signal(number)
        printed, err = process.communicate(timeout=120)
        assert printed == b""
        assert (b"going on after" in err) == (parts > 0)
        assert not out.exists()
        parts = len(list(partial.glob("[0-9]*.json")))
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
            continue
        assert process.returncode == 130
        told = re.search(rb"interrupted after (\d+) of 120 clouds, which are kept in .*out.partial; the same", err)
        assert told
        kept = int(told[1])
        assert 0 < kept < 120

    code, _, err = call(*arguments)
    assert code == 0
    assert err.startswith(f"radius-fps: going on after {kept} of 120 clouds\n")
    assert not partial.exists()
    code, _, _ = call(bag, "-o", tmp_path / "whole", "--copy", "all")
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


def test_another_setting_or_a_changed_bag_does_not_go_on(call, refusal, tmp_path):
    bag = write_bag(tmp_path / "bag", frames=10, topics=("/top",))
    out, observer = tmp_path / "out", Silent(4)
    outcome = process_bag(Job(bag, out, pipeline=PipelineSettings(N)), observer, observer.should_stop)
    assert (outcome.complete, outcome.done, outcome.clouds) == (False, 4, 10)
    assert f"was begun with --n {N}, not 21; finish it as it was begun" in refusal(bag, "-o", out, "--n", 21)
    assert "was begun with --copy none, not /words" in refusal(bag, "-o", out, "--copy", "/words")
    assert "was begun with --features off, not on" in refusal(bag, "-o", out, "--features")
    assert "was begun with --storage mcap, not sqlite3" in refusal(bag, "-o", out, "--storage", "sqlite3")
    os.utime(bag / "metadata.yaml", (1, 1))
    assert "was begun from a bag that has been changed since" in refusal(bag, "-o", out)
    code, _, err = call(bag, "-o", out, "--n", 21, "--restart")
    assert (code, err) == (0, "")
    assert len(on(out, "/top/sampled")) == 10


@pytest.mark.parametrize("name", PLUGINS)
def test_a_full_disk(call, done, tmp_path, name):
    """A real fault of the operating system: no file may grow beyond a limit, and then it may."""
    bag = write_bag(tmp_path / "bag", name, frames=30, topics=("/top",), points=3000)
    done(bag, "-o", tmp_path / "whole", "--copy", "all")  # and everything is compiled
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        # A part grows with all work so far, so that one of them passes the limit in the end.
        code, _, err = call(bag, "-o", tmp_path / "out", "--copy", "all", "--save-every", 1000)
        assert code == 2
        assert not (tmp_path / "out.partial").exists()  # not one part was finished
        observer = Silent(4)
        job = Job(bag, tmp_path / "out", copy=("all",), pipeline=PipelineSettings(N), save_every=1000)
        assert process_bag(job, observer, observer.should_stop).done == 4
        code, _, err = call(bag, "-o", tmp_path / "out", "--copy", "all", "--save-every", 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    sentence = err.splitlines()[-1]
    assert re.match(
        r"radius-fps: .*out cannot be written: .*; what was finished is kept in .*out\.partial, and", sentence
    )
    code, _, err = call(bag, "-o", tmp_path / "out", "--copy", "all")
    assert code == 0
    assert "going on after 4 of 30 clouds" in err
    assert content(tmp_path / "out") == content(tmp_path / "whole")


# ---- refusals ----


class TestRefusals:
    """Each ends with one sentence and exit code 2, before anything is written."""

    def test_an_output_that_exists(self, done, refusal, bags, tmp_path):
        done(bags["mcap"], "-o", tmp_path / "out")
        assert "out exists already and is complete; name another output, or replace it" in refusal(
            bags["mcap"], "-o", tmp_path / "out"
        )
        done(bags["mcap"], "-o", tmp_path / "out", "--n", 3, "--restart")
        assert decode_cloud(deserialize_cloud(on(tmp_path / "out", "/top/sampled")[0][1])).xyz.shape == (3, 3)
        (tmp_path / "else").write_text("precious")
        assert "else exists already; name another output" in refusal(bags["mcap"], "-o", tmp_path / "else", "--restart")

    def test_one_inside_the_other(self, refusal, tmp_path):
        bag = write_bag(tmp_path / "all" / "bag")
        (file,) = bag.glob("*.mcap")
        for inside in (bag, bag / "out", file):
            assert "lies inside the bag" in refusal(bag, "-o", inside)
        assert "lies inside the bag" in refusal(bag / "metadata.yaml", "-o", bag / "x" / "y")
        assert "lies inside the output" in refusal(bag, "-o", tmp_path / "all", "--restart")
        assert sorted(path.name for path in bag.iterdir()) == sorted([file.name, "metadata.yaml"])

    def test_bags_that_are_none(self, refusal, tmp_path):
        assert "there is no bag at" in refusal(tmp_path / "gone", "-o", tmp_path / "out")
        nothing = write_bag(tmp_path / "nothing", topics=())
        assert "holds no sensor_msgs/msg/PointCloud2; its topics are:" in refusal(nothing, "-o", tmp_path / "out")
        silent = write_bag(tmp_path / "silent", frames=0)
        assert "has no message on '/top', '/side'" in refusal(silent, "-o", tmp_path / "out")
        with Writer(tmp_path / "empty", version=9):
            pass
        assert "empty is empty: it has no topics" in refusal(tmp_path / "empty", "-o", tmp_path / "out")
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
    def test_options(self, refusal, bags, tmp_path, options, words):
        assert words in refusal(bags["mcap"], "-o", tmp_path / "out", *options)
        assert list(tmp_path.iterdir()) == []


# ---- the report ----


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for key, value in attributes if key in ("src", "href")]

    def handle_data(self, data):
        self.text.append(data)


def test_the_report_agrees_with_the_bag(done, page, tmp_path):
    bag = write_bag(tmp_path / "b<i>ag & co", frames=5, topics=("/top<script>alert(1)</script>$x_1$",))
    out = tmp_path / "out"
    done(bag, "-o", out, "--features")
    report = json.loads((out / "report.json").read_text())
    (topic,) = report["topics"]
    messages = on(bag, topic["name"])
    sampled = [decode_cloud(deserialize_cloud(cdr)) for _, cdr in on(out, f"{topic['name']}/sampled")]
    frames = report["frames"]
    assert report["counts"]["processed"] == topic["processed"] == len(sampled) == 5
    assert report["counts"]["written"] == len(content(out)) == 10
    assert topic["outputs"] == {f"{topic['name']}/sampled": 5, f"{topic['name']}/features": 5}
    assert frames["time"] == [time for time, _ in messages]
    assert frames["points_in"] == [300] * 5
    assert frames["samples"] == [len(cloud) for cloud in sampled] == [N] * 5
    for (_, cdr), cloud, radius in zip(messages, sampled, frames["coverage_radius"], strict=True):
        away = np.linalg.norm(decode_cloud(deserialize_cloud(cdr)).xyz[:, None] - cloud.xyz[None], axis=2)
        assert radius == pytest.approx(away.min(axis=1).max(), rel=1e-5)
    assert report["coverage_radius"]["max"] == max(frames["coverage_radius"])
    for name, stage in report["milliseconds"].items():
        assert stage["max"] == max(frames["milliseconds"][name])
        assert stage["min"] <= stage["p50"] <= stage["p90"] <= stage["p99"] <= stage["max"]
    assert list(report["milliseconds"]) == [
        "deserialize", "decode", "crop", "sample", "encode", "serialize", "upload", "voxelize", "backbone", "gather",
        "serialize_features", "write", "total",
    ]  # fmt: skip
    assert report["frames_per_second"] == pytest.approx(5 / report["seconds"])
    assert report["settings"]["n"] == N
    assert report["weights"] == "seeded random weights (seed 0), not trained"

    seen = _Page()
    seen.feed((out / "report.html").read_text())
    text = " ".join(seen.text)
    assert topic["name"] in text
    assert "b<i>ag & co" in text
    assert "script" not in seen.tags
    assert "i" in seen.tags  # the page's own keys, not the bag's name
    assert seen.tags.count("img") == 3
    assert seen.tags.count("svg") == 4 + len(report["milliseconds"])
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in seen.links)
    for sentence in report["warnings"]:
        assert sentence in text


def test_infinite_coverage_is_null(done, page, tmp_path):
    records = np.zeros(3, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
    records["x"] = 0, 3e38, -3e38
    far = serialize_cloud(encode_cloud(Cloud.of_records(records)), deserialize_cloud(cloud_cdr(0)).header)
    bag = write_bag(tmp_path / "bag", frames=2, topics=("/top",), replaced={0: far, 1: far})
    assert "coverage radius p50 infinite" in done(bag, "-o", tmp_path / "out", "--n", 1)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["frames"]["coverage_radius"] == [None, None]
    assert (tmp_path / "out" / "report.html").exists()


# ---- the command as a whole ----


def test_no_ros_is_imported(bags, tmp_path):
    program = (
        "import sys; from radius_fps_ros.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "bad = {m.split('.')[0] for m in sys.modules} & {'rclpy', 'sensor_msgs', 'std_msgs', 'radius_fps_interfaces'}\n"
        "assert not bad, bad"
    )
    words = map(str, ("process", bags["mcap"], "-o", tmp_path / "out", "--n", N, "--features"))
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_help_has_an_example_and_the_exit_codes(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "Example: radius-fps process drive.mcap -o sampled" in out
    assert "Exit code: 0 done" in out
    assert "130" in out


@pytest.mark.parametrize("name", ["real_frames_sqlite3", "real_frames_mcap"])
def test_real_bags(done, page, data_dir, tmp_path, name):
    done(data_dir / name, "-o", tmp_path / "out", "--copy", "/lidar_top", "--n", 512)
    for topic in ("/lidar_top", "/velodyne_points"):
        assert on(tmp_path / "out", f"{topic}/sampled") == expected(data_dir / name, topic, PipelineSettings(512))
    assert on(tmp_path / "out", "/lidar_top") == on(data_dir / name, "/lidar_top")
    with open_bag(tmp_path / "out", "/lidar_top/sampled") as bag:
        assert bag.counts == {"/lidar_top/sampled": 5}


@pytest.mark.parametrize("mode", ["MESSAGE", "FILE", "STORAGE"])
def test_compressed_bags(done, bags, tmp_path, mode):
    messages = content(bags["mcap"])
    writer = Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, kind, when, cdr in messages:
            if topic not in connections and topic != "/odd":
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            if topic in connections:
                writer.write(connections[topic], when, cdr)
    done(tmp_path / "bag", "-o", tmp_path / "out", "--copy", "all")
    for topic in ("/top", "/side"):
        assert on(tmp_path / "out", f"{topic}/sampled") == expected(bags["mcap"], topic)
    assert [m for m in content(tmp_path / "out") if not m[0].endswith("/sampled")] == [
        m for m in messages if m[0] != "/odd"
    ]


def test_the_documented_program_runs(bags, tmp_path, monkeypatch, capsys):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "process.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    (file,) = bags["mcap"].glob("*.mcap")
    (tmp_path / "drive.mcap").write_bytes(file.read_bytes())
    exec(program, {"__name__": "program"})
    assert capsys.readouterr().out.startswith(
        "8 clouds, 0 of them done before\n{'clouds': 8, 'processed': 8, 'refused': 0"
    )
    assert len(content(tmp_path / "sampled")) == 8
