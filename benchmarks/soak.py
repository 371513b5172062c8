"""Whether the perception node takes ever more of anything: hours of frames through real middleware, between processes.

python benchmarks/soak.py --minutes 30 [--features on]     (make soak MINUTES=30)

Exit code 1 when memory, shared memory, GPU memory, file descriptors or threads of the node's process grow.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from machine import write_results
from node_latency import cloud_stream, percentiles, street_scans

from radius_fps_ros.nodes.memory import keep_freed_memory
from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess, spinning_node, use_large_cloud_transport
from radius_fps_ros.nodes.stream import play

NAMESPACE = "/soak"
PERCEPTION = f"{NAMESPACE}/radius_fps_perception"
WARM_UP = 1 / 3  # of the time: caches fill, the middleware's segment is touched for the first time
# What a quantity may rise by over the measured time.
ALLOWED = {"rss_mb": 2.0, "shm_mb": 1.0, "gpu_mb": 1.0, "files": 0.5, "threads": 0.5}


@dataclass
class Meter:
    """Reads what a process holds, every ``period`` seconds in a thread; one row a reading."""

    pid: int
    period: float
    gpu_mb: float | None = None  # set from outside
    rows: list[dict[str, float]] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        begin = time.monotonic()
        while not stop.wait(self.period) and Path(f"/proc/{self.pid}").exists():
            self.rows.append({"seconds": time.monotonic() - begin, **self.read()})
            if len(self.rows) % 12 == 1:
                print("  ".join(f"{name} {value:.1f}" for name, value in self.rows[-1].items()), flush=True)

    def read(self) -> dict[str, float]:
        process = Path(f"/proc/{self.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        own_kib = sum(int(status[name].split()[0]) for name in ("RssAnon", "RssFile"))
        row = {
            "rss_mb": own_kib / 1024,  # without shared memory, which is counted next
            "shm_mb": sum(file.stat().st_blocks * 512 for file in self.shared_files() if file.exists()) / 2**20,
            "files": float(len(list((process / "fd").iterdir()))),
            "threads": float(status["Threads"]),
        }
        return row if self.gpu_mb is None else {**row, "gpu_mb": self.gpu_mb}

    def shared_files(self) -> set[Path]:
        """The files of /dev/shm that the process has mapped: its own segment, and those it reads from."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return {Path(line.split()[5]) for line in lines if "/dev/shm/" in line}

    def own_segments(self) -> list[Path]:
        """Its own segments of shared memory: it holds the lock of the file beside each. They must not stay behind."""
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = {int(lock[5].split(":")[2]) for lock in locks if lock[3] == "WRITE" and lock[4] == str(self.pid)}
        return [file for file in self.shared_files() if lock_inode(file) in held]


def lock_inode(segment: Path) -> int | None:
    lock = segment.with_name(f"{segment.name}_el")
    return lock.stat().st_ino if lock.exists() and "port" not in segment.name else None


def verdict(rows: list[dict[str, float]]) -> list[dict[str, object]]:
    """For each quantity the line of least squares through the readings after the warm-up, and whether it grows.

    It grows when it rises by more than is allowed, and in both halves of the time: a queue that is deeper for once on a
    busy machine is a single step.
    """
    seconds = np.array([row["seconds"] for row in rows])
    late = seconds >= WARM_UP * seconds[-1]
    seconds = seconds[late]
    middle = len(seconds) // 2
    lines = []
    for name, allowed in ALLOWED.items():
        if name not in rows[-1]:
            continue
        values = np.array([row.get(name, np.nan) for row in rows])[late]
        slope = line_slope(seconds, values)
        rise = slope * float(np.ptp(seconds))
        halves = [line_slope(seconds[part], values[part]) for part in (slice(middle), slice(middle, None))]
        grows = rise > allowed and min(halves) > 0.1 * slope
        seen = {"first": float(values[0]), "last": float(values[-1]), "largest": float(values.max())}
        lines.append(
            {"what": name, **seen, "slope_per_hour": slope * 3600, "rise": rise, "allowed": allowed, "grows": grows}
        )
    return lines


def line_slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polynomial.Polynomial.fit(x, y, 1).convert().coef[1])


@click.command()
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--points", default=120_000, show_default=True)
@click.option("--rate", default=10.0, show_default=True, help="Frames a second.")
@click.option("--backend", default="auto", show_default=True)
@click.option("--features", default="off", show_default=True, help="on: with voxel features (light network on a CPU).")
@click.option("--period", default=5.0, show_default=True, help="Seconds between two readings.")
@click.option("--name", default="soak", show_default=True, help="Name of the result file.")
def main(minutes: float, points: int, rate: float, backend: str, features: str, period: float, name: str) -> None:
    """Stream the street through the node and watch what its process holds."""
    use_large_cloud_transport()
    keep_freed_memory()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    parameters = {"backend": backend, "features": features, "budget_ms": 1000.0 / rate}
    load = os.getloadavg()[0]
    scans = street_scans(points)
    stop = threading.Event()
    with (
        spinning_node("soak", NAMESPACE) as ros,
        NodeProcess("perception_node", namespace=NAMESPACE, parameters=parameters) as node,
    ):
        monitor = StreamMonitor(ros, PERCEPTION, features=features == "on")
        node.bring_up(ros, PERCEPTION)
        if not monitor.wait_until_connected():
            raise SystemExit("the node did not connect")
        meter = Meter(node.process.pid, period)
        ros.create_subscription(DiagnosticArray, "/diagnostics", lambda message: read_gpu(message, meter), 10)
        reader = threading.Thread(target=meter.run, args=(stop,), daemon=True)
        reader.start()
        play(cloud_stream(scans, rate, 60 * minutes), monitor.publish)
        monitor.wait_for_answers(timeout=5.0)
        stop.set()
        reader.join()
        segments = meter.own_segments()
        code = node.stop()
    left = sorted(str(file) for file in segments if file.exists())
    lines = verdict(meter.rows)
    answered = [exchange for exchange in monitor.exchanges if exchange.answered]
    stats = answered[-1].stats
    assert stats is not None
    summary = {
        "published": len(monitor.exchanges),
        "answered": len(answered),
        "with_features": sum(exchange.features_at is not None for exchange in answered),
        "latency_ms": percentiles(np.array([exchange.latency for exchange in answered])),
        "load_average_before_and_after": [load, os.getloadavg()[0]],
        "exit_code": code,
        "left_in_shared_memory": left,
    }
    print(f"\n{'':10}" + "".join(f"{word:>14}" for word in ("first", "last", "largest", "per hour", "rise", "allowed")))
    for line in lines:
        figures = (line[key] for key in ("first", "last", "largest", "slope_per_hour", "rise", "allowed"))
        print(f"{line['what']:10}" + "".join(f"{figure:14.2f}" for figure in figures) + "  GROWS" * bool(line["grows"]))
    print(f"{summary['answered']} of {summary['published']} frames answered; latency ms {summary['latency_ms']}")
    bad = [str(line["what"]) for line in lines if line["grows"]] + ["what it left in shared memory"] * bool(left)
    print(f"written to {write_results(name, meter.rows, verdict=lines, **summary)}")
    print("flat" if not bad else f"grows: {', '.join(bad)}")
    sys.exit(1 if bad or code else 0)


def read_gpu(message: DiagnosticArray, meter: Meter) -> None:
    for status in message.status:
        values = {pair.key: pair.value for pair in status.values}
        if status.hardware_id == PERCEPTION and "gpu_memory_mb" in values:
            meter.gpu_mb = float(values["gpu_memory_mb"])


if __name__ == "__main__":
    main()
