"""The backbone on CUDA beside spconv, in one run and in turn, and how it grows with the number of voxels.

python benchmarks/backbone_cuda.py [--data FOLDER]      (spconv-cu126 2.3.8 and torch for the peer)

The real frames are read from FOLDER (default: the environment variable RADIUS_FPS_DATA); without it only the synthetic
scan runs. Times are wall time from the call to finished results, median of many. spconv runs twice: its modules as
published (convolution, batch norm, ReLU), and with batch norm folded into the convolutions as we do; the ratio is to
the faster of the two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from machine import RESULTS, import_peer, write_results
from real_data import KITTI, NUSCENES, data_folder

from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.sparse import BackboneConfig, SparseTensor, VoxelResBackBone8x, gather_features, voxelize
from radius_fps_ros.sparse.cuda.feature_pass import FeaturePass

LEVELS = ("x_conv1", "x_conv2", "x_conv3", "x_conv4", "encoded")
SAMPLES = 4096
TOLERANCE = {"float32": 1e-4, "float16": 2e-2}
Run = Callable[[], Any]


def clouds(folder: Path | None) -> dict[str, tuple[np.ndarray, tuple[float, ...], tuple[float, ...]]]:
    """Points (N, 4) x y z intensity, range and voxel size by name."""
    street = street_scan(130_815)
    points = np.stack([street["x"], street["y"], street["z"], street["intensity"] / 255], axis=1).astype(np.float32)
    found = {
        "street 130,815": (points, (-75.2, -75.2, -2.0, 75.2, 75.2, 4.0), (0.1, 0.1, 0.15)),
    }
    if folder is not None:
        frame = np.fromfile(folder / NUSCENES, np.float32).reshape(-1, 5)[:, :4]
        frame[:, 3] /= 255
        found["real 34,688"] = (frame, (-54.0, -54.0, -5.0, 54.0, 54.0, 3.0), (0.075, 0.075, 0.2))
        frame = np.fromfile(folder / KITTI, np.float32).reshape(-1, 4)
        # A 64-beam scan cut to a camera's view; three of them 2 cm apart have the size of a whole one.
        three = np.concatenate([frame + np.float32([shift, 0, 0, 0]) for shift in (0, 0.02, 0.04)])
        found["real 51,714"] = (three, (0.0, -40.0, -3.0, 70.4, 40.0, 1.0), (0.05, 0.05, 0.1))
    return found


def load_inputs(folder: Path | None) -> dict[str, SparseTensor]:
    tensors = {}
    for name, (points, extent, size) in clouds(folder).items():
        device = cupy.asarray(points)
        tensors[name] = voxelize(device[:, :3], device, point_cloud_range=extent, voxel_size=size, backend="cuda")
    return tensors


def scattered(count: int) -> SparseTensor:
    """About ``count`` voxels on wavy surfaces in four samples of [41, 3000, 3000]."""
    rng = np.random.default_rng(count)
    side = int(np.sqrt(count / 4))
    y, x = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    sites = []
    for batch in range(4):
        z = (18 + 12 * np.sin(x / 40 + batch) * np.cos(y / 60)).astype(np.int64)
        shift = rng.integers(0, 3000 - side, 2)
        sites.append(np.stack([np.full_like(z, batch), z, y + shift[0], x + shift[1]], axis=-1).reshape(-1, 4))
    indices = np.concatenate(sites).astype(np.int32)
    indices = indices[np.lexsort(indices.T[::-1])]
    features = rng.standard_normal((len(indices), 4)).astype(np.float32)
    return SparseTensor(cupy.asarray(features), cupy.asarray(indices), (41, 3000, 3000), 4)


class Spconv:
    """The same layers in spconv: ``folded`` with our weights, or the published modules."""

    def __init__(self, net: VoxelResBackBone8x, dtype: str, folded: bool) -> None:
        import spconv.pytorch as sp
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        self.sp, self.torch, self.layers, self.folded = sp, torch, net.layers, folded
        self.dtype = getattr(torch, dtype)
        self.convs, self.norms = [], []
        for layer in net.layers:
            g = layer.geometry
            kind = sp.SubMConv3d if g.subm else sp.SparseConv3d
            conv = kind(
                layer.in_channels,
                layer.out_channels,
                g.kernel_size,
                g.stride,
                g.padding,
                bias=folded,
                indice_key=layer.indice_key,
            )
            weight = layer.weight.reshape(*g.kernel_size, layer.in_channels, layer.out_channels)
            state = {"weight": torch.from_numpy(np.ascontiguousarray(weight.transpose(4, 0, 1, 2, 3)))}
            if folded:
                state["bias"] = torch.from_numpy(layer.bias)
            conv.load_state_dict(state)
            self.convs.append(conv.eval().cuda().to(self.dtype))
            norm = torch.nn.BatchNorm1d(layer.out_channels, eps=1e-3)
            norm.running_var.fill_(1 - 1e-3)
            norm.bias.data = torch.from_numpy(layer.bias)
            self.norms.append(norm.eval().cuda().to(self.dtype))

    def __call__(self, tensor: SparseTensor) -> dict[str, Any]:
        """Rulebooks included: they belong to the frame."""
        torch = self.torch
        with torch.no_grad():
            features = torch.as_tensor(tensor.features, device="cuda").to(self.dtype)
            indices = torch.as_tensor(tensor.indices, device="cuda")
            x = self.sp.SparseConvTensor(features, indices, list(tensor.spatial_shape), tensor.batch_size)
            kept, outputs = [], {}
            for layer, conv, norm in zip(self.layers, self.convs, self.norms, strict=True):
                x = conv(x)
                values = x.features if self.folded else norm(x.features)
                if layer.residual is not None:
                    values = values + kept[layer.residual].features
                x = x.replace_feature(torch.relu(values))
                kept.append(x)
                if layer.output is not None:
                    outputs[layer.output] = x
            torch.cuda.synchronize()
        return outputs


def agreement(ours: Any, theirs: dict[str, Any], dtype: str) -> float:
    """Largest relative difference; the site sets must be identical."""
    worst = 0.0
    for name in LEVELS:
        indices = theirs[name].indices.cpu().numpy()
        order = np.lexsort(indices.T[::-1])
        if not np.array_equal(indices[order], ours[name].indices.get()):
            raise SystemExit(f"{name}: spconv has other sites")
        expected = theirs[name].features.float().cpu().numpy()[order]
        found = ours[name].features.get().astype(np.float32)
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    if worst > TOLERANCE[dtype]:
        raise SystemExit(f"features differ from spconv's by {worst:.1e}")
    return worst


def wall(contenders: dict[str, Run], runs: int) -> dict[str, float]:
    """Median milliseconds of each, taken in turn; every contender waits for its own results."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for k in range(runs + 3):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            if k >= 3:
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in times.items()}


def on_device(run: Run, runs: int) -> float:
    """Median milliseconds between device events around ``run``."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    times = []
    for k in range(runs + 3):
        begin.record()
        run()
        end.record()
        end.synchronize()
        if k >= 3:
            times.append(cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(times)


def measure(name: str, tensor: SparseTensor, dtype: str, runs: int, peers: bool) -> dict[str, Any]:
    net = VoxelResBackBone8x(4, dtype=dtype, backend="cuda")
    maps = net(tensor)
    row: dict[str, Any] = {"input": name, "dtype": dtype, "voxels": len(tensor), "sites": maps.stats["sites"]}
    contenders: dict[str, Run] = {"ours": lambda: net(tensor)}
    if peers:
        for label, folded in (("spconv folded", True), ("spconv as published", False)):
            peer = Spconv(net, dtype, folded)
            row[f"difference to {label}"] = agreement(maps, peer(tensor), dtype)
            contenders[label] = lambda peer=peer: peer(tensor)
    row.update({f"{label} ms": value for label, value in wall(contenders, runs).items()})
    captured = net.runner.captured
    row["graph ms"] = on_device(captured.graph.launch, runs)
    rulebooks = captured.capture(convolutions=False)
    captured.run(tensor.indices, tensor.features, copy=False)
    row["rulebooks ms"] = on_device(rulebooks.launch, runs)
    row["workspace MiB"] = captured.workspace.nbytes / 2**20
    if peers:
        row["times faster"] = min(row[f"spconv {k} ms"] for k in ("folded", "as published")) / row["ours ms"]
    return row


def other_stages(name: str, cloud: tuple[Any, ...], tensor: SparseTensor, runs: int) -> dict[str, Any]:
    """The public calls before and behind the network, both with the wait for the device."""
    points, extent, size = cloud
    device = cupy.asarray(points)
    maps = VoxelResBackBone8x(4, dtype="float16", backend="cuda")(tensor)
    samples = device[some_rows(points), :3].copy()

    def sample() -> None:
        gather_features(maps, samples, levels=("x_conv4",))
        cupy.cuda.get_current_stream().synchronize()

    def voxels() -> None:
        voxelize(device[:, :3], device, point_cloud_range=extent, voxel_size=size, backend="cuda")

    return {"input": name, **wall({"voxelize": voxels, "features at 4,096 points": sample}, runs)}


def some_rows(points: np.ndarray) -> np.ndarray:
    return np.arange(0, len(points), max(1, len(points) // SAMPLES))[:SAMPLES]


def features_pass(name: str, cloud: tuple[Any, ...], dtype: str, runs: int) -> dict[str, Any]:
    """The whole features part of a frame as one graph, and its stages: 20 runs of each in a row in a graph of its own,
    so that starting a graph does not count."""
    cloud_points, extent, size = cloud
    config = BackboneConfig(point_cloud_range=extent, voxel_size=size)
    net = VoxelResBackBone8x.from_config(config, dtype=dtype, backend="cuda")
    columns = cupy.asarray(cloud_points)
    points, samples = columns[:, :3].copy(), cupy.asarray(some_rows(cloud_points))
    row: dict[str, Any] = {"input": name, "dtype": dtype}
    for levels in (("x_conv4",), LEVELS):
        work = FeaturePass(net, config, levels)
        work.prepare(points, columns)
        records = cupy.empty((len(samples), 3 + work.channels), np.float32)
        stages = {
            "voxelize": partial(work.enqueue_voxelize, points, columns),
            "backbone": work.enqueue_backbone,
            "gather, {}": partial(work.enqueue_gather, points, samples, records),
            "whole graph, {}": partial(work.enqueue, points, columns, samples, records),
        }
        label = levels[0] if len(levels) == 1 else f"{len(levels)} levels"
        for stage, enqueue in stages.items():
            repeats = 1 if "graph" in stage else 20
            row[f"{stage.format(label)} ms"] = on_device(captured(enqueue, repeats).launch, runs) / repeats
        outcome = work.read(work.status.get())
        if outcome.overflowed:
            raise SystemExit(f"{name}: a prepared frame overflowed")
        row["voxels"] = outcome.voxels
    return row


def captured(enqueue: Run, repeats: int) -> Any:
    """A graph of ``enqueue``, so many times in a row."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(repeats):
            enqueue()
        return stream.end_capture()


def table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))

    def cell(value: Any) -> str:
        if isinstance(value, dict):
            return " / ".join(f"{v:,}" for v in value.values())
        if isinstance(value, float):
            return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}" if value < 10 else f"{value:.1f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(row.get(column, "")) for column in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def report(results: dict[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    parts = {
        "Whole network, rulebooks included": results["rows"],
        "Growth: voxels of [41, 3000, 3000], four samples": results["growth"],
        "The features part of a frame, on the device": results["features_pass"],
        "Other stages called one by one, milliseconds with the wait for the device": results["other_stages_ms"],
    }
    tables = [f"## {title}\n\n{table(rows)}" for title, rows in parts.items()]
    return "\n".join(["# The backbone on CUDA", "", f"{facts}; `{results['command']}`", "", *tables])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    folder = data_folder((NUSCENES, KITTI), arguments.data)
    try:
        import_peer("spconv.pytorch")
        peers = True
    except ImportError as error:
        peers = False
        print(f"spconv is not measured: {error}")
    inputs = load_inputs(folder)
    rows = [measure(n, t, d, arguments.runs, peers) for d in ("float16", "float32") for n, t in inputs.items()]
    growth = []
    for count in (50_000, 100_000, 200_000, 400_000):
        tensor = scattered(count)
        growth.append(measure(f"surfaces {count:,}", tensor, "float16", 10, peers and count <= 200_000))
    stages = [other_stages(name, cloud, inputs[name], arguments.runs) for name, cloud in clouds(folder).items()]
    passes = [
        features_pass(name, cloud, dtype, arguments.runs)
        for dtype in ("float16", "float32")
        for name, cloud in clouds(folder).items()
    ]
    ratios = {f"{row['input']}, {row['dtype']}, beside spconv": row["times faster"] for row in rows if peers}
    path = write_results(
        "backbone_cuda",
        rows,
        growth=growth,
        features_pass=passes,
        other_stages_ms=stages,
        peer=peers,
        ratios=ratios,
    )
    text = report(json.loads(path.read_text()))
    (RESULTS / "backbone_cuda.md").write_text(text)
    print(text, path)


if __name__ == "__main__":
    main()
