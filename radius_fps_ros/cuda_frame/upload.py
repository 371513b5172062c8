"""Messages on their way to the device: copied to pinned memory when they arrive, and from there by the device."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from ..clouds.decode import CloudBytes, check_cloud
from ..errors import InputError

_HEADROOM = 1.25  # room over the first message's size, so that one that is a little larger needs no new memory


class _Slot:
    """Pinned memory and device memory for one message, with the events around the copy between them."""

    def __init__(self) -> None:
        self.owner: weakref.ref[Upload] | None = None
        self.begin, self.end = cupy.cuda.Event(), cupy.cuda.Event()
        self._pinned: Any = None
        self._size = 0
        self.data: Any = None

    def send(self, data: np.ndarray, stream: Any) -> None:
        """Queue the copy of ``data``, (B,) uint8, to the device; returns before it is made."""
        self.end.synchronize()  # the last message, if it was dropped, may still be on its way
        if data.nbytes > self._size:
            self._pinned = self.data = None  # before the larger ones are allocated
            self._size = 0
            size = int(_HEADROOM * data.nbytes)
            pinned = cupy.cuda.alloc_pinned_memory(size)
            with stream:
                self.data = cupy.empty(size, cupy.uint8)
            self._pinned, self._size = np.frombuffer(pinned, np.uint8, size), size
        np.copyto(self._pinned[: data.nbytes], data)
        self.begin.record(stream)
        self.data.data.copy_from_host_async(self._pinned.ctypes.data, data.nbytes, stream)
        self.end.record(stream)


@dataclass(eq=False)
class Upload:
    """A message whose bytes are being copied to the device.

    Attributes:
        message: the message.
        cloud: its checked bytes; ``None`` when they could not be.
        slot: where they go; ``None`` for a cloud without points and after an error.
        error: what was wrong; to be raised in the frame's turn.
        milliseconds: time of the copy to pinned memory [ms].
    """

    message: Any
    cloud: CloudBytes | None = None
    slot: _Slot | None = None
    error: Exception | None = None
    milliseconds: float = 0.0

    def check(self) -> None:
        """Raise what was wrong, and forget it: its traceback holds whoever raised it, and so this and the message."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None


class Uploads:
    """The slots, as many as uploads are held at a time: in a node one in work, one that waits, one that arrives.

    A slot is free again when nobody holds its upload any more.
    """

    def __init__(self) -> None:
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._slots: list[_Slot] = []

    def begin(self, message: Any) -> Upload:
        """Check a message and start its copy; an error is kept in the result."""
        begin = time.perf_counter()
        upload = Upload(message)
        try:
            upload.cloud = cloud = check_cloud(message)
            if cloud.count:
                slot = self._free_slot()
                slot.owner = weakref.ref(upload)
                slot.send(cloud.data, self._stream)
                upload.slot = slot
        except InputError as error:
            upload.error = error.with_traceback(None)  # which would hold this frame, and so the upload and its message
        except Exception as error:
            upload.error = error
        upload.milliseconds = (time.perf_counter() - begin) * 1e3
        return upload

    def _free_slot(self) -> _Slot:
        for slot in self._slots:
            if slot.owner is None or slot.owner() is None:
                return slot
        self._slots.append(_Slot())
        return self._slots[-1]
