"""What a run did, in numbers: ``report.json``."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..clouds.bags import Recording
from .definitions import OutputPlan
from .frames import FrameWorkers, kind_of
from .partial_bag import REPORT, PartialBag
from .settings import Job

PERCENTILES = (50, 90, 99)
FACTS = ("points_in", "points_used", "samples", "coverage_radius", "voxels", "dropped_voxels")


def write_report(
    partial: PartialBag, job: Job, bag: Recording, plan: OutputPlan, workers: FrameWorkers
) -> dict[str, Any]:
    """Write ``report.json`` and ``report.html`` into the finished bag and return the former's content."""
    from .page import write_page  # Matplotlib takes a second to load

    report = make_report(partial.records, job, bag, plan, workers)
    partial.write_text(REPORT, json.dumps(report, indent=1, allow_nan=False) + "\n")
    partial.write_text("report.html", write_page(report, bag, partial.bag))
    return report


def make_report(
    records: Sequence[dict[str, Any]], job: Job, bag: Recording, plan: OutputPlan, workers: FrameWorkers
) -> dict[str, Any]:
    """The report as JSON can hold it: numbers that are not finite are ``None``."""
    frames = [frame for record in records for frame in record["frames"]]
    answered = [frame for frame in frames if "refusal" not in frame]
    seconds = sum(record["seconds"] for record in records)
    parts = [record["metadata"] for record in records if record["metadata"] is not None]
    written: dict[str, int] = {}
    for part in parts:
        for entry in part["topics_with_message_count"]:
            name = entry["topic_metadata"]["name"]
            written[name] = written.get(name, 0) + entry["message_count"]
    results = {plan.topics[place].name for places in plan.results.values() for place in places if place is not None}
    report = {
        "program": f"radius_fps_ros {__version__}",
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "bag": str(job.bag),
        "output": str(job.out),
        "storage": parts[0]["storage_identifier"],
        "settings": job.words(),
        "machine": machine(),
        "backend": workers.backend.name,
        "backend_reason": workers.backend.reason,
        "workers": records[-1]["workers"],
        "weights": workers.weights_source or None,
        "seconds": seconds,
        "frames_per_second": len(frames) / seconds if seconds > 0 else None,
        "interruptions": sum(record["stopped"] for record in records),
        "counts": {
            "clouds": len(frames),
            "processed": len(answered),
            "refused": len(frames) - len(answered),
            "without_features": sum("no_features" in frame for frame in frames),
            "copied": sum(count for name, count in written.items() if name not in results),
            "written": sum(written.values()),
        },
        "topics": [_topic(name, frames, written, plan) for name in plan.results],
        "copied_topics": {name: count for name, count in written.items() if name not in results},
        "refusals": _kinds(frame["refusal"] for frame in frames if "refusal" in frame),
        "missing_features": _kinds(frame["no_features"] for frame in frames if "no_features" in frame),
        "damage": records[-1]["damage"] or None,
        "milliseconds": _stages(answered),
        "coverage_radius": _summary(frame["coverage_radius"] for frame in answered),
        "warnings": [],
        "frames": _columns(frames),
    }
    report["warnings"] = _warnings(report, plan)
    finite: dict[str, Any] = _finite(report)
    return finite


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and Python of this machine."""
    processor = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass  # not Linux: the plain name will do
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _topic(name: str, frames: list[dict[str, Any]], written: dict[str, int], plan: OutputPlan) -> dict[str, Any]:
    mine = [frame for frame in frames if frame["topic"] == name]
    refused = sum("refusal" in frame for frame in mine)
    outputs = [plan.topics[place].name for place in plan.results[name] if place is not None]
    return {
        "name": name,
        "clouds": len(mine),
        "processed": len(mine) - refused,
        "refused": refused,
        "points_in": sum(frame.get("points_in", 0) for frame in mine),
        "samples": sum(frame.get("samples", 0) for frame in mine),
        "outputs": {output: written.get(output, 0) for output in outputs},
    }


def _kinds(sentences: Iterable[str]) -> list[dict[str, Any]]:
    """Sentences that differ in their numbers only are one kind, shown by the first of them; most frequent first."""
    kinds: dict[str, dict[str, Any]] = {}
    for sentence in sentences:
        kinds.setdefault(kind_of(sentence), {"first": sentence, "count": 0})["count"] += 1
    return sorted(kinds.values(), key=lambda kind: -kind["count"])


def _stages(frames: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for frame in frames for name in frame["milliseconds"] if name != "total")
    return {
        name: _summary(frame["milliseconds"][name] for frame in frames if name in frame["milliseconds"])
        for name in (*names, "total")
    }


def _summary(values: Iterable[float]) -> dict[str, float]:
    array = np.array(list(values), np.float64)
    percentiles = np.percentile(
        array, PERCENTILES, method="inverted_cdf"
    )  # a value that occurred, also beside infinity
    named = {f"p{p}": float(value) for p, value in zip(PERCENTILES, percentiles, strict=True)}
    return {"min": float(array.min()), **named, "max": float(array.max())}


def _columns(frames: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for frame in frames for name in frame["milliseconds"])
    return {
        "topic": [frame["topic"] for frame in frames],
        "time": [frame["time"] for frame in frames],
        "refused": ["refusal" in frame for frame in frames],
        **{fact: [frame.get(fact) for frame in frames] for fact in FACTS if any(fact in frame for frame in frames)},
        "milliseconds": {name: [frame["milliseconds"].get(name) for frame in frames] for name in names},
    }


def _warnings(report: dict[str, Any], plan: OutputPlan) -> list[str]:
    warnings = []
    if report["damage"]:
        warnings.append(f"{report['damage']}; what follows in it is left out")
    counts = report["counts"]
    if counts["refused"]:
        verb = "was" if counts["refused"] == 1 else "were"
        warnings.append(f"{counts['refused']:,} of {counts['clouds']:,} clouds {verb} refused")
    if counts["without_features"]:
        warnings.append(f"{counts['without_features']:,} clouds have samples but no features")
    if report["weights"] and report["settings"]["weights"] is None:
        warnings.append(f"the features come from {report['weights']}")
    dropped = [count for count in report["frames"].get("dropped_voxels", []) if count]
    if dropped:
        warnings.append(
            f"{len(dropped):,} clouds had more voxels than max_voxels allows; {sum(dropped):,} voxels were dropped"
        )
    if plan.undefined_types:
        names = ", ".join(plan.undefined_types)
        warnings.append(f"the bag does not define {names}; such messages are copied with an empty type definition")
    return warnings


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
