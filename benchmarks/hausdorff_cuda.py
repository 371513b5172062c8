"""The certified Hausdorff distance on CUDA beside cascading_upper_bounds (SGP 2024) on the same machine's processor.

python benchmarks/hausdorff_cuda.py

The peer comes with pip install cascading_upper_bounds==1.0.0 and is left out where missing. Mesh pairs with published
intervals are read from the folder named by RADIUS_FPS_DATA; without it only generated spheres run. "from arrays" takes
in checking, copying and building; "prepared" has both meshes on the device. Compiling counts in neither.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import cupy
import numpy as np
from hausdorff_cpu import Mesh, Pair, published_pairs, spheres, subdivided
from machine import RESULTS, import_peer, machine, write_results

from radius_fps_ros.hausdorff import prepare_mesh
from radius_fps_ros.hausdorff.cuda import directed
from radius_fps_ros.hausdorff.cuda.mesh import CudaMesh
from radius_fps_ros.hausdorff.goal import Goal, Interval, Outcome

TOLERANCE = 1e-6
MIB = 2**20


def certify(a: Any, b: Any, tolerance: float = TOLERANCE, **options: Any) -> tuple[Outcome, float]:
    """The outcome and the relative gap; meshes as arrays or prepared."""
    a, b = prepare_mesh(a), prepare_mesh(b)
    outcome = directed(a, b, Goal(tolerance * a.diagonal, **options), Interval(0.0, 0.0))
    return outcome, (outcome.upper - outcome.lower) / a.diagonal


def timed(call: Callable[[], Any], runs: int) -> list[float]:
    """Milliseconds of each run; the search ends with a copy from the device, so nothing is still under way."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)


def p99(times: list[float]) -> float:
    return times[min(len(times) - 1, int(0.99 * len(times)))]


def _peer(a: Mesh, b: Mesh, runs: int, pipe: Any) -> None:
    from cascading_upper_bounds import pompeiu_hausdorff

    for _ in range(runs):
        start = time.perf_counter()
        lower, upper = pompeiu_hausdorff(*a, *b, TOLERANCE, 1_000_000, True)[:2]
        pipe.send((1e3 * (time.perf_counter() - start), float(lower), float(upper)))
    pipe.close()


def peer(pair: Pair, runs: int, limit: float) -> dict[str, Any]:
    """Median of the peer's runs in a process of its own, or that it did not finish within ``limit`` seconds."""
    context = multiprocessing.get_context("fork")  # the child never touches the device
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peer, args=(pair.a, pair.b, runs, sender))
    process.start()
    sender.close()
    results = []
    try:
        while len(results) < runs and receiver.poll(limit):
            results.append(receiver.recv())
    except EOFError:
        pass
    process.kill()
    process.join()
    if not results:
        return {"peer_ms": None, "peer_longer_than_ms": 1e3 * limit}
    ms, lower, upper = zip(*results, strict=True)
    return {"peer_ms": statistics.median(ms), "peer_runs": len(ms), "peer_lower": lower[0], "peer_upper": upper[0]}


def measure(pair: Pair, runs: int) -> dict[str, Any]:
    a, b = prepare_mesh(pair.a), prepare_mesh(pair.b)
    outcome, gap = certify(a, b)
    prepared = timed(lambda: certify(a, b), runs)
    arrays = timed(lambda: certify(pair.a, pair.b), max(5, runs // 5))
    row = {
        "pair": pair.name,
        "faces": [len(pair.a[1]), len(pair.b[1])],
        "status": str(outcome.status),
        "lower": outcome.lower,
        "upper": outcome.upper,
        "relative_gap": gap,
        "triangles": outcome.triangles,
        "prepared_ms": statistics.median(prepared),
        "prepared_p99_ms": p99(prepared),
        "arrays_ms": statistics.median(arrays),
        "arrays_p99_ms": p99(arrays),
        "runs": [len(prepared), len(arrays)],
    }
    if pair.published is not None:
        row["meets_published"] = outcome.lower <= pair.published[1] and outcome.upper >= pair.published[0]
    return row


def single(name: str, a: Mesh, b: Mesh, runs: int = 5, **options: Any) -> dict[str, Any]:
    """One pair, with the device memory that a certification from arrays takes at its peak."""
    pool = cupy.cuda.MemoryPool()
    if "memory_limit" in options:
        pool.set_limit(size=options["memory_limit"])
    with cupy.cuda.using_allocator(pool.malloc):
        outcome, gap = certify(a, b, **options)
        peak = pool.total_bytes()
        prepared_a, prepared_b = prepare_mesh(a), prepare_mesh(b)
        held = CudaMesh.bytes(prepared_a, tree=False) + CudaMesh.bytes(prepared_b, tree=True)
        arrays = timed(lambda: certify(a, b, **options), runs)
        certify(prepared_a, prepared_b, **options)
        prepared = timed(lambda: certify(prepared_a, prepared_b, **options), runs)
    return {
        "pair": name,
        "faces": [len(a[1]), len(b[1])],
        "status": str(outcome.status),
        "lower": outcome.lower,
        "upper": outcome.upper,
        "relative_gap": gap,
        "triangles": outcome.triangles,
        "prepared_ms": statistics.median(prepared),
        "arrays_ms": statistics.median(arrays),
        "peak_MiB": peak / MIB,
        "meshes_MiB": held / MIB,
    }


def large(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Million-triangle meshes, near-zero pairs, a limit of 64 MB."""
    rng = np.random.default_rng(0)
    pair = max(pairs, key=lambda p: len(p.a[1]))
    mesh = pair.a
    diagonal = prepare_mesh(mesh).diagonal
    million = mesh
    while len(million[1]) < 1_000_000:
        million = subdivided(*million)
    million = np.ascontiguousarray(million[0]), np.ascontiguousarray(million[1], np.int32)

    def noisy(m: Mesh, sigma: float) -> Mesh:
        return m[0] + rng.normal(scale=sigma * diagonal, size=m[0].shape), m[1]

    sub = subdivided(*mesh)
    sub = np.ascontiguousarray(sub[0]), np.ascontiguousarray(sub[1], np.int32)
    name = pair.name.split("|")[0]
    return [
        single(f"{name} subdivided, and 1e-4 noise", million, noisy(million, 1e-4)),
        single(f"{name} subdivided, and 1e-7 noise", million, noisy(million, 1e-7)),
        single(f"{name}, and its subdivision", mesh, sub),
        single(f"{name}, and its subdivision, at 1e-8", mesh, sub, tolerance=1e-8),
        single(f"{name}, and 1e-7 noise", mesh, noisy(mesh, 1e-7)),
        single(f"{name}, and 1e-4 noise, within 64 MB", mesh, noisy(mesh, 1e-4), memory_limit=64_000_000),
        single(f"{name}, and its subdivision, within 64 MB", mesh, sub, memory_limit=64_000_000),
        single(f"{name} subdivided, and 1e-4 noise, within 64 MB", million, noisy(million, 1e-4), 1,
               memory_limit=64_000_000),
    ]  # fmt: skip


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Rows as a Markdown table; ``columns`` maps headings to keys."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return " / ".join(f"{v:,}" for v in value)
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")

    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(text(row.get(key)) for key in columns.values()) + " |" for row in rows]
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the pairs; a pair that the peer did not finish counts with the time it was given."""
    everything: dict[str, Any] = {
        "median_of_pairs_prepared_ms": statistics.median(r["prepared_ms"] for r in rows),
        "median_of_pairs_arrays_ms": statistics.median(r["arrays_ms"] for r in rows),
        "worst_p99_prepared_ms": max(r["prepared_p99_ms"] for r in rows),
        "worst_p99_arrays_ms": max(r["arrays_p99_ms"] for r in rows),
    }
    for label, chosen in (("all", rows), ("finished", [r for r in rows if r.get("peer_ms")])):
        theirs = sum(r.get("peer_ms") or r.get("peer_longer_than_ms", 0.0) for r in chosen)
        if theirs:
            everything[f"{label}_peer_total_ms"] = theirs
            for way in ("prepared", "arrays"):
                ours = sum(r[f"{way}_ms"] for r in chosen)
                everything[f"{label}_{way}_total_ms"] = ours
                everything[f"{label}_{way}_times_faster"] = theirs / ours
    return everything


@click.command()
@click.option("--runs", default=100, show_default=True, help="Of a prepared pair; a fifth of them from arrays.")
@click.option("--peer-runs", default=3, show_default=True)
@click.option("--peer-limit", default=5.0, show_default=True, help="Seconds one run of the peer may take.")
def main(runs: int, peer_runs: int, peer_limit: float) -> None:
    pairs = published_pairs() or spheres()
    certify(pairs[0].a, pairs[0].b)  # compiles
    rows = [measure(pair, runs) for pair in pairs]
    try:
        import_peer("cascading_upper_bounds")
    except ImportError as error:
        click.echo(f"the peer is not measured: {error}")
    else:
        for pair, row in zip(pairs, rows, strict=True):
            row |= peer(pair, peer_runs, peer_limit)
            if row["peer_ms"]:
                row["times_faster_prepared"] = row["peer_ms"] / row["prepared_ms"]
                row["times_faster_arrays"] = row["peer_ms"] / row["arrays_ms"]
    others = large(pairs)
    totals = summary(rows)
    ratios = {
        f"pairs the peer finishes, {way}, beside cascading_upper_bounds": totals[key]
        for way, key in (
            ("prepared", "finished_prepared_times_faster"),
            ("from arrays", "finished_arrays_times_faster"),
        )
        if key in totals
    }
    path = write_results("hausdorff_cuda", rows, large=others, totals=totals, tolerance=TOLERANCE, ratios=ratios)
    both = {"pair": "pair", "faces": "faces", "status": "status", "lower": "lower", "upper": "upper"}
    own = {
        "prepared ms": "prepared_ms",
        "p99": "prepared_p99_ms",
        "from arrays ms": "arrays_ms",
        "p99 ": "arrays_p99_ms",
    }
    beside = {"peer ms": "peer_ms", "faster, prepared": "times_faster_prepared", "from arrays": "times_faster_arrays"}
    memory = {"triangles": "triangles", "prepared ms": "prepared_ms", "from arrays ms": "arrays_ms"}
    memory |= {"device memory at peak MiB": "peak_MiB", "of it meshes MiB": "meshes_MiB"}
    head = machine()
    text = f"""# Certified Hausdorff distance on CUDA, tolerance {TOLERANCE:g} of A's diagonal

{head["gpu"]}, {head["processor"]}, {head["cores"]} cores, {head["date"]}; all figures in `{path.name}`.

{table(rows, both | own | beside)}

Where the peer has no value, it did not finish within {peer_limit:g} s and counts with that time in the sums over all.

{chr(10).join(f"- {key}: {value:.4g}" for key, value in totals.items())}

{table(others, both | memory)}
"""
    (RESULTS / "hausdorff_cuda.md").write_text(text)
    click.echo(text)


if __name__ == "__main__":
    main()
