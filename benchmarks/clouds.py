"""Decoding and encoding of 120,000-point messages by layout, and the making of a synthetic frame.

python benchmarks/clouds.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from machine import write_results
from rich.console import Console
from rich.table import Table

from radius_fps_ros.clouds import Cloud, decode_cloud, encode_cloud, encode_subset
from radius_fps_ros.clouds.synthetic import LIDAR_DTYPE, StreetScene, street_scan

POINTS, SAMPLES = 120_000, 4_096
NAMES = LIDAR_DTYPE.names or ()
PCL = {"names": NAMES, "formats": ["<f4"] * 4 + ["<u2", "<f4"], "offsets": [0, 4, 8, 16, 20, 24], "itemsize": 32}
LAYOUTS = {
    "float32, 24 bytes": np.dtype([(name, "<f4") for name in NAMES]),
    "PCL, 32 bytes": np.dtype(PCL),
    "Velodyne, 22 bytes, unaligned": LIDAR_DTYPE,
    "float64, 48 bytes": np.dtype([(name, "<f8") for name in NAMES]),
    "big-endian float32": np.dtype([(name, ">f4") for name in NAMES]),
}


def microseconds(work: Callable[[], Any], repeats: int) -> float:
    """Median time of a call, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:]) * 1e6


@click.command()
@click.option("--runs", default=200, show_default=True, type=click.IntRange(1))
def main(runs: int) -> None:
    scan = street_scan(POINTS)
    picks = np.random.default_rng(0).permutation(POINTS)[:SAMPLES]
    rows = []
    for layout, dtype in LAYOUTS.items():
        records = np.zeros(POINTS, dtype)
        for name in NAMES:
            records[name] = scan[name]
        message = encode_cloud(Cloud.of_records(records))
        cloud = decode_cloud(message)
        rows.append(
            {
                "layout": layout,
                "decode_us": microseconds(lambda message=message: decode_cloud(message), runs),
                "finite_us": microseconds(lambda cloud=cloud: Cloud(cloud.records, cloud.xyz).finite, runs),
                "encode_subset_us": microseconds(lambda cloud=cloud: encode_subset(cloud, picks), runs),
            }
        )
    scene = StreetScene()
    frame_ms = microseconds(lambda: scene.frame(3), max(1, runs // 10)) / 1e3

    table = Table("layout", title=f"{POINTS:,} points, {SAMPLES:,} samples, median microseconds")
    for column in ("decode", "finite mask", "encode subset"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row["layout"], *(f"{row[key]:.0f}" for key in ("decode_us", "finite_us", "encode_subset_us")))
    console = Console()
    console.print(table)
    console.print(f"a synthetic 64-beam frame: {frame_ms:.1f} ms")
    console.print(f"written to {write_results('clouds', rows, synthetic_frame_ms=frame_ms)}")


if __name__ == "__main__":
    main()
