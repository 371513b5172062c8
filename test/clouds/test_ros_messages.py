"""Real ROS messages in and out, and the same answers as sensor_msgs_py; each skips where its library is missing."""

import copy

import numpy as np
import pytest
from cloud_messages import point_bytes, random_messages
from hypothesis import assume, given, settings

from radius_fps_ros.clouds import decode_cloud, encode_cloud, encode_subset
from radius_fps_ros.clouds.bags import POINT_CLOUD, deserialize_cloud
from radius_fps_ros.clouds.synthetic import StreetScene

sensor_msgs = pytest.importorskip("sensor_msgs.msg", reason="no ROS messages here")


def as_ros(message):
    """The same message as rclpy's type."""
    ros = sensor_msgs.PointCloud2(
        height=message.height,
        width=message.width,
        is_bigendian=message.is_bigendian,
        point_step=message.point_step,
        row_step=message.row_step,
        is_dense=message.is_dense,
        fields=[
            sensor_msgs.PointField(name=f.name, offset=f.offset, datatype=f.datatype, count=f.count)
            for f in message.fields
        ],
    )
    ros.data = message.data
    return ros


def fill(encoded):
    """A PointCloud2 with the members of encoded data, as a node makes it."""
    ros = sensor_msgs.PointCloud2(height=encoded.height, width=encoded.width, is_dense=encoded.is_dense)
    ros.fields, ros.is_bigendian = encoded.fields, encoded.is_bigendian
    ros.point_step, ros.row_step, ros.data = encoded.point_step, encoded.row_step, encoded.data
    return ros


@settings(max_examples=50, deadline=None, derandomize=True)
@given(random_messages())
def test_a_ros_message_becomes_another(message):
    ros = as_ros(message)
    cloud = decode_cloud(ros)
    # Not records.tobytes(): of spaced records that leaves in the padding whatever the memory held.
    assert bytes(encode_cloud(cloud).data) == b"".join(point_bytes(message))
    picks = np.arange(len(cloud))[::-2]
    answer = fill(encode_subset(cloud, picks))
    assert answer.fields == ros.fields
    assert bytes(answer.data) == b"".join(point_bytes(message)[pick] for pick in picks)


def test_records_are_a_view_of_a_ros_messages_data():
    frame = StreetScene(azimuth_steps=64).frame(0)
    ros = sensor_msgs.PointCloud2(height=1, width=8, point_step=12, row_step=96)
    ros.fields = [sensor_msgs.PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    ros.data = np.column_stack([frame[n][:8] for n in "xyz"]).tobytes()
    cloud = decode_cloud(ros)
    assert np.shares_memory(cloud.xyz, np.frombuffer(ros.data, np.uint8))


def test_both_decoders_of_cdr_agree():
    serialization = pytest.importorskip("rclpy.serialization")
    message = as_ros(next(_valid_messages()))
    cdr = serialization.serialize_message(message)
    assert bytes(encode_cloud(decode_cloud(deserialize_cloud(cdr))).data) == b"".join(point_bytes(message))
    assert POINT_CLOUD == "sensor_msgs/msg/PointCloud2"


def _valid_messages():
    from cloud_messages import PointCloud2, PointField, xyz_fields

    fields = [*xyz_fields(), PointField("rgb", 16, 6), PointField("normal", 20, 7, 3)]
    yield PointCloud2(2, 3, fields, 32, 100, np.random.default_rng(0).bytes(200))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(random_messages())
def test_the_same_values_as_sensor_msgs_py(message):
    """Where sensor_msgs_py reads a layout at all: it refuses count 0, and does not know of padded rows."""
    peer = pytest.importorskip("sensor_msgs_py.point_cloud2", reason="sensor_msgs_py comes with a ROS 2 distribution")
    for field in message.fields:
        field.count = field.count or 1
    message.fields[0].name = "" if message.fields[0].name not in "xyz" else message.fields[0].name
    message.row_step = message.width * message.point_step
    message.data = message.data.ljust(message.height * message.row_step, b"\0")
    assume(message.height * message.width > 0)
    ours = decode_cloud(as_ros(message)).records
    ros = as_ros(message)
    theirs = peer.read_points(copy.deepcopy(ros))  # it swaps a big-endian message's bytes in place
    assert ours.dtype.itemsize == peer.dtype_from_fields(ros.fields, ros.point_step).itemsize
    columns = {}
    for name in ours.dtype.names:
        values = ours[name].reshape(len(ours), -1)
        many = ours[name].ndim > 1
        columns.update({f"{name}_{i}" if many else name: values[:, i] for i in range(values.shape[1])})
    assert tuple(columns) == theirs.dtype.names
    for name, column in columns.items():
        np.testing.assert_array_equal(column, theirs[name])


def test_our_messages_are_read_by_sensor_msgs_py():
    peer = pytest.importorskip("sensor_msgs_py.point_cloud2", reason="sensor_msgs_py comes with a ROS 2 distribution")
    cloud = decode_cloud(as_ros(next(_valid_messages())))
    answer = fill(encode_cloud(cloud))
    np.testing.assert_array_equal(peer.read_points_numpy(answer, ["x", "y", "z"]), cloud.xyz)
