"""Input features of points from the fields of their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError


def input_features(records: NDArray[Any], fields: Sequence[str]) -> NDArray[np.float32]:
    """(N, C) float32: the named fields of (N,) structured records, side by side.

    Raises:
        InputError: a field is missing or holds several values a point.
    """
    present = records.dtype.names or ()
    missing = [name for name in fields if name not in present]
    if missing:
        raise InputError(
            f"the cloud has no field {', '.join(missing)}, which the network reads ({', '.join(fields)}); "
            f"its fields are {', '.join(present)}"
        )
    columns = np.empty((len(records), len(fields)), dtype=np.float32)
    for column, name in enumerate(fields):
        if records[name].ndim != 1:
            raise InputError(f"field {name} holds {records.dtype[name].shape} values a point; the network reads one")
        columns[:, column] = records[name]
    return columns
