"""Bags: written here through rosbags, read back byte for byte, then damaged in every way."""

import shutil

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.clouds.bags import POINT_CLOUD, deserialize_cloud, open_bag
from radius_fps_ros.errors import InputError

STORE = get_typestore(Stores.ROS2_KILTED)
PLUGINS = {"sqlite3": (StoragePlugin.SQLITE3, "db3"), "mcap": (StoragePlugin.MCAP, "mcap")}


def cloud_cdr(count, seed=0):
    types = STORE.types
    header = types["std_msgs/msg/Header"](
        stamp=types["builtin_interfaces/msg/Time"](sec=seed, nanosec=5), frame_id="lidar"
    )
    field = types["sensor_msgs/msg/PointField"]
    message = types[POINT_CLOUD](
        header=header,
        height=1,
        width=count,
        fields=[field(name=name, offset=4 * i, datatype=7, count=1) for i, name in enumerate("xyz")],
        is_bigendian=False,
        point_step=12,
        row_step=12 * count,
        data=np.random.default_rng(seed).normal(0, 9, 3 * count).astype("<f4").view(np.uint8),
        is_dense=True,
    )
    return bytes(STORE.serialize_cdr(message, POINT_CLOUD))


def string_cdr():
    return STORE.serialize_cdr(STORE.types["std_msgs/msg/String"](data="hello"), "std_msgs/msg/String")


def write_bag(path, plugin, topics, count=4):
    """A bag whose ``topics`` map a name to its type; returns its clouds as (topic, nanoseconds, bytes)."""
    written = []
    path.parent.mkdir(exist_ok=True)
    with Writer(path, version=9, storage_plugin=PLUGINS[plugin][0]) as writer:
        connections = {name: writer.add_connection(name, kind, typestore=STORE) for name, kind in topics.items()}
        for k in range(count):
            for shift, (name, kind) in enumerate(topics.items()):
                cdr = cloud_cdr(50 + k, seed=10 * k + shift) if kind == POINT_CLOUD else string_cdr()
                time = 1_000_000_000 + 100_000_000 * k + shift
                writer.write(connections[name], time, cdr)
                if kind == POINT_CLOUD:
                    written.append((name, time, cdr))
    return written


TOPICS = {"/top": POINT_CLOUD, "/words": "std_msgs/msg/String", "/side": POINT_CLOUD}


@pytest.fixture(params=PLUGINS)
def plugin(request):
    return request.param


@pytest.fixture(scope="module")
def whole_bags(tmp_path_factory):
    """One bag a storage plugin, written once: each test works on its own copy."""
    folder = tmp_path_factory.mktemp("bags")
    return {plugin: (folder / plugin, write_bag(folder / plugin / "a drive", plugin, TOPICS)) for plugin in PLUGINS}


@pytest.fixture
def bag(tmp_path, plugin, whole_bags):
    folder, written = whole_bags[plugin]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a drive", written


def storage_file(path, plugin):
    return path / f"{path.name}.{PLUGINS[plugin][1]}"


def read_all(path, topic=None):
    with open_bag(path, topic) as bag:
        return [(message.topic, message.timestamp, message.cdr) for message in bag]


def test_all_clouds_come_back_byte_for_byte_in_order(bag):
    path, written = bag
    assert read_all(path) == written
    with open_bag(path) as opened:
        assert list(opened.counts.items()) == [("/top", 4), ("/side", 4)]
        assert len(list(opened)) == len(list(opened)) == 8


@pytest.mark.parametrize("topic", ["/side", "side"])
def test_one_topic(bag, topic):
    path, written = bag
    assert read_all(path, topic) == [record for record in written if record[0] == "/side"]


def test_the_bag_may_be_named_by_any_of_its_files(bag, plugin):
    path, written = bag
    assert read_all(path / "metadata.yaml") == written
    assert read_all(str(storage_file(path, plugin))) == written


def test_messages_decode(bag):
    path, _ = bag
    with open_bag(path, "/top") as opened:
        for k, record in enumerate(opened):
            message = deserialize_cloud(record.cdr)
            expected = np.random.default_rng(10 * k).normal(0, 9, (50 + k, 3)).astype("<f4")
            assert message.header.frame_id == "lidar"
            np.testing.assert_array_equal(decode_cloud(message).xyz, expected)


def test_topics_that_are_not_there(bag):
    path, _ = bag
    with pytest.raises(InputError, match=r"has no topic '/top2'; its PointCloud2 topics are: '/side', '/top'$"):
        read_all(path, "/top2")
    with pytest.raises(InputError, match=r"topic '/words' of .* holds std_msgs/msg/String, not sensor_msgs/msg/Point"):
        read_all(path, "/words")


def test_no_clouds(tmp_path, plugin):
    write_bag(tmp_path / "bag", plugin, {"/words": "std_msgs/msg/String"})
    with pytest.raises(InputError, match=r"holds no sensor_msgs/msg/PointCloud2; its topics are: '/words \(std_msgs"):
        read_all(tmp_path / "bag")


def test_empty(tmp_path, plugin):
    write_bag(tmp_path / "no topics", plugin, {})
    with pytest.raises(InputError, match="no topics is empty: it has no topics"):
        read_all(tmp_path / "no topics")
    write_bag(tmp_path / "no messages", plugin, {"/top": POINT_CLOUD}, count=0)
    with pytest.raises(InputError, match="has no message on '/top'"):
        read_all(tmp_path / "no messages")


def test_places_that_are_no_bags(tmp_path):
    with pytest.raises(InputError, match="there is no bag at"):
        read_all(tmp_path / "gone")
    with pytest.raises(InputError, match=r"is not a bag: it has no metadata\.yaml"):
        read_all(tmp_path)
    (tmp_path / "old.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(
        InputError, match=r"is not a bag; a bag's folder, metadata\.yaml, \.db3 or \.mcap file is needed"
    ):
        read_all(tmp_path / "old.bag")


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9, 0.999, 0.99999])  # the last lacks one byte
@pytest.mark.parametrize("by", ["folder", "file"])
def test_truncated(bag, plugin, share, by):
    path, _ = bag
    file = storage_file(path, plugin)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"is not a readable bag: |is damaged after \d clouds: ") as caught:
        read_all(path if by == "folder" else file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("metadata", ["", "hello", "[1, 2", "\0", "rosbag2_bagfile_information:\n  version: 99\n"])
def test_damaged_metadata(bag, metadata):
    path, _ = bag
    (path / "metadata.yaml").write_text(metadata)
    with pytest.raises(InputError, match="is not a readable bag: ") as caught:
        read_all(path)
    assert "\n" not in str(caught.value)


def test_missing_storage_file(bag, plugin):
    path, _ = bag
    storage_file(path, plugin).unlink()
    with pytest.raises(InputError, match="is not a readable bag: Some database files are missing"):
        read_all(path)


def test_random_damage_never_does_worse_than_input_error(bag, plugin):
    path, _ = bag
    file = storage_file(path, plugin)
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(80):
        damaged = bytearray(whole)
        for _ in range(int(rng.integers(1, 6))):
            damaged[int(rng.integers(len(whole) if trial % 2 else 500))] = int(rng.integers(256))
        file.write_bytes(damaged)
        refused += _is_refused(file)
    assert refused > 5


def _is_refused(file):
    try:
        for _, _, cdr in read_all(file):
            decode_cloud(deserialize_cloud(cdr))
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("cdr", [b"", b"\0\1\0\0", cloud_cdr(9)[:-20], b"\xff" * 200, cloud_cdr(9)[:30]])
def test_messages_that_are_no_cloud(cdr):
    with pytest.raises(InputError, match="the message is not a readable PointCloud2"):
        deserialize_cloud(cdr)


def test_the_users_own_error_passes_through(bag):
    """Only what reading raises becomes an InputError."""

    def fail_at_the_first_cloud():
        with open_bag(bag[0]) as opened:
            for _ in opened:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_first_cloud()


@pytest.mark.parametrize("name", ["real_frames_sqlite3", "real_frames_mcap"])
def test_real_bags(data_dir, tmp_path, name):
    """Both topics against the files they were made of, field by field."""
    nuscenes = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", "<f4").reshape(-1, 5)
    kitti = np.fromfile(data_dir / "kitti_000008_17238x4_f32.bin", "<f4").reshape(-1, 4)
    shutil.copytree(data_dir / name, tmp_path / "a copy")
    seen = {"/lidar_top": 0, "/velodyne_points": 0}
    with open_bag(tmp_path / "a copy") as bag:
        assert bag.counts == {"/lidar_top": 5, "/velodyne_points": 5}
        for record in bag:
            message = deserialize_cloud(record.cdr)
            cloud = decode_cloud(message)
            seen[record.topic] += 1
            columns = (
                ("x", "y", "z", "intensity", "ring") if record.topic == "/lidar_top" else ("x", "y", "z", "intensity")
            )
            assert cloud.records.dtype.names == columns
            assert len(cloud) == message.width
            assert np.shares_memory(cloud.xyz, message.data)
            if seen[record.topic] == 1:
                original = nuscenes if record.topic == "/lidar_top" else kitti
                for i, column in enumerate(columns):
                    np.testing.assert_array_equal(cloud.records[column], original[:, i])
    assert seen == {"/lidar_top": 5, "/velodyne_points": 5}
