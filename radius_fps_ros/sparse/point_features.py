"""Input features of points from the fields of their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..clouds.wording import describe_names
from ..errors import InputError


def check_fields(records: np.dtype[Any], fields: Sequence[str]) -> None:
    """Refuse records that a network which reads ``fields`` cannot work with.

    Raises:
        InputError: a field is missing or holds several values a point.
    """
    present = records.names or ()
    missing = [name for name in fields if name not in present]
    if missing:
        raise InputError(
            f"the cloud has no field {', '.join(missing)}, which the network reads ({', '.join(fields)}); "
            f"its fields are {describe_names(present)}"
        )
    for name in fields:
        shape = records[name].shape
        if shape:
            raise InputError(f"field {name} holds {shape} values a point; the network reads one")


def input_features(records: NDArray[Any], fields: Sequence[str]) -> NDArray[np.float32]:
    """(N, C) float32: the named fields of (N,) structured records, side by side.

    Raises:
        InputError: a field is missing or holds several values a point.
    """
    check_fields(records.dtype, fields)
    columns = np.empty((len(records), len(fields)), dtype=np.float32)
    for column, name in enumerate(fields):
        columns[:, column] = records[name]
    return columns
