"""The backbone on the CPU beside spconv's CPU build and dense convolution, all in one run and in turn.

On a machine that other programs share, `chrt -f 5` before the command keeps them from the cores while it runs.

python benchmarks/backbone_cpu.py            (pip install spconv==2.3.8 torch==2.13.0 for the peers)

The real frame is read from the folder named by RADIUS_FPS_DATA; without it only synthetic clouds run. spconv is timed
with one thread: with two, its CPU build returns wrong rows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from machine import import_peer, write_results
from real_data import NUSCENES, data_folder
from rich.console import Console
from rich.table import Table

from radius_fps_ros.clouds import Cloud, read_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.device import usable_cores
from radius_fps_ros.sparse import (
    BackboneConfig,
    SparseTensor,
    VoxelResBackBone8x,
    gather_features,
    input_features,
    load_config,
    voxelize_for,
)
from radius_fps_ros.sparse.plan import network_steps, random_state

ROOT = Path(__file__).parents[1]
LEVELS = ("x_conv1", "x_conv2", "x_conv3", "x_conv4")
Run = Callable[[], Any]


def clouds() -> dict[str, Cloud]:
    found = {f"street {n:,}": Cloud.of_records(street_scan(n)) for n in (34_688, 120_000)}
    folder = data_folder((NUSCENES,))
    return found if folder is None else {"real 34,688": read_cloud(folder / NUSCENES), **found}


def on_cores(count: int, run: Run) -> Run:
    """``run`` as a process that may use ``count`` cores would run it."""
    allowed = sorted(os.sched_getaffinity(0))

    def limited() -> Any:
        os.sched_setaffinity(0, allowed[:count])
        try:
            return run()
        finally:
            os.sched_setaffinity(0, allowed)

    return limited


def spconv_network(config: BackboneConfig, tensor: SparseTensor) -> Run:
    """The same network with the same weights in spconv, one thread."""
    torch, sp = import_peer("torch"), import_peer("spconv.pytorch")
    sys.path.insert(0, str(ROOT / "test" / "sparse" / "golden"))
    from make import Backbone

    net = Backbone(config.channels, config.blocks, config.out_channels).eval()
    steps = network_steps(len(config.fields), config.channels, config.blocks, config.out_channels)
    net.load_state_dict({k: torch.from_numpy(v) for k, v in random_state(steps, 0).items()}, strict=False)
    features, indices = torch.from_numpy(tensor.features), torch.from_numpy(tensor.indices)
    shape = list(tensor.spatial_shape)

    def run() -> Any:
        torch.set_num_threads(1)  # again each time: it is one setting for all of PyTorch
        with torch.no_grad():
            return net(sp.SparseConvTensor(features, indices, shape, 1))

    return run


def dense_layer(tensor: SparseTensor, threads: int) -> Run:
    """One 3x3x3 layer of ``tensor``'s width over the whole volume, dense, in PyTorch."""
    torch = import_peer("torch")
    width = tensor.features.shape[1]
    volume = torch.zeros(1, width, *tensor.spatial_shape)
    batch, z, y, x = tensor.indices.T
    volume[batch, :, z, y, x] = torch.from_numpy(tensor.features)
    conv = torch.nn.Conv3d(width, width, 3, padding=1, bias=False)

    def run() -> Any:
        torch.set_num_threads(threads)
        with torch.no_grad():
            return conv(volume)

    return run


def measure(contenders: dict[str, Run], runs: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of processor time of each contender, taken in turn after one run to warm up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for k in range(runs + 1):
        for name, run in contenders.items():
            begin = time.perf_counter(), time.process_time()
            run()
            if k:
                times[name].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return times


def agreement(ours: Any, theirs: Any) -> str:
    """Whether spconv's result has the same sites, and the largest relative difference of the features."""
    worst = 0.0
    for name in (*LEVELS, "encoded"):
        indices = theirs[name].indices.numpy()
        order = np.lexsort(indices.T[::-1])
        if not np.array_equal(indices[order], ours[name].indices):
            return f"other sites in {name}"
        found, expected = ours[name].features, theirs[name].features.numpy()[order]
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    return f"same sites, features within {worst:.1e}"


def compare(cloud: str, points: Cloud, name: str, config: BackboneConfig, runs: int, missing: set[str]) -> list[dict]:
    xyz, features = points.xyz, input_features(points.records, config.fields)
    cores = usable_cores()
    net = VoxelResBackBone8x.from_config(config, backend="cpu")

    def voxels() -> SparseTensor:
        return voxelize_for(config, xyz, features, backend="cpu")

    tensor, samples = voxels(), xyz[:: max(1, len(xyz) // 4096)][:4096]

    def network() -> Any:
        tensor.rulebooks.clear()
        return net(tensor)

    maps = network()
    with_rulebooks = tensor.derived(tensor.features, tensor.indices, tensor.spatial_shape, tensor.scale, tensor.shift)
    with_rulebooks.rulebooks = dict(tensor.rulebooks)
    contenders: dict[str, Run] = {
        "voxelize": voxels,
        f"network, {cores} cores": network,
        "network, 1 core": on_cores(1, network),
        f"network without rulebooks, {cores} cores": lambda: net(with_rulebooks),
        "features at 4,096 points": lambda: gather_features(maps, samples, levels=LEVELS),
        f"one layer of level 4, {cores} cores": one_layer(net, maps["x_conv4"]),
    }
    notes = {}
    try:
        peer = spconv_network(config, tensor)
        notes["spconv 2.3.8, 1 core"] = agreement(maps, peer())
        contenders["spconv 2.3.8, 1 core"] = on_cores(1, peer)
    except ImportError as error:
        missing.add(f"spconv is not measured: {error}")
    try:
        contenders[f"dense PyTorch layer of level 4, {cores} cores"] = dense_layer(maps["x_conv4"], cores)
    except ImportError as error:
        missing.add(f"dense PyTorch is not measured: {error}")
    times = measure(contenders, runs)
    sites = maps.stats["sites"]
    return [
        {
            "cloud": cloud,
            "config": name,
            "sites": sites,
            "what": what,
            "median_ms": 1e3 * float(np.median([clock for clock, _ in values])),
            "min_ms": 1e3 * min(clock for clock, _ in values),
            "processor_ms": 1e3 * min(processor for _, processor in values),
            "runs": len(values),
            "note": notes.get(what, ""),
        }
        for what, values in times.items()
    ]


def ratios(rows: list[dict]) -> dict[str, float]:
    """spconv's time over ours, both on one core."""
    times = {(row["cloud"], row["config"], row["what"]): row["median_ms"] for row in rows}
    return {
        f"{cloud}, {config} network, 1 core, beside spconv": ms / times[cloud, config, "network, 1 core"]
        for (cloud, config, what), ms in times.items()
        if what.startswith("spconv")
    }


def one_layer(net: VoxelResBackBone8x, tensor: SparseTensor) -> Run:
    from radius_fps_ros.sparse.cpu.convolve import convolve_packed, pack_weight

    width = tensor.features.shape[1]
    layer = next(layer for layer in net.layers if layer.weight.shape == (27, width, width) and layer.geometry.subm)
    rulebook, packed = tensor.rulebook(layer.geometry, "layer"), pack_weight(layer.weight)
    return lambda: convolve_packed(tensor.features, packed, rulebook.neighbours, layer.bias, None, False)


@click.command()
@click.option("--runs", default=15, show_default=True, type=click.IntRange(1))
@click.option("--cloud", multiple=True, help="Only clouds whose name contains this.")
def main(runs: int, cloud: tuple[str, ...]) -> None:
    """Print a table and write results/backbone_cpu.json."""
    console = Console(width=150)
    configs = {name: load_config(ROOT / "config" / f"backbone_{name}.yaml") for name in ("full", "light")}
    rows: list[dict] = []
    missing: set[str] = set()
    load = os.getloadavg()[0]
    for cloud_name, points in clouds().items():
        if cloud and not any(part in cloud_name for part in cloud):
            continue
        for name, config in configs.items():
            new = compare(cloud_name, points, name, config, runs, missing)
            rows += new
            sites = " / ".join(f"{n:,}" for n in new[0]["sites"].values())
            table = Table("what", title=f"{cloud_name}, {name} network, sites {sites}")
            for column in ("median ms", "min ms", "processor ms (min)"):
                table.add_column(column, justify="right")
            table.add_column("agreement")
            for row in new:
                table.add_row(
                    row["what"],
                    f"{row['median_ms']:.2f}",
                    f"{row['min_ms']:.2f}",
                    f"{row['processor_ms']:.2f}",
                    row["note"],
                )
            console.print(table)
    for sentence in sorted(missing):
        console.print(sentence)
    console.print(f"load of the machine before the run: {load:.1f}")
    path = write_results("backbone_cpu", rows, peers_missing=sorted(missing), load_average=load, ratios=ratios(rows))
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
