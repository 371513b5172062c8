"""How clouds travel between two processes: without and with the Fast DDS profile, and with freed memory kept as well.

python benchmarks/middleware.py

From before ``publish()`` until the callback, at 10 Hz. Each process of a pair is this script again, because the profile
is read when a process starts.
"""

from __future__ import annotations

import array
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
from machine import write_results
from rich.console import Console
from rich.table import Table

from radius_fps_ros.nodes.memory import keep_freed_memory

PROFILE = Path(__file__).resolve().parents[1] / "config" / "fastdds_shm.xml"
# Whether this package's profile is used, and whether the processes keep freed memory as this package's nodes do.
TRANSPORTS = {"Fast DDS default": (False, False), "profile": (True, False), "profile, memory kept": (True, True)}
PERIOD = 0.1  # s
PATIENCE = 5.0  # s without a cloud after which a receiver gives up
TOPIC = "/middleware_benchmark/points"
POINT_STEP = 16


def make_node(reliability: str):
    import rclpy
    from rclpy.qos import QoSProfile, ReliabilityPolicy

    rclpy.init()
    return rclpy.create_node("middleware"), QoSProfile(depth=5, reliability=ReliabilityPolicy[reliability.upper()])


def publish(points: int, reliability: str, count: int) -> None:
    from sensor_msgs.msg import PointCloud2

    node, qos = make_node(reliability)
    publisher = node.create_publisher(PointCloud2, TOPIC, qos)
    cloud = PointCloud2(width=points, height=1, point_step=POINT_STEP, row_step=POINT_STEP * points)
    cloud.data = array.array("B", bytes(POINT_STEP * points))
    while not publisher.get_subscription_count():
        time.sleep(0.02)
    time.sleep(1.0)  # until the receiver knows this side, too: what comes earlier is not the transport's loss
    begin = time.monotonic()
    for k in range(count):
        time.sleep(max(0.0, begin + k * PERIOD - time.monotonic()))
        cloud.header.stamp.sec, cloud.header.stamp.nanosec = divmod(time.monotonic_ns(), 10**9)
        publisher.publish(cloud)
    time.sleep(PATIENCE)


def receive(reliability: str, count: int) -> None:
    import rclpy
    from sensor_msgs.msg import PointCloud2

    node, qos = make_node(reliability)
    latencies: list[float] = []

    def take(cloud: PointCloud2) -> None:
        sent = cloud.header.stamp.sec * 10**9 + cloud.header.stamp.nanosec
        latencies.append((time.monotonic_ns() - sent) * 1e-6)

    node.create_subscription(PointCloud2, TOPIC, take, qos)
    print("listening", flush=True)
    # All clouds, or nothing for as long as they take and then some.
    last, seen = time.monotonic(), 0
    while len(latencies) < count and time.monotonic() - last < PATIENCE + (0 if seen else count * PERIOD):
        rclpy.spin_once(node, timeout_sec=0.1)
        if len(latencies) > seen:
            last, seen = time.monotonic(), len(latencies)
    print(json.dumps(latencies))


def measure(points: int, transport: str, reliability: str, count: int) -> dict:
    profile, keep = TRANSPORTS[transport]
    chosen = ("FASTDDS_", "FASTRTPS_", "MALLOC_", "GLIBC_TUNABLES")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(chosen)}
    environment |= {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    if profile:
        environment["FASTDDS_DEFAULT_PROFILES_FILE"] = str(PROFILE)
    command = [sys.executable, __file__, "--clouds", str(count), "--reliability", reliability, "--points", str(points)]
    command += ["--keep"] if keep else []
    with (
        subprocess.Popen(
            [*command, "--role", "receive"], env=environment, stdout=subprocess.PIPE, text=True
        ) as receiver,
        subprocess.Popen([*command, "--role", "publish"], env=environment) as publisher,
    ):
        latencies = json.loads(receiver.communicate()[0].splitlines()[-1])
        publisher.terminate()
    row = {"points": points, "transport": transport, "reliability": reliability}
    row |= {"published": count, "received": len(latencies)}
    p50, p99 = np.percentile(latencies, (50, 99)) if latencies else (None, None)
    return row | {"p50_ms": p50, "p99_ms": p99}


@click.command()
@click.option("--points", multiple=True, type=click.IntRange(1), default=(120_000, 1_000_000), show_default=True)
@click.option("--reliability", multiple=True, default=("best_effort", "reliable"), show_default=True)
@click.option("--clouds", default=100, show_default=True, type=click.IntRange(1), help="Clouds of each kind.")
@click.option("--role", type=click.Choice(["publish", "receive"]), hidden=True)
@click.option("--keep", is_flag=True, hidden=True)
def main(points: tuple[int, ...], reliability: tuple[str, ...], clouds: int, role: str | None, keep: bool) -> None:
    """Print a table and write results/middleware.json."""
    if keep:
        keep_freed_memory()
    if role == "publish":
        publish(points[0], reliability[0], clouds)
    elif role == "receive":
        receive(reliability[0], clouds)
    else:
        kinds = [(n, transport, kind) for n in points for transport in TRANSPORTS for kind in reliability]
        rows = [measure(*kind, clouds) for kind in kinds]
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*(f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values()))
        Console(width=120).print(table)
        print(f"written to {write_results('middleware', rows)}")


if __name__ == "__main__":
    main()
