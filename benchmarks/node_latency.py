"""Latency of the perception node over real middleware: publish to sampled cloud received, between processes.

python benchmarks/node_latency.py --points 120000 --samples 4096 --rate 10 --seconds 60
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
from machine import write_results
from rclpy.serialization import serialize_message
from std_msgs.msg import Header

from radius_fps_ros.clouds import Cloud, CloudData, encode_cloud, read_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.nodes.memory import keep_freed_memory
from radius_fps_ros.nodes.messages import cloud_message
from radius_fps_ros.nodes.monitor import Exchange, StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess, spinning_node, use_large_cloud_transport
from radius_fps_ros.nodes.stream import StreamFrame, play

DIFFERENT = 10  # frames made beforehand and sent in turn


def cloud_stream(scans: list[CloudData], rate: float, seconds: float) -> Iterator[StreamFrame]:
    """The scans in turn, each time with a stamp of its own; serialized one by one, because an hour of them is large."""
    for k in range(round(rate * seconds)):
        header = Header(frame_id="lidar")
        header.stamp.sec = k
        yield StreamFrame("points", k / rate, serialize_message(cloud_message(scans[k % len(scans)], header)))


def street_scans(points: int) -> list[CloudData]:
    return [encode_cloud(Cloud.of_records(street_scan(points, seed=k))) for k in range(DIFFERENT)]


def percentiles(milliseconds: np.ndarray) -> dict[int, float]:
    return {p: round(float(np.percentile(milliseconds, p)), 2) for p in (50, 90, 99, 100)}


@click.command()
@click.option("--points", default=120_000, show_default=True)
@click.option("--cloud", type=click.Path(path_type=Path), help="Send this file's cloud instead of the street.")
@click.option("--samples", default=4096, show_default=True)
@click.option("--rate", default=10.0, show_default=True, help="Frames a second.")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--nodes", default=1, show_default=True, help="Nodes side by side, each with a stream of its own.")
@click.option("--backend", default="auto", show_default=True)
@click.option("--features", default="off", show_default=True, help="on: with voxel features, and their latency.")
@click.option("--feature-dtype", default="float32", show_default=True)
@click.option("--name", default="node_latency", show_default=True, help="Name of the result file.")
def main(
    points: int,
    cloud: Path | None,
    samples: int,
    rate: float,
    seconds: float,
    nodes: int,
    backend: str,
    features: str,
    feature_dtype: str,
    name: str,
) -> None:
    """Stream clouds through the node and print p50, p99 and drops."""
    use_large_cloud_transport()
    keep_freed_memory()  # as docs/tuning.md asks of subscribers
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    scans = [encode_cloud(read_cloud(cloud))] if cloud else street_scans(points)
    parameters = {"n_samples": samples, "backend": backend, "budget_ms": 1000.0 / rate}
    parameters |= {"features": features, "feature_dtype": feature_dtype}
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        monitors = []
        for number in range(nodes):
            namespace = f"/latency{number}"
            perception = f"{namespace}/radius_fps_perception"
            ros = stack.enter_context(spinning_node("latency", namespace))
            node = stack.enter_context(NodeProcess("perception_node", namespace=namespace, parameters=parameters))
            monitor = StreamMonitor(ros, perception, features=features == "on")
            monitors.append(monitor)
            node.bring_up(ros, perception)
            if not monitor.wait_until_connected():
                raise SystemExit("the node did not connect")
        players = [
            threading.Thread(target=play, args=(cloud_stream(scans, rate, seconds), monitor.publish))
            for monitor in monitors
        ]
        for player in players:
            player.start()
        for player, monitor in zip(players, monitors, strict=True):
            player.join()
            monitor.wait_for_answers(timeout=5.0)
        time.sleep(0.5)
    asked = {"samples": samples, "rate": rate, "seconds": seconds, "features": features}
    rows = [asked | measured(monitor.exchanges) for monitor in monitors]
    for row in rows:
        show(row)
    loads = [round(load, 2), round(os.getloadavg()[0], 2)]
    path = write_results(name, rows, load_average_before_and_after=loads)
    print(f"written to {path}")


def measured(exchanges: list[Exchange]) -> dict[str, Any]:
    """What became of one node's stream."""
    answered = [e for e in exchanges if e.answered and e.stats is not None]
    featured = np.array([(e.features_at - e.published) * 1e3 for e in answered if e.features_at is not None])
    stages: dict[str, list[float]] = {}  # a frame without features has fewer of them
    for e in answered:
        for stage, milliseconds in zip(e.stats.stage_names, e.stats.stage_milliseconds, strict=True):
            stages.setdefault(stage, []).append(milliseconds)
    last = answered[-1].stats
    return {
        "points": int(last.points_in),
        "published": len(exchanges),
        "answered": len(answered),
        "dropped": int(last.frames_dropped),
        "deadlines_missed": int(last.deadlines_missed),
        "latency_ms": percentiles(np.array([e.latency for e in answered])),
        "features_received": len(featured),
        "features_latency_ms": percentiles(featured) if len(featured) else None,
        "stage_ms_median": {stage: round(float(np.median(values)), 3) for stage, values in stages.items()},
        "node_ms_median": round(float(np.median([e.stats.total_milliseconds for e in answered])), 2),
        "backend": last.backend,
        "method": last.method,
    }


def show(row: dict[str, Any]) -> None:
    print(f"{row['answered']} of {row['published']} answered, {row['dropped']} dropped, {row['points']:,} points")
    print("latency ms " + ", ".join(f"p{p} {value}" for p, value in row["latency_ms"].items()))
    if row["features_received"]:
        figures = ", ".join(f"p{p} {value}" for p, value in row["features_latency_ms"].items())
        print(f"{row['features_received']} features, ms {figures}")
    print("stages ms  " + ", ".join(f"{name} {value}" for name, value in row["stage_ms_median"].items()))


if __name__ == "__main__":
    main()
