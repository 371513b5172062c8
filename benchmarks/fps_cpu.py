"""Farthest point sampling on the CPU beside fpsample and torch_quickfps, all in one run and in turn.

python benchmarks/fps_cpu.py

The peers come with pip install fpsample==1.0.2 torch==2.13.0 torch_quickfps==2.1.0 and are left out where missing.
Real scans are read from the folder named by RADIUS_FPS_DATA; without it only synthetic clouds run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from machine import import_peer, write_results
from real_data import BAGS, KITTI, NUSCENES, data_folder
from rich.console import Console
from rich.table import Table

from radius_fps_ros.clouds import decode_cloud, read_cloud
from radius_fps_ros.clouds.bags import deserialize_cloud, open_bag
from radius_fps_ros.clouds.synthetic import room_scan, street_scan
from radius_fps_ros.device import usable_cores
from radius_fps_ros.sampling import Sampler

HEIGHTS = range(3, 10)  # the peers' h: 2^h buckets
PROBES = 3
COLUMNS = ("samples", "threads", "method", "h", "median ms", "CPU ms", "faster", "by CPU", "skipped", "greedy order")
SLOW_RUNS = 3  # of brute, whose time hardly varies

Run = Callable[[], np.ndarray]
Contender = tuple[str, int]  # method or peer, and threads it may use


def clouds() -> dict[str, np.ndarray]:
    def xyz(records: np.ndarray) -> np.ndarray:
        return np.stack([records[axis] for axis in "xyz"], axis=1).astype(np.float32)

    found = {
        "street 65,536": xyz(street_scan(65_536)),
        "street 120,000": xyz(street_scan(120_000)),
        "room 65,536": xyz(room_scan(65_536)),
        "uniform 65,536": np.random.default_rng(0).random((65_536, 3)).astype(np.float32),
    }
    folder = data_folder((NUSCENES, KITTI, BAGS))
    if folder is not None:
        found = {"real 65,536": real_scans(folder, 65_536), **found}
    return found


def real_scans(folder: Path, n_points: int) -> np.ndarray:
    """The scans of a folder's .bin files and of its bag's last frames, cut at ``n_points``."""
    scans = [read_cloud(path).xyz for path in sorted(folder.glob("*.bin"))]
    bag = min(folder.glob(BAGS)).parent
    with open_bag(bag) as messages:
        frames = [decode_cloud(deserialize_cloud(message.cdr)).xyz for message in messages]
    return np.concatenate([*scans, *frames[::-1]])[:n_points].astype(np.float32)


def peers(points: np.ndarray, n_samples: int) -> tuple[dict[str, Callable[[int], Run]], list[str]]:
    """The importable peers as functions of h, and a sentence for each that is missing."""
    found: dict[str, Callable[[int], Run]] = {}
    missing = []
    try:
        fpsample = import_peer("fpsample")
        found["fpsample kdline"] = lambda h: lambda: fpsample.bucket_fps_kdline_sampling(points, n_samples, h, 0)
    except ImportError as error:
        missing.append(f"fpsample is not measured: {error}")
    try:
        torch, torch_quickfps = import_peer("torch"), import_peer("torch_quickfps")
        torch.set_num_threads(1)  # with more, its idle threads spin on the cores that others are measured on
        tensor = torch.from_numpy(points)[None]
        found["torch_quickfps"] = lambda h: lambda: torch_quickfps.sample_idx(tensor, n_samples, h, 0)[0].numpy()
    except ImportError as error:
        missing.append(f"torch_quickfps is not measured: {error}")
    return found, missing


def best_height(of_height: Callable[[int], Run]) -> int:
    times = {}
    for h in HEIGHTS:
        run = of_height(h)
        run()
        times[h] = min(seconds(run)[1] for _ in range(PROBES))
    return min(times, key=times.__getitem__)


def seconds(run: Run) -> tuple[float, float]:
    """Wall time, and the processor time of the calling thread: the wall time when no other work interrupts it."""
    begin, busy = time.perf_counter(), time.thread_time()
    run()
    return time.perf_counter() - begin, time.thread_time() - busy


def exactness(picks: np.ndarray, points: np.ndarray) -> str:
    """Whether ``picks`` is the greedy order from its own first index, smallest index first among equals."""
    picks = np.asarray(picks).astype(np.int64)
    note = "" if picks[0] == 0 else f"starts at {picks[0]} instead of 0, "
    exact = Sampler(backend="cpu", method="brute")(points, len(picks), start=int(picks[0])).indices
    differ = np.flatnonzero(picks[: len(exact)] != exact)
    if len(differ) == 0:
        return note + "exact"
    same = len(np.intersect1d(picks, exact))
    return note + f"differs from sample {differ[0]} on, {same} of {len(picks)} in common"


def compare(
    name: str, points: np.ndarray, n_samples: int, threads: list[int], runs: int
) -> tuple[list[dict], list[str]]:
    """Time all contenders in turn, ``runs`` times each; the peers on one thread, as they use no more for one cloud."""
    found, missing = peers(points, n_samples)
    heights = {peer: best_height(of_height) for peer, of_height in found.items()}
    contenders: dict[Contender, Run] = {(peer, 1): found[peer](h) for peer, h in heights.items()}
    samplers = {
        (method, count): Sampler(backend="cpu", method=method, threads=count)
        for method in ("lookahead", "radius", "brute")
        for count in threads
    }
    for key, sampler in samplers.items():
        sampler.warm_up()
        contenders[key] = lambda sampler=sampler: sampler(points, n_samples).indices
    picks = {key: run() for key, run in contenders.items()}
    times: dict[Contender, list[tuple[float, float]]] = {key: [] for key in contenders}
    for k in range(runs):
        for key, run in contenders.items():
            if key[0] != "brute" or k < SLOW_RUNS:
                times[key].append(seconds(run))
    median = {key: np.median(values, axis=0) * 1e3 for key, values in times.items()}
    rivals = [
        min(((peer, 1) for peer in heights), key=lambda key: median[key][clock], default=None) for clock in (0, 1)
    ]
    rows = []
    for key, values in times.items():
        method, count = key
        row = {
            "cloud": name,
            "samples": n_samples,
            "threads": count,
            "method": method,
            "h": heights.get(method),
            "median_ms": median[key][0],
            "median_cpu_ms": median[key][1],
            "min_ms": min(values)[0] * 1e3,
            "runs": len(values),
            "best_peer": rivals[0] and rivals[0][0],
            "times_faster_than_best_peer": median[rivals[0]][0] / median[key][0] if rivals[0] else None,
            "times_faster_by_cpu_time": median[rivals[1]][1] / median[key][1] if rivals[1] else None,
            "exact": exactness(picks[key], points),
        }
        if key in samplers:
            stats = samplers[key](points, n_samples).stats
            row |= {"skip_rate": stats.skip_rate, "voxels": stats.voxels, "rounds": stats.rounds}
            row |= {"threads_used": stats.threads}
        rows.append(row)
    return rows, missing


def ratios(rows: list[dict]) -> dict[str, float]:
    return {
        f"{row['cloud']} points to {row['samples']:,}, threads: {row['threads']}, beside {row['best_peer']}": ratio
        for row in rows
        if row["method"] == "lookahead" and (ratio := row["times_faster_than_best_peer"])
    }


@click.command()
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Default: 1 and all usable cores.")
@click.option("--samples", multiple=True, type=click.IntRange(1), default=(1024, 4096), show_default=True)
@click.option("--runs", default=21, show_default=True, type=click.IntRange(1))
@click.option("--cloud", multiple=True, help="Only clouds whose name contains this.")
def main(threads: tuple[int, ...], samples: tuple[int, ...], runs: int, cloud: tuple[str, ...]) -> None:
    """Print a table and write results/fps_cpu.json."""
    console = Console(width=150)
    load = os.getloadavg()[0]
    if load > usable_cores() / 2:
        console.print(f"Other work keeps {load:.1f} of {usable_cores()} cores busy: trust CPU times, not medians.")
    rows: list[dict] = []
    missing: list[str] = []
    for name, points in clouds().items():
        if cloud and not any(part in name for part in cloud):
            continue
        table = Table(title=name)
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in ("method", "greedy order") else "right")
        for n_samples in samples:
            new, missing = compare(name, points, n_samples, list(threads) or sorted({1, usable_cores()}), runs)
            rows += new
            for row in new:
                ratio, by_cpu = row["times_faster_than_best_peer"], row["times_faster_by_cpu_time"]
                skip = row.get("skip_rate")
                table.add_row(
                    f"{n_samples:,}",
                    str(row.get("threads_used", row["threads"])),
                    row["method"],
                    str(row["h"] or ""),
                    f"{row['median_ms']:.2f}",
                    f"{row['median_cpu_ms']:.2f}",
                    f"{ratio:.2f} x" if ratio else "",
                    f"{by_cpu:.2f} x" if by_cpu else "",
                    "" if skip is None else f"{100 * skip:.1f} %",
                    row["exact"],
                )
            table.add_section()
        console.print(table)
    for sentence in missing:
        console.print(sentence)
    path = write_results("fps_cpu", rows, peers_missing=missing, load_before=load, ratios=ratios(rows))
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
