"""Arrays kept between calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Workspace:
    """Named scratch arrays that grow when a larger one is asked for and are never given back."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, size: int, dtype: npt.DTypeLike) -> np.ndarray:
        """A flat array of ``size`` items with undefined contents; valid until the next call with this ``name``."""
        kept = self._arrays.get(name)
        if kept is None or kept.size < size:
            kept = self._arrays[name] = np.empty(size, dtype)
        return kept[:size]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(kept.nbytes for kept in self._arrays.values())
