"""Latency of the perception node over real middleware: publish to sampled cloud received, between processes.

python benchmarks/node_latency.py --points 120000 --samples 4096 --rate 10 --seconds 60
"""

from __future__ import annotations

import os
import threading
import time

import click
import numpy as np
import rclpy
from machine import write_results
from rclpy.executors import SingleThreadedExecutor
from rclpy.serialization import serialize_message
from std_msgs.msg import Header

from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.nodes.messages import cloud_message
from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess, use_large_cloud_transport
from radius_fps_ros.nodes.stream import StreamFrame, play

NAMESPACE = "/latency"
PERCEPTION = f"{NAMESPACE}/radius_fps_perception"
DIFFERENT = 10  # frames made beforehand and sent in turn


def frames(points: int, rate: float, seconds: float) -> list[StreamFrame]:
    scans = [encode_cloud(Cloud.of_records(street_scan(points, seed=k))) for k in range(DIFFERENT)]
    stream = []
    for k in range(round(rate * seconds)):
        header = Header(frame_id="lidar")
        header.stamp.sec, header.stamp.nanosec = k, 0
        stream.append(StreamFrame("points", k / rate, serialize_message(cloud_message(scans[k % DIFFERENT], header))))
    return stream


def percentiles(milliseconds: np.ndarray) -> dict[int, float]:
    return {p: round(float(np.percentile(milliseconds, p)), 2) for p in (50, 90, 99, 100)}


@click.command()
@click.option("--points", default=120_000, show_default=True)
@click.option("--samples", default=4096, show_default=True)
@click.option("--rate", default=10.0, show_default=True, help="Frames a second.")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--backend", default="auto", show_default=True)
@click.option("--features", default="off", show_default=True, help="on: with voxel features, and their latency.")
@click.option("--feature-dtype", default="float32", show_default=True)
@click.option("--name", default="node_latency", show_default=True, help="Name of the result file.")
def main(
    points: int, samples: int, rate: float, seconds: float, backend: str, features: str, feature_dtype: str, name: str
) -> None:
    """Stream clouds through the node and print p50, p99 and drops."""
    use_large_cloud_transport()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    rclpy.init()
    ros = rclpy.create_node("latency", namespace=NAMESPACE)
    executor = SingleThreadedExecutor()
    executor.add_node(ros)
    spinner = threading.Thread(target=executor.spin, daemon=True)
    spinner.start()
    stream = frames(points, rate, seconds)
    parameters = {"n_samples": samples, "backend": backend, "budget_ms": 1000.0 / rate}
    parameters |= {"features": features, "feature_dtype": feature_dtype}
    with NodeProcess("perception_node", namespace=NAMESPACE, parameters=parameters) as node:
        monitor = StreamMonitor(ros, PERCEPTION, features=features == "on")
        node.bring_up(ros, PERCEPTION)
        if not monitor.wait_until_connected():
            raise SystemExit("the node did not connect")
        play(stream, monitor.publish, rate=1.0)
        monitor.wait_for_answers(timeout=5.0)
        time.sleep(0.5)
    answered = [e for e in monitor.exchanges if e.answered and e.stats is not None]
    latency = np.array([e.latency for e in answered])
    featured = np.array([(e.features_at - e.published) * 1e3 for e in answered if e.features_at is not None])
    row = {
        "points": int(answered[-1].stats.points_in),
        "samples": samples,
        "rate": rate,
        "seconds": seconds,
        "published": len(stream),
        "answered": len(answered),
        "dropped": int(answered[-1].stats.frames_dropped),
        "latency_ms": percentiles(latency),
        "features_received": len(featured),
        "features_latency_ms": percentiles(featured) if len(featured) else None,
        "stage_ms_median": {
            name: round(float(np.median([e.stats.stage_milliseconds[i] for e in answered])), 3)
            for i, name in enumerate(answered[-1].stats.stage_names)
        },
        "node_ms_median": round(float(np.median([e.stats.total_milliseconds for e in answered])), 2),
        "backend": answered[-1].stats.backend,
        "method": answered[-1].stats.method,
    }
    print(f"{row['answered']} of {row['published']} answered, {row['dropped']} dropped, {row['points']:,} points")
    print("latency ms " + ", ".join(f"p{p} {value}" for p, value in row["latency_ms"].items()))
    if len(featured):
        print(f"{len(featured)} features, ms " + ", ".join(f"p{p} {v}" for p, v in row["features_latency_ms"].items()))
    print("stages ms  " + ", ".join(f"{name} {value}" for name, value in row["stage_ms_median"].items()))
    print(f"written to {write_results(name, [row])}")
    executor.shutdown(timeout_sec=1.0)
    spinner.join(1.0)
    ros.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
