"""Bags to process: small clouds, words and messages of an unknown type; and what a bag holds."""

from array import array
from pathlib import Path

import numpy as np
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.clouds import Cloud, CloudData, encode_cloud
from radius_fps_ros.clouds.bags import POINT_CLOUD, deserialize_cloud, serialize_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.pipeline import FramePipeline

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
    """What a publisher sends that has seen nothing yet."""
    nothing = CloudData(0, [], False, 0, array("B"), True)
    return serialize_cloud(nothing, deserialize_cloud(cloud_cdr(k)).header)
