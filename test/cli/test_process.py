"""``radius-fps process``: what is written and copied."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
import yaml
from process_bags import (
    LATCHED,
    ODD_DEFINITION,
    ODD_TYPE,
    PLUGINS,
    ROOT,
    STORE,
    STRING,
    N,
    content,
    expected,
    on,
    write_bag,
)
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer

from radius_fps_ros.clouds import Cloud, decode_cloud, encode_cloud
from radius_fps_ros.clouds.bags import deserialize_cloud, open_bag, serialize_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.frame_features import FeatureExtractor
from radius_fps_ros.pipeline import FramePipeline
from radius_fps_ros.sparse import load_config

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
    pipeline = FramePipeline(backend="cpu", extractor=extractor)
    answers = []
    for when, cdr in on(bags["mcap"], "/top"):
        message = deserialize_cloud(cdr)
        result = pipeline.process(message, PipelineSettings(N))
        records = Cloud.of_records(result.features().records())
        answers.append((when, serialize_cloud(encode_cloud(records), message.header)))
    assert on(tmp_path / "out", "/top/features") == answers
    assert on(tmp_path / "out", "/top/sampled") == expected(bags["mcap"], "/top")


def test_the_messages_are_those_that_the_node_sends(done, bags, tmp_path):
    serialization = pytest.importorskip("rclpy.serialization", reason="ROS 2 is not installed")
    from sensor_msgs.msg import PointCloud2

    from radius_fps_ros.nodes.messages import cloud_message, records_message

    done(bags["mcap"], "-o", tmp_path / "out", "--features", "--topic", "/top")
    extractor = FeatureExtractor(load_config(ROOT / "config" / "backbone_light.yaml"))
    pipeline = FramePipeline(backend="cpu", extractor=extractor)
    samples, features = (on(tmp_path / "out", f"/top/{kind}") for kind in ("sampled", "features"))
    for k, (_, cdr) in enumerate(on(bags["mcap"], "/top")):
        message = serialization.deserialize_message(cdr, PointCloud2)
        result = pipeline.process(message, PipelineSettings(N))
        # Not byte by byte: the middleware leaves in the padding whatever the memory held before.
        sent = cloud_message(result.sampled, message.header)
        assert serialization.deserialize_message(samples[k][1], PointCloud2) == sent
        assert len(samples[k][1]) == len(serialization.serialize_message(sent))
        sent = records_message(result.features().records(), message.header)
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


def test_an_output_is_a_bag_that_can_be_processed(done, refused, bags, tmp_path):
    done(bags["mcap"], "-o", tmp_path / "first", "--copy", "all", "--save-every", 0)
    assert len(list((tmp_path / "first").glob("*.mcap"))) > 1  # a split bag
    sentence = refused(tmp_path / "first", "-o", tmp_path / "second", "--copy", "all")
    assert "the bag has a topic '/top/sampled' already; leave it out of --copy, or choose with --topic" in sentence
    done(tmp_path / "first", "-o", tmp_path / "second", "--topic", "/top/sampled", "--n", 5, "--copy", "/words")
    first = [decode_cloud(deserialize_cloud(cdr)).xyz for _, cdr in on(tmp_path / "first", "/top/sampled")]
    second = [decode_cloud(deserialize_cloud(cdr)).xyz for _, cdr in on(tmp_path / "second", "/top/sampled/sampled")]
    for many, few in zip(first, second, strict=True):
        np.testing.assert_array_equal(many[:5], few)


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


def test_help_has_an_example_and_the_exit_codes(process):
    code, out, _ = process("--help")
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
    assert len(content(tmp_path / "sampled_too")) == 8


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (".", "the output . is no name of a new folder"),
        ("", "the output . is no name of a new folder"),
        ("..", "the output .. is no name of a new folder"),
        ("/", "the output / is no name of a new folder"),
        ("a\udcff", "the output a\\udcff is no name in UTF-8"),
        ("x" * 250, "cannot be written: File name too long"),
        ("x" * 300, "File name too long"),
    ],
)
def test_an_output_that_is_no_name_of_a_folder(name, sentence, bags, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(bags["mcap"], "-o", name)
    assert not list(tmp_path.iterdir())


def test_a_bag_whose_name_is_not_text(bags, done, page, tmp_path):
    named = shutil.copytree(bags["mcap"], tmp_path / "bag\udcff")
    assert "bag\\udcff" in done(named, "-o", tmp_path / "out")
    assert "bag\\udcff" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["bag"] == str(named)
