"""Points back into the members of a PointCloud2, byte for byte as they came."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .decode import Cloud
from .layout import FieldLike, PointLayout


@dataclass(frozen=True)
class CloudData:
    """The members of a sensor_msgs/PointCloud2 but for the header.

    Attributes:
        width, height: points in the only row, and 1.
        fields: the entries of the message that the points came from, or else `Field` objects with the same members.
        is_bigendian: the byte order of all values.
        point_step: bytes a point.
        data: an ``array.array('B')``, the type that rclpy takes over without looking at each byte.
        is_dense: whether all coordinates are finite.
    """

    width: int
    fields: Sequence[FieldLike]
    is_bigendian: bool
    point_step: int
    data: array[int]
    is_dense: bool
    height: int = 1

    @property
    def row_step(self) -> int:
        """Bytes in the only row."""
        return self.width * self.point_step


def encode_subset(cloud: Cloud, indices: npt.NDArray[np.integer]) -> CloudData:
    """Encode the points at ``indices`` (M,), in that order, in the cloud's own layout.

    Each point's ``point_step`` bytes are those it came with: every field, the byte order, the padding between fields.
    Padding between rows is left out. ``is_dense`` says whether all coordinates that leave are finite.

    Raises:
        InputError: the cloud did not come from a message and its records hold a type that PointCloud2 cannot.
        IndexError: an index lies outside the cloud.
    """
    return _pack(cloud.opaque.take(indices), bool(np.isfinite(cloud.xyz[indices]).all()), cloud)


def encode_cloud(cloud: Cloud) -> CloudData:
    """Encode all points in the cloud's own layout, as one row; see `encode_subset`."""
    return _pack(np.ascontiguousarray(cloud.opaque), bool(cloud.finite.all()), cloud)


def _pack(points: npt.NDArray[np.void], is_dense: bool, cloud: Cloud) -> CloudData:
    layout = cloud.layout or PointLayout.of_dtype(cloud.records.dtype)
    data = array("B")
    if points.nbytes:
        data.frombytes(points.view(np.uint8).data)
    return CloudData(
        width=len(points),
        fields=cloud.fields or layout.fields,
        is_bigendian=layout.is_bigendian,
        point_step=layout.point_step,
        data=data,
        is_dense=is_dense,
    )
