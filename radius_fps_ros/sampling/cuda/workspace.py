"""Device memory kept between calls."""

from __future__ import annotations

from typing import Any

import cupy

from .layout import Layout


class Workspace:
    """Named device arrays that grow when larger ones are asked for and are never given back.

    Attributes:
        generation: how often an array was allocated. While it stays, a captured graph finds its arrays where they were.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self.generation = 0

    def arrays(self, layout: Layout) -> dict[str, Any]:
        """The arrays of ``layout``, flat, with undefined contents; valid until the next call."""
        return {name: self._array(name, size, dtype) for name, (size, dtype) in layout.items()}

    def _array(self, name: str, size: int, dtype: type) -> Any:
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            self._kept.pop(name, None)  # before the larger one is allocated
            kept = self._kept[name] = cupy.empty(size, dtype)
            self.generation += 1
        return kept[:size]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(kept.nbytes for kept in self._kept.values())
