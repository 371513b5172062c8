"""PointCloud2 messages for the tests, and a decoder that is slow, obvious and shares nothing with the package's."""

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

CODES = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 8: "d"}


@dataclass
class PointField:
    name: str
    offset: int
    datatype: int
    count: int = 1


@dataclass
class PointCloud2:
    height: int
    width: int
    fields: list[PointField]
    point_step: int
    row_step: int
    data: Any
    is_bigendian: bool = False
    is_dense: bool = True


def xyz_fields(datatype: int = 7) -> list[PointField]:
    size = struct.calcsize(CODES[datatype])
    return [PointField(name, i * size, datatype) for i, name in enumerate("xyz")]


def xyzi_message(points: np.ndarray, **changes: Any) -> PointCloud2:
    """An ordinary message of x, y, z, intensity as float32; ``changes`` break it."""
    points = np.asarray(points, "<f4").reshape(-1, 4)
    members = {
        "height": 1,
        "width": len(points),
        "fields": [*xyz_fields(), PointField("intensity", 12, 7)],
        "point_step": 16,
        "row_step": 16 * len(points),
        "data": points.tobytes(),
    }
    return PointCloud2(**{**members, **changes})


def unpack_points(message: Any) -> list[dict[str, tuple]]:
    """Each point as a mapping from the field's name to its values, byte by byte through struct."""
    order = ">" if message.is_bigendian else "<"
    data = bytes(message.data)
    points = []
    for row in range(message.height):
        for column in range(message.width):
            start = row * message.row_step + column * message.point_step
            points.append(
                {
                    f.name: struct.unpack_from(f"{order}{f.count or 1}{CODES[f.datatype]}", data, start + f.offset)
                    for f in message.fields
                }
            )
    return points


def point_bytes(message: Any) -> list[bytes]:
    """Each point's ``point_step`` bytes, padding included."""
    data = bytes(message.data)
    starts = (
        r * message.row_step + c * message.point_step for r in range(message.height) for c in range(message.width)
    )
    return [data[start : start + message.point_step] for start in starts]


@dataclass
class _Placed:
    fields: list[PointField] = field(default_factory=list)
    end: int = 0


@st.composite
def random_messages(draw: st.DrawFn) -> PointCloud2:
    """Any valid message: field types, counts, order, gaps, paddings and byte order as they fall, and random bytes."""
    xyz_type = draw(st.sampled_from(sorted(CODES)))
    extra = draw(st.lists(st.tuples(st.sampled_from(sorted(CODES)), st.integers(0, 5)), max_size=4))
    wanted = [(name, xyz_type, draw(st.integers(0, 1))) for name in "xyz"]
    wanted += [(f"extra {i}", datatype, count) for i, (datatype, count) in enumerate(extra)]
    placed = _Placed()
    for name, datatype, count in draw(st.permutations(wanted)):
        start = placed.end + draw(st.integers(0, 5))
        placed.fields.append(PointField(name, start, datatype, count))
        placed.end = start + (count or 1) * struct.calcsize(CODES[datatype])
    point_step = placed.end + draw(st.integers(0, 9))
    height, width = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    row_step = width * point_step + draw(st.integers(0, 11))
    size = max(0, height * row_step + draw(st.integers(0, 3)))
    seed = draw(st.integers(0, 2**32 - 1))
    return PointCloud2(
        height=height,
        width=width,
        fields=draw(st.permutations(placed.fields)),
        point_step=point_step,
        row_step=row_step,
        data=np.random.default_rng(seed).bytes(size),
        is_bigendian=draw(st.booleans()),
    )
