"""From results to ROS messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from diagnostic_msgs.msg import KeyValue
from radius_fps_interfaces.msg import FrameStats
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header

from ..clouds import Cloud, CloudData, encode_cloud
from ..clouds.layout import FieldLike
from ..frame import FrameResult


def cloud_message(data: CloudData, header: Header) -> PointCloud2:
    """A PointCloud2 with the incoming header, unchanged."""
    message = PointCloud2(header=header)
    message.height = data.height
    message.width = data.width
    message.fields = [f if isinstance(f, PointField) else _point_field(f) for f in data.fields]
    message.is_bigendian = data.is_bigendian
    message.point_step = data.point_step
    message.row_step = data.row_step
    message.is_dense = data.is_dense
    message.data = data.data
    return message


def _point_field(field: FieldLike) -> PointField:
    return PointField(name=field.name, offset=field.offset, datatype=field.datatype, count=field.count)


def records_message(records: npt.NDArray[np.void], header: Header) -> PointCloud2:
    """A PointCloud2 of (N,) structured records with x, y and z."""
    return cloud_message(encode_cloud(Cloud.of_records(records)), header)


def answered_stats(result: FrameResult, header: Header) -> FrameStats:
    """The statistics of an answered frame; the caller adds times and counts."""
    return FrameStats(
        header=header,
        status=FrameStats.ANSWERED,
        points_in=result.points_in,
        points_used=result.points_used,
        samples=len(result.indices),
        coverage_radius=result.coverage_radius,
        skip_rate=result.stats.skip_rate,
        backend=result.stats.backend,
        method=result.stats.method,
    )


def set_stages(stats: FrameStats, milliseconds: dict[str, float]) -> None:
    """Fill in the milliseconds of each stage."""
    stats.stage_names = list(milliseconds)
    stats.stage_milliseconds = list(milliseconds.values())


def key_values(values: dict[str, Any]) -> list[KeyValue]:
    """Diagnostic values; floats with three decimals."""
    return [KeyValue(key=k, value=f"{v:.3f}" if isinstance(v, float) else str(v)) for k, v in values.items()]
