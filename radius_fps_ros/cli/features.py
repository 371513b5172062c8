"""``radius-fps features``: sparse voxel features of a cloud file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..clouds import Cloud, read_cloud, write_cloud
from ..device import select_backend
from ..errors import InputError
from ..frame_features import FEATURE_LEVELS, named_config
from ..replacing import replacing
from ..sparse import (
    FeatureMaps,
    VoxelResBackBone8x,
    draw_sites,
    gather_features,
    input_features,
    site_centres,
    summary,
    voxelize_for,
)
from .options import check_place


@click.command(
    epilog="Example: radius-fps features scan.pcd --weights centerpoint.pth -o features.npz --picture sites.png"
)
@click.argument("cloud", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), help="Checkpoint (.pth or .safetensors); without: random.")
@click.option("--config", default="full", show_default=True, help="Network: full, light, or a YAML file.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write the features; see above.")
@click.option(
    "--level", "levels", multiple=True, type=click.Choice(FEATURE_LEVELS), default=("x_conv4",), show_default=True,
    help="Level whose features the points get; several stand side by side.",
)  # fmt: skip
@click.option("--picture", type=click.Path(path_type=Path), help="Draw the active sites of all levels (PNG).")
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", show_default=True)
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the random weights.")
def command(
    cloud: Path,
    weights: Path | None,
    config: str,
    output: Path | None,
    levels: tuple[str, ...],
    picture: Path | None,
    dtype: str,
    backend: str,
    seed: int,
) -> None:
    """Voxelize CLOUD, run VoxelResBackBone8x over it, and print a summary of every level.

    CLOUD is a .pcd, .ply, .bin, .npy or .xyz file. With -o OUT.npz all levels are written: for each LEVEL the arrays
    LEVEL_indices (batch, z, y, x), LEVEL_centres (metres) and LEVEL_features. With a cloud suffix (.pcd .npy .ply .xyz)
    the points are written with their fields and `features`, interpolated in the levels that --level names.
    """
    if output is not None and output.suffix.lower() not in (".npz", ".pcd", ".npy", ".ply", ".xyz"):
        raise InputError(f"{output} has the suffix {output.suffix!r}; allowed are .npz, .pcd, .npy, .ply and .xyz")
    check_place(output)
    check_place(picture)
    settings = named_config(config, select_backend(backend).name)
    points = read_cloud(cloud)
    net = VoxelResBackBone8x.from_config(settings, weights=weights, seed=seed, dtype=dtype, backend=backend)
    tensor = voxelize_for(settings, points.xyz, input_features(points.records, settings.fields), backend=net.backend)
    maps = net(tensor)
    click.echo(f"weights: {net.weights_source}")
    click.echo(f"backend: {net.backend} ({net.backend_reason}), {maps.stats['milliseconds']:.1f} ms")
    click.echo("voxels: " + ", ".join(f"{name} {tensor.stats[name]}" for name in tensor.stats if name != "backend"))
    click.echo(summary({"input": tensor, **maps}))
    if picture is not None:
        draw_sites({"input": tensor, **maps}, picture)
        click.echo(f"written to {picture}")
    if output is not None:
        _write(output, points, maps, levels)
        click.echo(f"written to {output}")


def _write(output: Path, points: Cloud, maps: FeatureMaps, levels: tuple[str, ...]) -> None:
    if output.suffix.lower() != ".npz":
        write_cloud(output, _with_features(points.records, gather_features(maps, points.xyz, levels=levels)))
        return
    arrays: dict[str, Any] = {}
    for name, tensor in maps.items():
        arrays[f"{name}_indices"], arrays[f"{name}_features"] = tensor.indices, tensor.features
        arrays[f"{name}_centres"] = site_centres(tensor)
    try:
        with replacing(output) as new, new.open("wb") as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror or error}") from error


def _with_features(records: np.ndarray, features: np.ndarray) -> np.ndarray:
    names = [name for name in records.dtype.names or () if name != "features"]
    kinds: list[Any] = [(name, records.dtype[name]) for name in names]
    joined = np.empty(len(records), dtype=[*kinds, ("features", np.float32, (features.shape[1],))])
    for name in names:
        joined[name] = records[name]
    joined["features"] = features
    return joined
