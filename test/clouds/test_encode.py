"""Encoding: what leaves is, byte for byte, what came in."""

import array

import numpy as np
import pytest
from cloud_messages import PointCloud2, PointField, point_bytes, random_messages, xyz_fields, xyzi_message
from hypothesis import given, settings
from hypothesis import strategies as st

from radius_fps_ros.clouds import Cloud, PointLayout, decode_cloud, encode_cloud, encode_subset
from radius_fps_ros.errors import InputError


def assert_same_layout(encoded, message):
    assert [(f.name, f.offset, f.datatype, f.count) for f in encoded.fields] == [
        (f.name, f.offset, f.datatype, f.count) for f in message.fields
    ]
    assert encoded.point_step == message.point_step
    assert encoded.is_bigendian == message.is_bigendian
    assert encoded.height == 1
    assert encoded.row_step == encoded.width * encoded.point_step == len(encoded.data)
    assert isinstance(encoded.data, array.array)
    assert encoded.data.typecode == "B"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(random_messages(), st.data())
def test_a_subset_is_bit_identical(message, data):
    points = point_bytes(message)
    picks = data.draw(st.lists(st.integers(0, len(points) - 1), max_size=12)) if points else []
    encoded = encode_subset(decode_cloud(message), np.array(picks, np.int64))
    assert_same_layout(encoded, message)
    assert encoded.width == len(picks)
    assert encoded.data.tobytes() == b"".join(points[pick] for pick in picks)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(random_messages())
def test_decode_then_encode_gives_the_same_points(message):
    encoded = encode_cloud(decode_cloud(message))
    assert_same_layout(encoded, message)
    assert encoded.data.tobytes() == b"".join(point_bytes(message))
    again = decode_cloud(encoded)
    assert encode_cloud(again).data == encoded.data
    assert again.records.dtype == decode_cloud(message).records.dtype


def test_encode_then_decode_gives_the_same_records():
    rng = np.random.default_rng(0)
    dtype = np.dtype(
        [("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("rgb", "u1", (3,)), ("ring", "<u2"), ("label", "<i4"), ("b", "i1")]
    )
    records = np.frombuffer(rng.bytes(50 * dtype.itemsize), dtype)
    cloud = decode_cloud(encode_cloud(Cloud.of_records(records)))
    assert cloud.records.dtype == dtype
    assert cloud.records.tobytes() == records.tobytes()


def test_dense_means_that_all_that_leaves_is_finite():
    points = np.arange(16, dtype="<f4").reshape(4, 4)
    points[2, 1] = np.nan
    cloud = decode_cloud(xyzi_message(points, is_dense=True))
    assert not encode_cloud(cloud).is_dense
    assert not encode_subset(cloud, np.array([0, 2])).is_dense
    assert encode_subset(cloud, np.array([3, 0])).is_dense


def test_padding_between_rows_does_not_leave():
    data = np.full(3 * 40, 0xEE, np.uint8)
    for row in range(3):
        data[row * 40 : row * 40 + 24] = row
    cloud = decode_cloud(PointCloud2(3, 2, xyz_fields(), 12, 40, data))
    assert 0xEE not in encode_cloud(cloud).data


def test_padding_never_shows_old_memory():
    """Records that are not contiguous are gathered whole; a copy field by field would leave the gaps unset."""
    dtype = np.dtype({"names": ["x", "y", "z"], "formats": ["<f4"] * 3, "offsets": [0, 4, 8], "itemsize": 64})
    records = np.zeros(4000, dtype)[::2]
    for _ in range(20):
        np.full(records.size * 64, 0xAB, np.uint8)  # memory that the allocator is likely to hand out again
        assert not any(encode_cloud(Cloud.of_records(records)).data)
        assert not any(encode_subset(Cloud.of_records(records), np.arange(0, 2000, 2)).data)


def test_index_outside_the_cloud():
    cloud = decode_cloud(xyzi_message(np.zeros((3, 4))))
    with pytest.raises(IndexError):
        encode_subset(cloud, np.array([3]))


@pytest.mark.parametrize(
    ("dtype", "sentence"),
    [
        ([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("id", "<i8")], "'id' has type int64; PointCloud2 can hold"),
        ([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("who", "U4")], "'who' has type <U4"),
        ([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("m", "<f4", (2, 2))], "'m' has type"),
        ([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("t", ">f8")], "mix little-endian and big-endian"),
    ],
)
def test_records_that_no_message_can_hold(dtype, sentence):
    with pytest.raises(InputError, match=sentence):
        encode_cloud(Cloud.of_records(np.zeros(2, dtype)))


def test_layout_of_a_dtype_and_back():
    dtype = np.dtype([("x", ">f4"), ("y", ">f4"), ("z", ">f4"), ("features", ">f4", (128,)), ("flag", "u1")])
    layout = PointLayout.of_dtype(dtype)
    assert layout.dtype == dtype
    assert layout.is_bigendian
    assert PointLayout.of_message(layout.fields, layout.point_step, True) == layout
    with pytest.raises(InputError, match="no named fields"):
        PointLayout.of_dtype(np.dtype("f4"))


def test_the_messages_own_field_objects_are_handed_on():
    """rclpy accepts only its own PointField objects: none has to be made anew for each frame."""
    message = xyzi_message(np.zeros((2, 4)))
    message.fields.append(PointField("", 16, 7, 0))
    message.point_step, message.data = 20, bytes(40)
    assert encode_subset(decode_cloud(message), np.array([1])).fields is message.fields
