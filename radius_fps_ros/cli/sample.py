"""``radius-fps sample``: a cloud file down to its farthest point samples."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from ..clouds import Cloud, read_cloud, write_cloud
from ..clouds.files import SUFFIXES
from ..errors import InputError
from ..sampling import Sampler
from .options import check_place


@click.command(
    epilog="Example: radius-fps sample scan.pcd --n 4096 -o sampled.ply",
)
@click.argument("cloud", type=click.Path(path_type=Path))
@click.option("--n", "n_samples", type=int, required=True, help="How many samples.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the samples with all fields to this file.")
@click.option("--start", type=int, help="Row of the first sample.  [default: the first point that is finite]")
@click.option(
    "--method",
    type=click.Choice(["auto", "radius", "lookahead", "brute"]),
    default="auto",
    show_default=True,
    help="All give the same samples.",
)
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=int, help="CPU threads.  [default: all that may be used]")
@click.option(
    "--bin-columns", type=click.Choice(["4", "5"]), help="Values a point in a .bin file: 4 KITTI, 5 nuScenes."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    cloud: Path,
    n_samples: int,
    output: Path | None,
    start: int | None,
    method: str,
    backend: str,
    threads: int | None,
    bin_columns: str | None,
    as_json: bool,
) -> None:
    """Downsample CLOUD (.pcd .ply .bin .npy .xyz) by exact farthest point sampling.

    Prints how far any point is from its nearest sample (the coverage radius), and with -o writes the samples, in
    sampling order and with all their fields, to another file of any of these formats. Points that are not finite are
    never sampled. Fewer samples come out only where fewer distinct points exist.

    Exit code: 0, or 2 for bad input.
    """
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise InputError(f"{output} has the suffix {output.suffix!r}; allowed are {', '.join(SUFFIXES)}")
    check_place(output)
    points = read_cloud(cloud, bin_columns=int(bin_columns) if bin_columns else None)
    sampler = Sampler(backend=backend, method=method, threads=threads)
    first = _first_finite(cloud, points) if start is None else start
    sampler.warm_up()  # compiling is not part of the time that is printed
    result = sampler(points.xyz, n_samples, start=first)
    if output is not None:
        write_cloud(output, points.records[result.indices])

    if as_json:
        report = {
            "cloud": str(cloud),
            "points": len(points),
            "finite_points": int(np.count_nonzero(points.finite)),
            "fields": list(points.records.dtype.names or ()),
            "n_requested": n_samples,
            "samples": len(result.indices),
            "start": first,
            "coverage_radius": result.coverage_radius if math.isfinite(result.coverage_radius) else None,
            **asdict(result.stats),
            "output": None if output is None else str(output),
        }
        click.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    stats = result.stats
    threads_used = f", {_counted(stats.threads, 'thread')}" if stats.backend == "cpu" else ""
    click.echo(f"{cloud}: {_counted(len(points), 'point')} with {' '.join(points.records.dtype.names or ())}")
    count = len(result.indices)
    click.echo(
        f"{_counted(count, 'sample')}, coverage radius {result.coverage_radius:.6g}, "
        f"{stats.milliseconds:.1f} ms ({stats.method} on {stats.backend}{threads_used})"
    )
    if count < n_samples:
        click.echo(f"fewer than the {n_samples:,} asked for: no more distinct points exist")
    if output is not None:
        click.echo(f"written to {output}")


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _first_finite(path: Path, points: Cloud) -> int:
    if len(points) == 0:
        raise InputError(f"{path} has no points")
    if not points.finite.any():
        raise InputError(f"none of the {len(points)} points in {path} is finite")
    return int(points.finite.argmax())
