"""Counts what the middleware lost or replaced on the way, by the gaps in the publishers' numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SequenceGaps:
    """How many messages were published and never received, between those that were.

    The middleware itself reports only some of them: not those that it overwrote in the subscription's own queue.
    """

    def __init__(self) -> None:
        self.missing = 0
        self._last: dict[bytes, int] = {}

    def receive(self, info: Mapping[str, Any]) -> None:
        """Take note of a message by its ``MessageInfo``; one without the numbers counts for nothing."""
        publisher, number = info.get("publisher_gid"), info.get("publication_sequence_number")
        if not publisher or number is None:
            return
        last = self._last.get(publisher["data"], number - 1)
        self.missing += max(number - last - 1, 0)
        self._last[publisher["data"]] = number
