"""What a node does with an error that is nobody's input."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ..errors import BackendError
from ..faults import is_out_of_memory


def take_failure(error: Exception, work: str, logger: Any, device_failed: Callable[[str], None]) -> str:
    """The sentence for an error; a fault of the device is handed on, and the traceback of a defect goes to the log.

    Args:
        error: any but `radius_fps_ros.errors.InputError`.
        work: what failed, for the log: ``"frame"`` or ``"request"``.
        logger: the node's.
        device_failed: takes the sentence of a device that failed, for good.
    """
    if is_out_of_memory(error):
        return f"out of memory: {' '.join(str(error).split()) or 'the host has no more'}"
    if isinstance(error, BackendError):
        device_failed(str(error))
        return str(error)
    logger.error(f"{work} failed:\n{''.join(traceback.format_exception(error))}")
    return f"internal error: {' '.join(repr(error).split())}"
