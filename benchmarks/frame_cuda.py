"""A frame's way on CUDA without ROS: where its time goes, and what it gains over going to the device stage by stage.

python benchmarks/frame_cuda.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import cupy
import numpy as np
from machine import write_results

from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.cuda_frame import passes, pipeline
from radius_fps_ros.device import select_backend
from radius_fps_ros.frame import FrameResult, Pipeline, PipelineSettings
from radius_fps_ros.frame_features import FeatureExtractor, named_config
from radius_fps_ros.pipeline import FramePipeline

DIFFERENT = 10  # frames in turn


def answer(way: Pipeline, message: Any, settings: PipelineSettings) -> tuple[float, FrameResult, dict[str, float]]:
    """Wall milliseconds of one frame with its features, its result, and all stages."""
    begin = time.perf_counter()
    result = way.process(way.load(message), settings)
    stages = dict(result.milliseconds)
    if result.features is not None:
        stages |= result.features().milliseconds
    return (time.perf_counter() - begin) * 1e3, result, stages


def interleaved(ways: dict[str, Callable[[Any], float]], messages: list[Any], runs: int) -> dict[str, float]:
    """Median milliseconds of each way, frame by frame in turn; each is first as often, when the message is cold."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for run in range(runs):
        for name in names[run % len(names) :] + names[: run % len(names)]:
            spent[name].append(ways[name](messages[run % len(messages)]))
    return {name: float(np.median(values)) for name, values in spent.items()}


def without_stamps(way: Callable[[], Any]) -> Any:
    """Run without time stamps: nobody reads the clock, on the device or of what it wrote."""
    kept = passes.FramePass.stamp_of, passes.FramePass._stamp, passes.FramePass.milliseconds
    passes.FramePass.stamp_of = lambda self, stage: np.uintp(0)
    passes.FramePass._stamp = lambda self, stage: None
    passes.FramePass.milliseconds = lambda self: dict.fromkeys(passes.STAGES, 0.0)
    try:
        return way()
    finally:
        passes.FramePass.stamp_of, passes.FramePass._stamp, passes.FramePass.milliseconds = kept


def frames_per_second(way: Pipeline, messages: list[Any], settings: PipelineSettings, runs: int, ahead: bool) -> float:
    """Frames with their features as fast as they go; ``ahead``: the next one is loaded while one is in work."""
    with ThreadPoolExecutor(1) as receiver:
        begin = time.perf_counter()
        following = receiver.submit(way.load, messages[0])
        for k in range(runs):
            loaded = following.result()
            if ahead:
                following = receiver.submit(way.load, messages[(k + 1) % len(messages)])
            result = way.process(loaded, settings)
            if result.features is not None:
                result.features()
            if not ahead:
                following = receiver.submit(way.load, messages[(k + 1) % len(messages)])
        following.result()
        return runs / (time.perf_counter() - begin)


def measure(points: int, samples: int, dtype: str, runs: int) -> dict[str, Any]:
    messages = [encode_cloud(Cloud.of_records(street_scan(points, seed=k))) for k in range(DIFFERENT)]
    settings = PipelineSettings(samples)
    extractor = None
    if dtype != "off":
        extractor = FeatureExtractor(named_config("full", "cuda"), dtype=dtype, backend="cuda")
    choice = select_backend("cuda")
    ours, unstamped = (pipeline.CudaFramePipeline(choice, extractor=extractor) for _ in range(2))
    apart = FramePipeline(backend="cuda", extractor=extractor)
    for message in messages:  # every size once or more often; all buffers, all graphs
        for way in (ours, ours, ours, apart):
            answer(way, message, settings)
        for _ in range(3):
            without_stamps(lambda message=message: answer(unstamped, message, settings))
    memory = cupy.get_default_memory_pool().used_bytes()
    frames = [answer(ours, messages[k % DIFFERENT], settings) for k in range(runs)]
    wall = np.array([frame[0] for frame in frames])
    stages = {name: float(np.median([frame[2][name] for frame in frames])) for name in frames[0][2]}
    medians = interleaved(
        {
            "one pass": lambda message: answer(ours, message, settings)[0],
            "without stamps": lambda message: without_stamps(lambda: answer(unstamped, message, settings)[0]),
            "stage by stage": lambda message: answer(apart, message, settings)[0],
        },
        messages,
        runs,
    )
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(5):
        for ahead, seen in rates.items():
            seen.append(frames_per_second(ours, messages, settings, runs, ahead))
    device = sum(stages[name] for name in ("upload", *passes.STAGES, "download") if name in stages)
    return {
        "points": points,
        "samples": samples,
        "features": dtype,
        "wall_ms": {p: float(np.percentile(wall, p)) for p in (50, 99)},
        "device_ms": device,
        "stage_ms_median": stages,
        "median_ms": medians,
        "frames_per_second": {
            "next one loaded meanwhile": float(np.median(rates[True])),
            "one after the other": float(np.median(rates[False])),
        },
        "times_faster_than_stage_by_stage": medians["stage by stage"] / medians["one pass"],
        "device_mb_of_three_pipelines": memory / 1e6,
        "skip_rate": frames[0][1].stats.skip_rate,
    }


@click.command()
@click.option("--points", default=130_000, show_default=True)
@click.option("--samples", default=4096, show_default=True)
@click.option("--runs", default=200, show_default=True, help="Frames.")
def main(points: int, samples: int, runs: int) -> None:
    """Measure frames with the full network in either type, and without."""
    rows = []
    for dtype in ("off", "float16", "float32"):
        row = measure(points, samples, dtype, runs)
        rows.append(row)
        stages = ", ".join(f"{name} {spent:.3f}" for name, spent in row["stage_ms_median"].items())
        print(f"features {dtype}: p50 {row['wall_ms'][50]:.2f} ms, device {row['device_ms']:.2f}; {stages}")
        print("  " + ", ".join(f"{name} {spent:.2f} ms" for name, spent in row["median_ms"].items()))
        print("  frames a second: " + ", ".join(f"{n} {rate:.0f}" for n, rate in row["frames_per_second"].items()))
    ratios = {
        f"{points:,} points, features {row['features']}, beside stage by stage": row["times_faster_than_stage_by_stage"]
        for row in rows
    }
    print(f"written to {write_results('frame_cuda', rows, ratios=ratios)}")


if __name__ == "__main__":
    main()
