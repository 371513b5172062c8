"""PLY files (ascii and binary of both byte orders) through plyfile: the properties of the element ``vertex``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from plyfile import PlyData, PlyElement, PlyParseError

from ..errors import InputError
from .wording import describe_error


def read_ply(path: Path) -> npt.NDArray[np.void]:
    """Return the (N,) records of a PLY file's vertices, with all their properties.

    Raises:
        InputError: the file is damaged, has no vertices, or has a list among their properties.
    """
    try:
        content = PlyData.read(path)
        lookup = {element.name: element for element in content.elements}
    # A negative count or a name that is not ASCII is a ValueError; a count beyond all memory is the others.
    except (PlyParseError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{path} is not a readable PLY file: {describe_error(error)}") from error
    if "vertex" not in lookup:
        raise InputError(f"{path} has no element 'vertex'; its elements are: {', '.join(lookup) or 'none'}")
    vertices = lookup["vertex"].data
    lists = [name for name in vertices.dtype.names or () if vertices.dtype[name].hasobject]
    if lists:
        raise InputError(f"{path} has a list as the vertex property {lists[0]!r}; only plain numbers can be used")
    return np.array(vertices)  # plyfile maps the file; a copy lets go of it


def write_ply(path: Path, records: npt.NDArray[np.void]) -> None:
    """Write (N,) records without subarrays as a binary little-endian PLY file."""
    PlyData([PlyElement.describe(records, "vertex")], byte_order="<").write(path)
