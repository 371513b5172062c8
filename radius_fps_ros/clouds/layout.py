"""How a PointCloud2 lays its points out in bytes: the fields, checked, and the structured dtype that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np

from ..errors import InputError
from .wording import describe_names

# sensor_msgs/PointField's datatypes 1 to 8, in order.
_DATATYPES = tuple(np.dtype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"))
_NUMBERS = {dtype: number for number, dtype in enumerate(_DATATYPES, 1)}
_ALLOWED = ", ".join(f"{number} ({dtype.name})" for number, dtype in enumerate(_DATATYPES, 1))
_LARGEST_STEP = 2**31 - 1  # NumPy's limit of an item's size; a point of 2 GB is absurd anyhow


class FieldLike(Protocol):
    """What sensor_msgs/PointField offers."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def datatype(self) -> int: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Field:
    """One entry of a PointCloud2's ``fields``, with PointField's members.

    Attributes:
        name: of the field.
        offset: bytes from the beginning of a point.
        datatype: PointField's number of the type, 1 (int8) to 8 (float64).
        count: values a point.
    """

    name: str
    offset: int
    datatype: int
    count: int = 1


@dataclass(frozen=True)
class PointLayout:
    """The layout of one point.

    Attributes:
        fields: as the message gave them.
        point_step: bytes a point.
        is_bigendian: the byte order of all values.
        dtype: of the records.

    The dtype is ``point_step`` bytes long and has one member a field, in the fields' order and byte order. A field of
    count n > 1 is a subarray of n values. Where other programs disagree, this one reads

    - count 0 as 1, as PCL does (old drivers left it unset);
    - a field without a name as ``unnamed_field_<position>``, as sensor_msgs_py does.

    Both are carried on unchanged in ``fields``.
    """

    fields: tuple[Field, ...]
    point_step: int
    is_bigendian: bool
    dtype: np.dtype[np.void]

    @classmethod
    def of_message(cls, fields: Iterable[FieldLike], point_step: int, is_bigendian: bool) -> PointLayout:
        """Check ``fields``, ``point_step`` and ``is_bigendian`` of a message and return their layout.

        Raises:
            InputError: a datatype outside 1..8, a field that ends beyond ``point_step``, fields that overlap or share a
                name, or a ``point_step`` of 2 GiB and more.
        """
        plain = tuple(Field(f.name, int(f.offset), int(f.datatype), int(f.count)) for f in fields)
        return _checked_layout(plain, int(point_step), bool(is_bigendian))

    @classmethod
    def of_dtype(cls, dtype: np.dtype) -> PointLayout:
        """Return the layout whose records have this structured dtype.

        Raises:
            InputError: the dtype is not structured, mixes byte orders, or holds a type that PointField cannot name.
        """
        if dtype.names is None:
            raise InputError(f"records of type {dtype} have no named fields; a structured dtype is needed")
        fields, orders = [], set()
        for name in dtype.names:
            member, offset = dtype.fields[name][:2]  # type: ignore[index]
            base = member.base
            if base.newbyteorder("=") not in _NUMBERS or len(member.shape) > 1:
                raise InputError(f"field {name!r} has type {member}; PointCloud2 can hold {_ALLOWED}")
            if base.itemsize > 1:
                orders.add(base.newbyteorder("<") != base)
            count = member.shape[0] if member.shape else 1
            fields.append(Field(name, offset, _NUMBERS[base.newbyteorder("=")], count))
        if len(orders) > 1:
            raise InputError("the fields mix little-endian and big-endian; PointCloud2 has one byte order for all")
        return cls.of_message(fields, dtype.itemsize, orders.pop() if orders else False)


def datatype_number(dtype: np.dtype) -> int:
    """PointField's number of a plain numeric type, whatever its byte order; KeyError when it has none."""
    return _NUMBERS[dtype.newbyteorder("=")]


# A sensor sends the same layout with every frame: it is checked once.
@lru_cache(maxsize=64)
def _checked_layout(fields: tuple[Field, ...], point_step: int, is_bigendian: bool) -> PointLayout:
    if not 0 <= point_step <= _LARGEST_STEP:
        raise InputError(f"point_step is {point_step}; allowed are 0 to {_LARGEST_STEP}")
    names: list[str] = []
    formats: list[np.dtype] = []
    spans: list[tuple[int, int, str]] = []
    for position, field in enumerate(fields):
        label = describe_names([field.name])
        if not 1 <= field.datatype <= len(_DATATYPES):
            raise InputError(f"field {label} has datatype {field.datatype}; allowed are {_ALLOWED}")
        base = _DATATYPES[field.datatype - 1].newbyteorder(">" if is_bigendian else "<")
        count = field.count or 1
        end = field.offset + count * base.itemsize
        if field.offset < 0 or count < 0:
            raise InputError(
                f"field {label} has offset {field.offset} and count {field.count}; neither can be negative"
            )
        if end > point_step:
            raise InputError(f"field {label} ends at byte {end}, beyond point_step, which is {point_step}")
        names.append(field.name or f"unnamed_field_{position}")
        formats.append(base if count == 1 else np.dtype((base, (count,))))
        spans.append((field.offset, end, label))
    if len(set(names)) < len(names):
        twice = (name for name, times in Counter(names).items() if times > 1)
        raise InputError(f"several fields have the same name: {describe_names(twice)}; each must have its own")
    spans.sort()
    for (_, end, before), (start, _, after) in pairwise(spans):
        if start < end:
            raise InputError(
                f"fields {before} and {after} overlap: one ends at byte {end}, the other begins at {start}"
            )
    offsets = [field.offset for field in fields]
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": point_step})
    return PointLayout(fields, point_step, is_bigendian, dtype)
