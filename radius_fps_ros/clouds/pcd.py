"""PCD files (ascii, binary, binary_compressed) through pypcd4, with the checks of a file's size that it leaves out."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from pypcd4 import Encoding, MetaData, PointCloud

from ..errors import InputError
from .wording import describe_error

_KEYWORDS = ("VERSION", "FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "VIEWPOINT", "POINTS", "DATA")
_PADDING = "#$%&~~"  # how pypcd4 begins the names it gives to PCD's padding fields, all called "_"
_MOST_VALUES = 65536
_KINDS = {"f": "F", "i": "I", "u": "U"}


def read_pcd(path: Path) -> npt.NDArray[np.void]:
    """Return the (N,) records of a PCD file; a field of COUNT n is a subarray of n.

    Raises:
        InputError: the header is damaged or contradicts the data that follow.
    """
    content = path.read_bytes()
    try:
        metadata, body = _read_header(content)
        _check_size(metadata, body)
        if metadata.data is Encoding.ASCII:  # pypcd4 takes one blank between values and nothing else
            body = b"\n".join(b" ".join(line.split()) for line in body.splitlines() if line.strip())
        cloud = PointCloud.from_fileobj(io.BytesIO(metadata.compose_header().encode() + body))
    # pypcd4 raises TypeError and RuntimeError where decompression fails; its header errors are ValueErrors.
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        raise InputError(f"{path} is not a readable PCD file: {_reason(error)}") from error
    points = cloud.pc_data.reshape(-1)  # pypcd4 gives a single ascii point no dimension, and old ones no points two
    if len(points) != metadata.points:
        raise InputError(f"{path} holds {len(points)} points, but its header claims {metadata.points}: it is damaged")
    return _named(points, metadata)


def write_pcd(path: Path, records: npt.NDArray[np.void]) -> None:
    """Write (N,) packed little-endian records as a binary PCD file."""
    fields = {name: dtype for name, (dtype, *_) in (records.dtype.fields or {}).items()}
    metadata = MetaData(
        fields=tuple(fields),
        size=tuple(dtype.base.itemsize for dtype in fields.values()),
        type=tuple(_KINDS[dtype.base.kind] for dtype in fields.values()),
        count=tuple(int(np.prod(dtype.shape)) for dtype in fields.values()),
        points=len(records),
        width=len(records),
    )
    PointCloud(metadata, records).save(path, Encoding.BINARY)


def _read_header(content: bytes) -> tuple[MetaData, bytes]:
    """Return the header and what follows it; COUNT may be missing and is 1 then, as the format says."""
    lines: dict[str, str] = {}
    rest = content
    while "DATA" not in lines:
        line, newline, rest = rest.partition(b"\n")
        words = line.decode("ascii", "replace").split()
        if words and not words[0].startswith("#"):
            if words[0] not in _KEYWORDS:
                raise ValueError(f"its header has a line that begins with {words[0][:40]!r}")
            lines[words[0]] = " ".join(words)
        if not newline and "DATA" not in lines:
            raise ValueError("its header has no DATA line")
    missing = [word for word in ("FIELDS", "SIZE", "TYPE", "WIDTH", "POINTS") if word not in lines]
    if missing:
        raise ValueError(f"its header has no {missing[0]} line")
    lines.setdefault("COUNT", "COUNT" + " 1" * (len(lines["FIELDS"].split()) - 1))
    metadata = MetaData.parse_header(list(lines.values()))
    lengths = {len(metadata.fields), len(metadata.size), len(metadata.type), len(metadata.count)}
    if len(lengths) > 1:
        raise ValueError("FIELDS, SIZE, TYPE and COUNT differ in length")
    if sum(metadata.count) > _MOST_VALUES:
        raise ValueError(f"it has {sum(metadata.count)} values a point; at most {_MOST_VALUES} can be read")
    if len(set(metadata.fields)) < len(metadata.fields):
        raise ValueError("two of its fields have the same name")
    return metadata, rest


def _check_size(metadata: MetaData, body: bytes) -> None:
    """Refuse a header that claims more than the file holds, before anything is allocated for it."""
    count, width, height = metadata.points, metadata.width, metadata.height
    if width * height != count:
        raise ValueError(f"WIDTH {width} times HEIGHT {height} is not POINTS {count}")
    values = sum(metadata.count)
    needed = count * sum(size * n for size, n in zip(metadata.size, metadata.count, strict=True))
    held = len(body)
    if count and metadata.data is Encoding.ASCII:
        needed = count * 2 * values - 1  # a digit and a blank each
    elif count and metadata.data is not Encoding.BINARY:
        if held < 8:
            raise ValueError("it ends before the compressed data")
        compressed, uncompressed = struct.unpack("<II", body[:8])
        if uncompressed != needed:
            raise ValueError(f"its compressed data unfold to {uncompressed} bytes, but {count} points need {needed}")
        needed = compressed + 8
    if held < needed:
        raise ValueError(f"it is cut short: {count} points need {needed} bytes after the header, and {held} are there")


def _named(points: npt.NDArray[np.void], metadata: MetaData) -> npt.NDArray[np.void]:
    """Put pypcd4's ``name__0000``, ``name__0001``, ... back into one subarray, and leave padding fields out."""
    names, formats, offsets, offset = [], [], [], 0
    for name, size, kind, count in zip(metadata.fields, metadata.size, metadata.type, metadata.count, strict=True):
        base = np.dtype(f"<{kind.lower()}{size}")
        if not name.startswith(_PADDING):
            names.append(name)
            formats.append(base if count == 1 else np.dtype((base, (count,))))
            offsets.append(offset)
        offset += count * size
    records = points.view(np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": offset}))
    if metadata.data not in (Encoding.ASCII, Encoding.BINARY):
        # Compressed data are one block a field. In PCL's a block holds all values of point 0, then of point 1, ...;
        # pypcd4 takes it as the first value of all points, then the second of all points.
        for name in names:
            if (shape := records[name].shape)[1:]:
                columns = [points[f"{name}__{i:04d}"] for i in range(shape[1])]
                records[name] = np.concatenate(columns).reshape(shape)
    return records


def _reason(error: Exception) -> str:
    """Return pydantic's list of reasons as one: the place and what is wrong there."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{first['loc'][0] if first['loc'] else 'header'}: {first['msg']}"
    return describe_error(error)
