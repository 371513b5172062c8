"""What the kernels must know of a message: the ``Frame`` of ``frame.cu``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..clouds.decode import CloudBytes, coordinate_fields
from ..clouds.layout import datatype_number
from ..errors import InputError
from ..frame import PipelineSettings

MOST_COLUMNS = 32

_VALUE = np.dtype([("offset", np.uint32), ("type", np.uint32)])
_FRAME = np.dtype(
    [
        ("row_step", np.uint64),
        ("points", np.uint32),
        ("width", np.uint32),
        ("point_step", np.uint32),
        ("swapped", np.uint32),
        ("xyz", _VALUE, 3),
        ("columns", np.uint32),
        ("column", _VALUE, MOST_COLUMNS),
        ("box_low", np.float32, 3),
        ("box_high", np.float32, 3),
        ("range_low", np.float64),
        ("range_high", np.float64),
    ],
    align=True,
)
_EVERYWHERE = (float("inf"),) * 3


def frame_argument(cloud: CloudBytes, fields: Sequence[str], settings: PipelineSettings) -> npt.NDArray[Any]:
    """The kernels' argument for a cloud with points, whose ``fields`` become the columns; a 0-d array, passed by value.

    Raises:
        InputError: x, y and z cannot be used, or there are more columns than the kernels take.
    """
    if len(fields) > MOST_COLUMNS:
        raise InputError(f"the network reads {len(fields)} fields of a point; at most {MOST_COLUMNS} are allowed")
    dtype = cloud.layout.dtype
    kind, offsets = coordinate_fields(dtype)
    frame = np.zeros((), _FRAME)
    frame["row_step"], frame["points"], frame["width"] = cloud.row_step, cloud.count, cloud.width
    frame["point_step"] = cloud.layout.point_step
    frame["swapped"] = cloud.layout.is_bigendian != (sys.byteorder == "big")
    frame["xyz"] = [(offset, datatype_number(kind)) for offset in offsets]
    frame["columns"] = len(fields)
    for slot, name in enumerate(fields):
        member, offset = dtype.fields[name][:2]  # type: ignore[index]
        frame["column"][slot] = (offset, datatype_number(member))
    frame["box_low"] = settings.roi_min or [-v for v in _EVERYWHERE]
    frame["box_high"] = settings.roi_max or _EVERYWHERE
    frame["range_low"], frame["range_high"] = settings.range_min**2, settings.range_max**2
    return frame


def capacity_for(points: int) -> int:
    """Rows of the buffers for a cloud: the next of 4, 5, 6, 7, 8, 10, ... times a power of two, at least 1,024.

    Clouds of about the same size share buffers and a CUDA graph, and at most a quarter of the rows is left over.
    """
    step = max(256, 1 << max(0, (points - 1).bit_length() - 3))
    return max(1024, -(-points // step) * step)
