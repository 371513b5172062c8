"""Which points of a frame are used."""

import numpy as np
import pytest

from radius_fps_ros.clouds import Cloud
from radius_fps_ros.errors import InputError
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.pipeline import usable_rows

FIELDS = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "u2"), ("pad", "V3")]


def cloud_of(xyz):
    records = np.zeros(len(xyz), FIELDS)
    records["x"], records["y"], records["z"] = np.asarray(xyz, np.float32).T
    records["intensity"] = np.arange(len(xyz))
    return Cloud.of_records(records)


def expected(xyz, settings):
    """One point at a time, as the settings are worded."""
    rows = []
    for row, point in enumerate(np.asarray(xyz, np.float32)):
        if not np.isfinite(point).all():
            continue
        squared = sum(float(v) * float(v) for v in point)
        inside = settings.range_min**2 <= squared <= settings.range_max**2
        inside &= settings.roi_min is None or all(
            v >= np.float32(low) for v, low in zip(point, settings.roi_min, strict=True)
        )
        inside &= settings.roi_max is None or all(
            v <= np.float32(high) for v, high in zip(point, settings.roi_max, strict=True)
        )
        if inside:
            rows.append(row)
    return rows


@pytest.mark.parametrize(
    "settings",
    [
        PipelineSettings(),
        PipelineSettings(range_min=2.0),
        PipelineSettings(range_max=5.0),
        PipelineSettings(range_min=2.0, range_max=5.0, roi_min=(-3.0, -9.0, -1.0)),
        PipelineSettings(roi_min=(-3.0, -3.0, -3.0), roi_max=(3.0, 3.0, 0.1)),
        PipelineSettings(roi_max=(0.1, 9.0, 9.0)),
    ],
)
def test_points_inside_the_limits_are_used(settings):
    xyz = np.random.default_rng(1).normal(0, 3, (500, 3))
    xyz[::9] = np.nan
    xyz[4::31] = np.inf
    xyz[0] = (3.0, 4.0, 0.0)  # at range 5: limits are inclusive
    xyz[2] = (0.1, -3.0, -1.0)
    xyz[5] = (3e38, 3e38, -3e38)
    rows = usable_rows(cloud_of(xyz), settings)
    assert rows is not None
    assert rows.tolist() == expected(xyz, settings)


def test_no_rows_are_listed_when_all_points_are_used():
    assert usable_rows(cloud_of(np.ones((5, 3))), PipelineSettings(range_min=1.0, range_max=2.0)) is None


def test_a_frame_without_usable_points_is_refused():
    with pytest.raises(InputError, match="none of the cloud's 5 finite points lies in the region"):
        usable_rows(cloud_of(np.ones((5, 3))), PipelineSettings(range_min=2.0))


def test_taken_points_keep_every_byte():
    cloud = cloud_of(np.random.default_rng(2).normal(size=(40, 3)))
    cloud.records["pad"] = np.void(b"abc")
    rows = np.array([7, 3, 3, 39])
    taken = cloud.take(rows)
    assert taken.records.dtype == cloud.records.dtype
    assert taken.records.tobytes() == b"".join(cloud.records[row].tobytes() for row in rows)
    np.testing.assert_array_equal(taken.xyz, cloud.xyz[rows])
    np.testing.assert_array_equal(cloud_of(np.eye(3)).take(rows[:0]).xyz, np.empty((0, 3)))
    with pytest.raises(IndexError):
        cloud.take(np.array([40]))
