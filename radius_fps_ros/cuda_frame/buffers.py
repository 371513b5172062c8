"""Device memory of frames of about one size, and the box in which results travel to the host in one copy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..sampling.cuda.layout import SUMMARY_WORDS

STAMPS = 8
_ALIGNMENT = 256  # bytes, between the parts of a box


class FrameBuffers:
    """What the stages of a frame hand on, and the outbox.

    Attributes:
        capacity: rows of ``points``.
        points: (capacity, 3) float32 on the device, NaN in rows that are not used.
        columns: (capacity, F) float32 on the device, the network's input features.
        start: (1,) uint32 on the device, the first used row; all ones when there is none.
        outbox: parts by name, on the device: ``stamps`` [ns], ``counts`` of finite and of used points, the sampler's
            ``summary``, the network's ``status``, and for each sample its ``rows`` in the message, its ``features``
            (x, y, z before them) and its ``records``.
        inbox: the same parts in pinned memory of the host.
    """

    def __init__(self, capacity: int, most_samples: int, point_step: int, columns: int, channels: int, status: int):
        """``most_samples`` records of ``point_step`` bytes fit.

        ``channels`` features a sample and ``status`` words of the network; both 0 without features.
        """
        self.capacity = capacity
        self.points = cupy.empty((capacity, 3), np.float32)
        self.columns = cupy.empty((capacity, columns), np.float32)
        self.start = cupy.empty(1, np.uint32)
        parts: dict[str, tuple[tuple[int, ...], Any]] = {
            "stamps": ((STAMPS,), np.uint64),
            "counts": ((2,), np.uint32),
            "summary": ((SUMMARY_WORDS,), np.uint64),
            "status": ((status,), np.int32),
            "rows": ((most_samples,), np.int64),
            "features": ((most_samples, 3 + channels if channels else 0), np.float32),
            "records": ((most_samples * point_step,), np.uint8),
        }
        places, size = {}, 0
        for name, (shape, dtype) in parts.items():
            places[name] = size
            size += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        self._device = cupy.empty(size, np.uint8)
        self._pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.outbox, self.inbox = (
            {n: _part(box, places[n], *parts[n]) for n in parts} for box in (self._device, self._pinned)
        )
        self.outbox["stamps"].data.memset_async(0, self.outbox["stamps"].nbytes)  # kernels keep the latest time

    def clear(self) -> None:
        """Queue on the current stream what `decode` expects of ``counts`` and ``start``."""
        stream = cupy.cuda.get_current_stream()
        self.outbox["counts"].data.memset_async(0, self.outbox["counts"].nbytes, stream)
        self.start.data.memset_async(0xFF, self.start.nbytes, stream)

    def download(self) -> None:
        """Queue the copy of the outbox to the inbox on the current stream."""
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_to_host_async(self._pinned.ctypes.data, self._device.nbytes, stream)


def _part(box: Any, begin: int, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return box[begin : begin + size].view(dtype).reshape(shape)
