"""Decoding: every layout against a slow independent decoder, what is and is not copied, and what is refused."""

import array
import tracemalloc

import numpy as np
import pytest
from cloud_messages import PointCloud2, PointField, random_messages, unpack_points, xyz_fields, xyzi_message
from hypothesis import given, settings
from hypothesis import strategies as st

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.clouds.synthetic import LIDAR_DTYPE, StreetScene
from radius_fps_ros.errors import InputError

POINTS = np.arange(24, dtype="<f4").reshape(6, 4) / 3


def assert_decodes_like_struct(message):
    cloud = decode_cloud(message)
    expected = unpack_points(message)
    assert len(cloud) == len(expected) == len(cloud.xyz)
    assert cloud.xyz.dtype == np.float32
    assert cloud.xyz.dtype.isnative
    assert cloud.xyz.shape == (len(expected), 3)
    assert cloud.xyz.flags.aligned
    for f in message.fields:
        got = cloud.records[f.name].reshape(len(expected), f.count or 1)
        want = np.array([point[f.name] for point in expected], got.dtype.newbyteorder("=")).reshape(got.shape)
        np.testing.assert_array_equal(got, want)
    with np.errstate(over="ignore"):
        want = np.array([[np.float32(point[axis][0]) for axis in "xyz"] for point in expected]).reshape(-1, 3)
    np.testing.assert_array_equal(cloud.xyz, want)
    np.testing.assert_array_equal(cloud.finite, np.isfinite(want).all(axis=1))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(random_messages())
def test_any_layout_decodes_like_struct(message):
    assert_decodes_like_struct(message)


@pytest.mark.parametrize("datatype", range(1, 9))
@pytest.mark.parametrize("is_bigendian", [False, True])
def test_each_datatype(datatype, is_bigendian):
    fields = [*xyz_fields(datatype), PointField("twin", 40, datatype, 2), PointField("one", 60, datatype, 0)]
    data = np.random.default_rng(datatype).bytes(5 * 70)
    assert_decodes_like_struct(PointCloud2(1, 5, fields, 70, 350, data, is_bigendian))


class TestCopies:
    """What is viewed and what is copied."""

    def test_ordinary_float32_is_a_view(self):
        message = xyzi_message(POINTS)
        message.data = np.frombuffer(message.data, np.uint8)
        cloud = decode_cloud(message)
        assert np.shares_memory(cloud.records, message.data)
        assert np.shares_memory(cloud.xyz, message.data)

    def test_rclpys_array_is_viewed_too(self):
        message = xyzi_message(POINTS)
        message.data = array.array("B", message.data)
        cloud = decode_cloud(message)
        message.data[0:4] = array.array("B", np.float32(77).tobytes())
        assert cloud.xyz[0, 0] == 77
        assert cloud.records["x"][0] == 77

    def test_spread_out_coordinates_are_a_view(self):
        fields = [PointField("z", 0, 7), PointField("x", 16, 7), PointField("y", 8, 7)]
        message = PointCloud2(1, 3, fields, 24, 72, np.arange(72, dtype=np.uint8))
        cloud = decode_cloud(message)
        assert np.shares_memory(cloud.xyz, message.data)
        assert_decodes_like_struct(message)

    def test_single_column_with_row_padding_is_a_view(self):
        message = PointCloud2(4, 1, xyz_fields(), 12, 20, np.arange(80, dtype=np.uint8))
        cloud = decode_cloud(message)
        assert np.shares_memory(cloud.xyz, message.data)
        assert_decodes_like_struct(message)

    @pytest.mark.parametrize(
        ("fields", "step", "bigendian"),
        [
            (xyz_fields(8), 24, False),
            (xyz_fields(5), 12, False),
            (xyz_fields(7), 12, True),
            (xyz_fields(7), 14, False),  # not aligned
            ([PointField("x", 0, 7), PointField("y", 4, 7), PointField("z", 12, 7)], 16, False),
        ],
    )
    def test_other_coordinates_are_copied_but_records_are_not(self, fields, step, bigendian):
        message = PointCloud2(1, 4, fields, step, 4 * step, np.arange(4 * step, dtype=np.uint8), bigendian)
        cloud = decode_cloud(message)
        assert np.shares_memory(cloud.records, message.data)
        assert not np.shares_memory(cloud.xyz, message.data)
        assert_decodes_like_struct(message)

    def test_padded_rows_are_closed_up(self):
        message = PointCloud2(3, 2, xyz_fields(), 12, 30, np.arange(90, dtype=np.uint8))
        assert not np.shares_memory(decode_cloud(message).records, message.data)
        assert_decodes_like_struct(message)

    def test_a_frame_of_the_synthetic_sensor_keeps_every_field(self):
        frame = StreetScene(azimuth_steps=128).frame(0)
        numbers = {"f": 7, "u": 4}
        fields = [PointField(n, d[1], numbers[d[0].kind]) for n, d in LIDAR_DTYPE.fields.items()]
        message = PointCloud2(1, len(frame), fields, 22, 22 * len(frame), frame.tobytes())
        np.testing.assert_array_equal(decode_cloud(message).records, frame)


class TestOddButValid:
    """Messages that look strange and are still read."""

    def test_a_default_constructed_message_is_an_empty_cloud(self):
        cloud = decode_cloud(PointCloud2(0, 0, [], 0, 0, b""))
        assert len(cloud) == 0
        assert cloud.xyz.shape == (0, 3)

    @pytest.mark.parametrize(("height", "width"), [(1, 0), (0, 7), (0, 0)])
    def test_zero_points(self, height, width):
        cloud = decode_cloud(xyzi_message(np.empty((0, 4)), height=height, width=width))
        assert len(cloud) == 0
        assert cloud.records.dtype.names == ("x", "y", "z", "intensity")
        assert cloud.finite.shape == (0,)

    def test_data_may_be_longer_than_needed(self):
        message = xyzi_message(POINTS)
        message.data += b"tail"
        np.testing.assert_array_equal(decode_cloud(message).xyz, POINTS[:, :3])

    def test_the_last_rows_padding_may_be_missing(self):
        message = PointCloud2(2, 2, xyz_fields(), 12, 30, bytes(range(54)))
        assert_decodes_like_struct(message)

    def test_row_step_does_not_matter_for_one_row(self):
        np.testing.assert_array_equal(decode_cloud(xyzi_message(POINTS, row_step=0)).xyz, POINTS[:, :3])

    def test_field_without_a_name_gets_one(self):
        message = xyzi_message(POINTS)
        message.fields[3].name = ""
        np.testing.assert_array_equal(decode_cloud(message).records["unnamed_field_3"], POINTS[:, 3])

    def test_not_finite_points_are_kept_and_marked(self):
        points = POINTS.copy()
        points[1, 0], points[2, 1], points[4, 2], points[5, 3] = np.nan, np.inf, -np.inf, np.nan
        cloud = decode_cloud(xyzi_message(points))
        assert cloud.finite.tolist() == [True, False, False, True, False, True]

    def test_float64_beyond_float32_becomes_infinite(self):
        data = np.array([[1e300, 0, 0], [1 + 1e-9, 2, 3]], "<f8").tobytes()
        cloud = decode_cloud(PointCloud2(1, 2, xyz_fields(8), 24, 48, data))
        assert cloud.finite.tolist() == [False, True]
        assert cloud.xyz[1].tolist() == [1, 2, 3]
        assert cloud.records["x"][1] == 1 + 1e-9


def _without(*names):
    fields = xyzi_message(POINTS).fields
    return [f for f in fields if f.name not in names]


REFUSED = {
    "no z": ({"fields": _without("z")}, r"no field 'z'; .* its fields are: 'x', 'y', 'intensity'"),
    "no coordinates": ({"fields": _without("x", "y", "z")}, "no field 'x', 'y', 'z'"),
    "no fields": ({"fields": []}, "claims 6 points but describes no fields"),
    "cut short": ({"data": bytes(95)}, "data holds 95 bytes, but 1 x 6 points of 16 bytes need 96"),
    "no data": ({"data": b""}, "data holds 0 bytes"),
    "no bytes": ({"data": [1, 2, 3]}, "data is of type list"),
    "gaps": ({"data": np.zeros(400, np.uint8)[::2]}, "data is not contiguous"),
    "absurd size": ({"height": 2**32 - 1, "width": 2**32 - 1, "row_step": 2**32 - 1}, "row_step is 4294967295"),
    "absurd width": ({"width": 2**32 - 1}, "need 68719476720"),
    "wraps to 96 in 32 bits": ({"width": 2**28 + 6}, "need 4294967392"),
    "negative": ({"height": -1}, "neither can be negative"),
    "step too small": ({"point_step": 15}, "'intensity' ends at byte 16, beyond point_step, which is 15"),
    "step zero": ({"point_step": 0}, "beyond point_step, which is 0"),
    "step absurd": ({"point_step": 2**31}, "point_step is 2147483648; allowed are 0 to 2147483647"),
    "row too small": ({"height": 2, "width": 3, "row_step": 47}, "row_step is 47, but a row of 3 points"),
    "overlap": ({"fields": [*_without("z"), PointField("z", 10, 7)]}, "'z' and 'intensity' overlap"),
    "overlap by a byte": ({"fields": [*_without("z"), PointField("z", 9, 7)]}, "at byte 13, the other begins at 12"),
    "same place": ({"fields": [*_without(), PointField("again", 0, 7)]}, "'again' and 'x' overlap"),
    "count overlaps": ({"fields": [PointField("x", 0, 7, 2), *_without("x")]}, "'x' and 'y' overlap"),
    "count is the width": ({"fields": [PointField("x", 0, 7, 6), *_without("x")]}, "ends at byte 24, beyond"),
    "absurd count": ({"fields": [*_without(), PointField("f", 0, 8, 2**32 - 1)]}, "ends at byte 34359738360"),
    "absurd offset": ({"fields": [*_without(), PointField("f", 2**32 - 1, 1)]}, "ends at byte 4294967296"),
    "negative offset": ({"fields": [*_without(), PointField("f", -4, 7)]}, "neither can be negative"),
    "datatype 0": ({"fields": [*_without("x"), PointField("x", 0, 0)]}, r"datatype 0; allowed are 1 \(int8\)"),
    "datatype 9": ({"fields": [*_without("x"), PointField("x", 0, 9)]}, "datatype 9; allowed are"),
    "same name": ({"fields": [*_without("intensity"), PointField("x", 12, 7)]}, "same name: 'x'"),
    "types differ": ({"fields": [*_without("z"), PointField("z", 8, 5)]}, "same type, but are x float32, .* z int32"),
    "vectors": (
        {"fields": [PointField(n, i * 8, 7, 2) for i, n in enumerate("xyz")], "point_step": 24, "width": 4},
        "needed is one real number each",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_one_sentence(changes, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        decode_cloud(xyzi_message(POINTS, **changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


ODD_NUMBERS = st.one_of(
    st.integers(0, 40), st.sampled_from([2**k + d for k in (8, 16, 28, 31, 32) for d in (-1, 0, 1) if 2**k + d < 2**32])
)
HEADER = ("height", "width", "point_step", "row_step")


@settings(max_examples=600, deadline=None, derandomize=True)
@given(random_messages(), st.data())
def test_broken_headers_never_do_worse_than_input_error(message, data):
    """Random damage raises nothing but InputError, and allocates no more than the data that is there."""
    for _ in range(data.draw(st.integers(1, 4))):
        what = data.draw(st.sampled_from(["header", "field", "data", "fields", "endian"]))
        if what == "header":
            setattr(message, data.draw(st.sampled_from(HEADER)), data.draw(ODD_NUMBERS))
        elif what == "field" and message.fields:
            damaged = data.draw(st.sampled_from(message.fields))
            setattr(damaged, data.draw(st.sampled_from(["offset", "count", "datatype"])), data.draw(ODD_NUMBERS))
            damaged.name = data.draw(st.one_of(st.just(damaged.name), st.sampled_from(["x", "y", ""]), st.text()))
        elif what == "data":
            message.data = message.data[: data.draw(st.integers(0, len(message.data)))]
        elif what == "fields":
            message.fields = data.draw(st.permutations(message.fields))[: data.draw(st.integers(0, 5))]
        else:
            message.is_bigendian = not message.is_bigendian
    tracemalloc.start()
    cloud, refusal = _decode_or_refusal(message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 + 20 * len(message.data)
    assert "\n" not in refusal
    assert len(refusal) < 1000
    if cloud is not None:
        assert len(cloud) == message.height * message.width
        assert len(cloud) * message.point_step <= len(message.data) or len(cloud) == 0


def _decode_or_refusal(message):
    try:
        return decode_cloud(message), ""
    except InputError as error:
        return None, str(error)
