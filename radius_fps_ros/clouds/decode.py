"""A PointCloud2's bytes as arrays: records with every field, and coordinates for the algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .layout import FieldLike, PointLayout
from .wording import describe_names


class PointCloud2Like(Protocol):
    """What is read of a sensor_msgs/PointCloud2; rclpy's and rosbags' messages both offer it."""

    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def fields(self) -> Sequence[FieldLike]: ...  # noqa: D102
    @property
    def is_bigendian(self) -> bool: ...  # noqa: D102
    @property
    def point_step(self) -> int: ...  # noqa: D102
    @property
    def row_step(self) -> int: ...  # noqa: D102
    @property
    def data(self) -> Any: ...  # noqa: D102  # anything with a buffer: array.array, bytes, a NumPy array


@dataclass(frozen=True)
class Cloud:
    """N points: their records with all fields, and their coordinates in metres.

    Attributes:
        records: (N,) structured; a view of the bytes the cloud came from wherever those allow.
        xyz: (N, 3) float32, native and aligned, with any strides: a view of ``records`` where x, y and z are such
            floats at even spacing, else a copy. Other types are rounded; what exceeds float32 becomes infinite.
        layout: how ``records`` lie in memory, in a message's terms; None when they did not come from a message.
        fields: the message's own entries that ``layout`` was read from.
    """

    records: npt.NDArray[np.void]
    xyz: npt.NDArray[np.float32]
    layout: PointLayout | None = None
    fields: Sequence[FieldLike] = ()

    @classmethod
    def of_records(cls, records: npt.NDArray[np.void]) -> Cloud:
        """Wrap (N,) structured records that have x, y and z.

        Raises:
            InputError: x, y or z is missing, they differ in type, or are not plain numbers.
        """
        return cls(records, _coordinates(records))

    def __len__(self) -> int:
        return len(self.records)

    @property
    def opaque(self) -> npt.NDArray[np.void]:
        """(N,) a view of the records as items without fields.

        NumPy copies such items whole. Records it would copy field by field, ten times slower, and leave whatever the
        memory held before in the padding.
        """
        itemsize = self.records.itemsize
        return self.records.view(f"V{itemsize}") if itemsize else self.records

    def take(self, rows: npt.NDArray[np.integer]) -> Cloud:
        """A copy of the points at ``rows`` (M,), in that order.

        Raises:
            IndexError: a row lies outside the cloud.
        """
        records = np.take(self.opaque, rows).view(self.records.dtype)
        return Cloud(records, np.take(self.xyz, rows, axis=0), self.layout, self.fields)

    @cached_property
    def finite(self) -> npt.NDArray[np.bool_]:
        """(N,) whether x, y and z are all finite. A message's ``is_dense`` promises that; drivers break the promise."""
        x, y, z = self.xyz.T
        finite: npt.NDArray[np.bool_] = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
        return finite


@dataclass(frozen=True)
class CloudBytes:
    """A PointCloud2's bytes, known to hold what its header claims, and not read yet.

    Point i begins at byte ``i // width * row_step + i % width * layout.point_step``.

    Attributes:
        layout: of a point; without any fields only where there are no points.
        fields: the message's own entries that ``layout`` was read from.
        count, width: points in all, and in a row.
        row_step: bytes from row to row, at least a row's points.
        data: (B,) uint8, a view of the message's.
    """

    layout: PointLayout
    fields: Sequence[FieldLike]
    count: int
    width: int
    row_step: int
    data: npt.NDArray[np.uint8]


def check_cloud(message: PointCloud2Like) -> CloudBytes:
    """Check a PointCloud2's header against its data; nothing is copied or allocated.

    ``row_step`` matters only with several rows, and the padding of the last one may be missing.

    Raises:
        InputError: the layout cannot be read (see ``PointLayout``), ``row_step`` is smaller than a row, or the data is
            shorter than the header claims.
    """
    fields = message.fields
    layout = PointLayout.of_message(fields, message.point_step, message.is_bigendian)
    height, width, step = int(message.height), int(message.width), layout.point_step
    if height < 0 or width < 0:
        raise InputError(f"the cloud's height is {height} and its width {width}; neither can be negative")
    count = height * width
    if count == 0:
        return CloudBytes(layout, fields, 0, 0, 0, np.empty(0, np.uint8))
    if not layout.fields:
        raise InputError(f"the cloud claims {count} points but describes no fields; x, y and z are needed")

    row_step = int(message.row_step) if height > 1 else width * step
    if row_step < width * step:
        raise InputError(f"row_step is {row_step}, but a row of {width} points of {step} bytes needs {width * step}")
    data = _bytes_of(message.data)
    needed = (height - 1) * row_step + width * step
    if data.size < needed:
        raise InputError(f"data holds {data.size} bytes, but {height} x {width} points of {step} bytes need {needed}")
    return CloudBytes(layout, fields, count, width, row_step, data[:needed])


def decode_cloud(message: PointCloud2Like) -> Cloud:
    """Return the points of a PointCloud2, in row-major order when it is organized.

    Nothing is copied unless rows are padded, or x, y and z are not evenly spaced native float32. A cloud of zero points
    is an empty Cloud.

    Raises:
        InputError: as `check_cloud`, and when x, y or z is missing or unusable.
    """
    cloud = check_cloud(message)
    layout, step = cloud.layout, cloud.layout.point_step
    if cloud.count == 0:
        empty: npt.NDArray[np.void] = np.empty(0, layout.dtype)
        if not layout.fields:  # what publishers send that have seen nothing yet
            return Cloud(empty, np.empty((0, 3), np.float32), layout)
        return Cloud(empty, _coordinates(empty), layout, cloud.fields)
    data, row = cloud.data, cloud.width * step
    height = cloud.count // cloud.width
    if height > 1 and cloud.width > 1 and cloud.row_step > row:
        rows = np.lib.stride_tricks.as_strided(data, (height, row), (cloud.row_step, 1))
        data = np.ascontiguousarray(rows).reshape(-1)
    stride = cloud.row_step if cloud.width == 1 and height > 1 else step
    records: npt.NDArray[np.void] = np.ndarray((cloud.count,), layout.dtype, data, strides=(stride,))
    return Cloud(records, _coordinates(records), layout, cloud.fields)


def _bytes_of(data: Any) -> npt.NDArray[np.uint8]:
    """Return a flat view of anything that has a buffer."""
    try:
        view = memoryview(data)
    except TypeError:
        raise InputError(
            f"data is of type {type(data).__name__}; needed are bytes, array.array or a NumPy array"
        ) from None
    if view.nbytes == 0:
        return np.empty(0, np.uint8)
    if not view.c_contiguous:
        raise InputError("data is not contiguous in memory; a message's bytes must be")
    return np.frombuffer(view, np.uint8)


def coordinate_fields(dtype: np.dtype) -> tuple[np.dtype, tuple[int, int, int]]:
    """The type that x, y and z share in records of ``dtype``, and their offsets [bytes].

    Raises:
        InputError: one is missing, they differ in type, or are not one real number each.
    """
    fields: Mapping[str, Any] = dtype.fields or {}
    missing = [name for name in "xyz" if name not in fields]
    if missing:
        raise InputError(
            f"the cloud has no field {describe_names(missing)}; x, y and z are needed, "
            f"and its fields are: {describe_names(fields)}"
        )
    types = [fields[name][0] for name in "xyz"]
    if any(dtype != types[0] for dtype in types):
        kinds = ", ".join(f"{name} {dtype}" for name, dtype in zip("xyz", types, strict=True))
        raise InputError(f"x, y and z must have the same type, but are {kinds}")
    if types[0].kind not in "fiu" or types[0].shape:
        raise InputError(f"x, y and z are of type {types[0]} each; needed is one real number each")
    x, y, z = (fields[name][1] for name in "xyz")
    return types[0], (x, y, z)


def _coordinates(records: npt.NDArray[np.void]) -> npt.NDArray[np.float32]:
    kind, (x, y, z) = coordinate_fields(records.dtype)
    if kind == np.float32 and z - y == y - x:
        view = np.lib.stride_tricks.as_strided(records["x"], (len(records), 3), (records.strides[0], y - x))
        if view.flags.aligned:
            return view
    # Column by column into contiguous memory: NumPy gathers unaligned and foreign values several times faster so.
    columns = np.empty((3, len(records)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # too large, or a signalling NaN
        for column, name in zip(columns, "xyz", strict=True):
            column[:] = records[name]
    xyz: npt.NDArray[np.float32] = columns.T
    return xyz
