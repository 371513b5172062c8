"""What the perception node says about itself in /diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node

from ..device import BackendChoice, device_memory
from .frame_answerer import FrameAnswerer
from .messages import key_values
from .stats_bag import StatsBag


def perception_diagnostics(
    node: Node,
    backend: BackendChoice,
    weights: str | None,
    answerer: FrameAnswerer,
    *,
    topic: str,
    publishers: int | None,
    fault: str,
    mismatches: Sequence[str],
    stats_bag: StatsBag | None,
) -> DiagnosticArray:
    """The state of the node: ERROR with the device's ``fault``, WARN with all there is to warn of, else OK.

    ``weights``: where those of the features come from, ``None`` without features.
    ``topic``: the name of ``points`` after remapping.
    ``publishers``: how many of it the node receives from; ``None`` when it does not listen.
    """
    log, grant, active = answerer.log, answerer.grant, publishers is not None
    warnings = list(mismatches) if active else []
    if active:
        warnings += _frame_warnings(answerer)
        warnings += [stats_bag.fault] if stats_bag is not None and stats_bag.fault else []
    level, message = DiagnosticStatus.OK, "answering" if log.answered else f"waiting for {topic}"
    if active and not publishers:
        message = f"nobody publishes {topic}"
    if fault:
        level, message = DiagnosticStatus.ERROR, fault
    elif not active:
        message = "not active"
    elif warnings:
        level, message = DiagnosticStatus.WARN, "; ".join(warnings)
    p50, p99 = log.latency((50, 99))
    values: dict[str, Any] = {
        "publishers": publishers if active else "not active",
        "rate_hz": log.rate(5.0),
        "latency_ms_p50": p50,
        "latency_ms_p99": p99,
        "frames_answered": log.answered,
        "frames_refused": log.refused,
        "frames_dropped": answerer.dropped(),
        "deadlines_missed": log.deadlines_missed,
        "frames_degraded": log.degraded,
        "frames_without_features": log.features_missed if weights is not None else "features are off",
        "weights": weights or "",
        "backend": backend.name,
        "backend_reason": backend.reason,
    }
    if grant is not None:
        values["full_frame_ms"] = grant.full_ms
        values["samples_granted"] = grant.samples
        values["features_every"] = grant.features_every if weights is not None else "features are off"
    if stats_bag is not None:
        values["stats_bag"] = stats_bag.path
        values["frames_recorded"] = stats_bag.recorded
    memory = None if fault else device_memory(backend)
    if memory is not None:
        values["gpu_memory_mb"] = memory / 1e6
    status = DiagnosticStatus(
        level=level, name=f"{node.get_name()}: frames", message=message, hardware_id=node.get_fully_qualified_name()
    )
    status.values = key_values(values)
    array = DiagnosticArray(status=[status])
    array.header.stamp = node.get_clock().now().to_msg()
    return array


def _frame_warnings(answerer: FrameAnswerer) -> list[str]:
    log, grant = answerer.log, answerer.grant
    warnings = []
    degrading = log.recently("degraded", log.degraded)  # the last grant tells nothing once no more clouds come
    if degrading and grant is not None and grant.degraded:
        warnings.append(f"over budget: {grant.reason}")
    if log.recently("refused", log.refused):
        warnings.append(f"{log.refused} frames refused, the last one because {log.last_refusal}")
    if log.recently("features missed", log.features_missed):
        warnings.append(f"{log.features_missed} frames without features, the last because {log.last_miss}")
    if log.recently("late", log.deadlines_missed + answerer.dropped()):
        warnings.append("frames dropped or late")
    return warnings
