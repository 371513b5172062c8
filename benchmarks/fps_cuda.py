"""Farthest point sampling on a CUDA device: every method on every cloud, in one run, held against the CPU.

python benchmarks/fps_cuda.py

Times are medians between device events around the calls, after warm-up, launches from Python included; `graph` is the
same work replayed from a CUDA graph. Real scans are read from the folder named by RADIUS_FPS_DATA; without it only
synthetic clouds run. Writes results/fps_cuda.json and a readable results/fps_cuda.md beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cupy
import numpy as np
from machine import machine, write_results
from real_data import KITTI, NUSCENES, data_folder

from radius_fps_ros.clouds.synthetic import room_scan, street_scan
from radius_fps_ros.sampling import Sampler, SamplingResult
from radius_fps_ros.sampling.cuda import CudaEngine, device_bytes, read_output
from radius_fps_ros.sampling.cuda.engine import offers_clusters
from radius_fps_ros.sampling.cuda.layout import MOST_IN_CLUSTER

SLOW_MS = 50  # a call that takes longer is timed three times, not `runs` times,
VERY_SLOW_MS = 1000  # and once beyond this
LARGE = 200_000  # points: beyond, one block is too slow to wait for
HUGE = 2_000_000  # points: beyond, brute force draws only the first samples
HUGE_BRUTE_SAMPLES = 512
CROSSOVER_POINTS = (256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
CROSSOVER_SAMPLES = (1, 2, 4, 8, 16, 64, 256, 512, 1024)
CROSSOVER_METHODS = ("brute", "single_block", "cluster", "radius", "lookahead", "auto")
FEW = {"brute": 1 << 22, "single_block": 1 << 24}  # distances: beyond, far too slow to matter there
REAL_SAMPLES = 4096
REAL = {"nuScenes": (NUSCENES, 5), "KITTI": (KITTI, 4)}  # and numbers in a point
FRAME = ("street", 130_815)  # a frame's capacity
USABLE = ("all", "one row in ten", "a tenth, in a row", "a tenth, the nearest", "one row in a hundred")

# The goals: most milliseconds of `lookahead`, and how many times faster than `brute` it must be.
GOALS = {
    ("uniform", 65_536, 4096): (1.0, 55),
    ("street", 49_497, 4096): (1.0, 45),
    ("street", 130_815, 4096): (1.2, 80),
    ("street", 130_815, 16_384): (4.0, 100),
    ("street", 900_000, 4096): (2.5, 240),
    ("street", 900_000, 16_384): (6.0, 400),
    ("uniform", 4_000_000, 16_384): (15.0, None),
    ("room", 40_684, 4096): (None, None),
}


@functools.cache
def make_cloud(kind: str, n_points: int) -> np.ndarray:
    if kind in REAL:
        name, width = REAL[kind]
        folder = data_folder((name,))
        assert folder is not None
        return np.ascontiguousarray(np.fromfile(folder / name, np.float32).reshape(n_points, width)[:, :3])
    if kind == "uniform":
        return np.random.default_rng(0).random((n_points, 3), dtype=np.float32)
    records = street_scan(n_points) if kind == "street" else room_scan(n_points)
    return np.stack([records[axis] for axis in "xyz"], axis=1).astype(np.float32)


def milliseconds(call: Callable[[], Any], runs: int) -> tuple[float, int]:
    """Median of ``runs`` timed calls, of fewer where they are slow; and how many there were."""

    def once() -> float:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end))

    first = once()
    if first > VERY_SLOW_MS:
        return first, 1
    if first > SLOW_MS:
        return float(np.median([first, once(), once()])), 3
    once()
    return float(np.median([once() for _ in range(runs)])), runs


def graph_milliseconds(engine: CudaEngine, points: Any, n_samples: int, runs: int, start: Any = 0) -> float:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        engine.enqueue(points, n_samples, start)
        graph = stream.end_capture()
        return milliseconds(lambda: graph.launch(stream), runs)[0]


@functools.cache
def cpu_result(kind: str, n_points: int) -> SamplingResult:
    """The CPU's answer for the most samples asked for; a prefix is the answer for fewer."""
    n_samples = max((m for k, n, m in GOALS if (k, n) == (kind, n_points)), default=REAL_SAMPLES)
    return Sampler(backend="cpu", method="lookahead")(make_cloud(kind, n_points), n_samples)


def run_cloud(kind: str, n_points: int, n_samples: int, runs: int) -> list[dict[str, Any]]:
    points = cupy.asarray(make_cloud(kind, n_points))
    on_cpu = cpu_result(kind, n_points)
    rows = []
    for method in ("lookahead", "radius", "cluster", "single_block", "brute"):
        if (method == "single_block" and n_points > LARGE) or (method == "cluster" and not clusters_take(n_points)):
            continue
        m = HUGE_BRUTE_SAMPLES if method == "brute" and n_points > HUGE else n_samples
        engine = CudaEngine(method)
        raw = read_output(engine.enqueue(points, m, 0), n_points, method)
        whole = m == len(on_cpu.indices)
        row = {
            "cloud": kind,
            "points": n_points,
            "samples": m,
            "method": method,
            "equal_to_cpu": bool(np.array_equal(raw.indices.get(), on_cpu.indices[:m]))
            and (not whole or on_cpu.coverage_radius == float(np.sqrt(np.float64(raw.coverage_squared)))),
            "rounds": raw.rounds,
            "voxels": raw.voxels,
            "skip_rate": raw.skip_rate,
            "megabytes": (device_bytes(method, n_points, m) + 12 * n_points) / 1e6,
        }
        row["ms"], row["runs"] = milliseconds(lambda e=engine, k=m: e.enqueue(points, k, 0), runs)
        if method in ("lookahead", "radius", "cluster"):
            row["graph_ms"] = graph_milliseconds(engine, points, m, runs)
        rows.append(row)
        click.echo(f"{kind} {n_points:,} -> {m:,} {method}: {row['ms']:.3f} ms, equal to CPU: {row['equal_to_cpu']}")
    goal_ms, goal_ratio = GOALS.get((kind, n_points, n_samples), (None, None))
    look, brute = rows[0], rows[-1]
    ratio = brute["ms"] / look["ms"] if brute["samples"] == n_samples else None
    look.update(goal_ms=goal_ms, goal_ratio=goal_ratio, times_faster_than_brute=ratio)
    return rows


def clusters_take(n_points: int) -> bool:
    return n_points <= MOST_IN_CLUSTER and offers_clusters(cupy.cuda.Device().id)


def run_crossover(runs: int) -> list[dict[str, Any]]:
    rows = []
    for n_points in CROSSOVER_POINTS:
        points = cupy.asarray(make_cloud("uniform", n_points))
        for n_samples in (m for m in CROSSOVER_SAMPLES if m <= n_points):
            row: dict[str, Any] = {"points": n_points, "samples": n_samples, "graph": {}}
            for method in CROSSOVER_METHODS:
                too_slow = n_points * n_samples > FEW.get(method, 1 << 62)
                if too_slow or (method == "cluster" and not clusters_take(n_points)):
                    row[method] = row["graph"][method] = None
                    continue
                engine = CudaEngine(method)
                row[method] = milliseconds(lambda e=engine, p=points, m=n_samples: e.enqueue(p, m, 0), runs)[0]
                row["graph"][method] = graph_milliseconds(engine, points, n_samples, runs)
            row["chosen"] = CudaEngine().method_for(n_points, n_samples)
            rows.append(row)
    return rows


def usable_rows(points: np.ndarray, which: str) -> np.ndarray:
    n = len(points)
    rows = np.arange(n)
    if which == "one row in ten":
        return np.random.default_rng(1).random(n) < 0.1
    if which == "one row in a hundred":
        return np.random.default_rng(1).random(n) < 0.01
    if which == "a tenth, in a row":
        return (rows >= n // 2) & (rows < n // 2 + n // 10)
    if which == "a tenth, the nearest":
        return np.argsort(np.argsort(np.linalg.norm(points, axis=1))) < n // 10
    return np.ones(n, bool)


def run_frames(runs: int) -> list[dict[str, Any]]:
    """A frame of fixed capacity of which some rows are usable, beside a cloud of those rows alone."""
    rows = []
    full = make_cloud(*FRAME)
    for which in USABLE:
        usable = np.flatnonzero(usable_rows(full, which))
        frame = np.full_like(full, np.nan)
        frame[usable] = full[usable]
        start = cupy.asarray(usable[:1].astype(np.uint32))
        for n_samples in (1024, 4096):
            m = min(n_samples, len(usable))
            answers = []
            row: dict[str, Any] = {"usable": which, "points": len(usable), "samples": n_samples}
            for name, cloud, first, count in (("frame_ms", frame, start, n_samples), ("alone_ms", full[usable], 0, m)):
                points, engine = cupy.asarray(cloud), CudaEngine("lookahead")
                raw = read_output(engine.enqueue(points, count, first), len(points), "lookahead")
                answers.append(raw.indices.get())
                row[name] = graph_milliseconds(engine, points, count, runs, first)
            row["equal"] = bool(np.array_equal(answers[0][:m], usable[answers[1]]))
            rows.append(row)
    return rows


def report(rows: list[dict[str, Any]], crossover: list[dict[str, Any]], frames: list[dict[str, Any]]) -> str:
    facts = machine()
    lines = [
        "# Farthest point sampling on CUDA",
        "",
        f"{facts['gpu']}; {facts['date']}; CuPy {facts.get('cupy-cuda13x') or facts.get('cupy-cuda12x')}; "
        "`python benchmarks/fps_cuda.py`",
        "",
        "Median milliseconds between device events around the calls; `graph`: replayed from a CUDA graph. Memory: what "
        "the engine holds and the cloud. Every row's indices were compared with the CPU's.",
        "",
        "| cloud | points | samples | method | ms | graph ms | goal ms | faster than brute | goal | rounds | skipped "
        "| MB | runs | equal |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def number(value: Any, pattern: str) -> str:
        return "" if value is None else format(value, pattern)

    for row in rows:
        cells = [
            row["cloud"],
            f"{row['points']:,}",
            f"{row['samples']:,}",
            row["method"],
            f"{row['ms']:.3f}",
            number(row.get("graph_ms"), ".3f"),
            number(row.get("goal_ms"), "g"),
            number(row.get("times_faster_than_brute"), ".0f"),
            number(row.get("goal_ratio"), "d"),
            f"{row['rounds']:,}",
            f"{100 * row['skip_rate']:.1f} %",
            f"{row['megabytes']:.1f}",
            str(row["runs"]),
            "yes" if row["equal_to_cpu"] else "NO",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Few samples", "", "Milliseconds, uniform clouds: called from Python / in a CUDA graph.", ""]
    lines += ["| points | samples | brute | single block | cluster | radius | look-ahead | auto | which is |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in crossover:
        pairs = ((row[method], row["graph"][method]) for method in CROSSOVER_METHODS)
        times = " | ".join("" if call is None else f"{call:.3f} / {graph:.3f}" for call, graph in pairs)
        lines.append(f"| {row['points']:,} | {row['samples']:,} | {times} | {row['chosen']} |")
    kind, capacity = FRAME
    lines += ["", "## Frames of fixed capacity", ""]
    lines += [f"Look-ahead in a graph on {capacity:,} rows ({kind}), NaN where they are not usable, the start read on"]
    lines += ["the device; `alone`: a cloud of the usable rows. The samples are the same.", ""]
    lines += ["| usable | rows | samples | frame, ms | alone, ms | equal |", "|---|---|---|---|---|---|"]
    for row in frames:
        cells = [row["usable"], f"{row['points']:,}", f"{row['samples']:,}", f"{row['frame_ms']:.3f}"]
        cells += [f"{row['alone_ms']:.3f}", "yes" if row["equal"] else "NO"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--runs", default=25, show_default=True, help="Timed calls of each method.")
def main(runs: int) -> None:
    folder = data_folder((NUSCENES, KITTI))
    real = {"nuScenes": 34_688, "KITTI": 17_238} if folder else {}
    keys = [*GOALS, *((kind, n_points, REAL_SAMPLES) for kind, n_points in real.items())]
    rows = [row for key in keys for row in run_cloud(*key, runs)]
    crossover = run_crossover(10)
    frames = run_frames(runs)
    ratios = {
        f"{row['cloud']} {row['points']:,} points to {row['samples']:,}, beside brute": ratio
        for row in rows
        if (ratio := row.get("times_faster_than_brute"))
    }
    path: Path = write_results("fps_cuda", rows, crossover=crossover, frames=frames, ratios=ratios)
    text = report(rows, crossover, frames)
    path.with_suffix(".md").write_text(text)
    click.echo(text)


if __name__ == "__main__":
    main()
