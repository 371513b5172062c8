"""The certified Hausdorff distance on the CPU beside cascading_upper_bounds (SGP 2024), in one run and in turn.

python benchmarks/hausdorff_cpu.py

The peer comes with pip install cascading_upper_bounds==1.0.0 and is left out where missing. Mesh pairs with published
intervals are read from the folder named by RADIUS_FPS_DATA; without it only generated spheres run. Building the
search structures counts; compiling does not.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from machine import import_peer, write_results
from real_data import MESHES, data_folder
from rich.console import Console
from rich.table import Table

from radius_fps_ros.hausdorff import certify_hausdorff, prepare_mesh, warm_up

Mesh = tuple[np.ndarray, np.ndarray]
TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)
LONGEST_PEER = 60.0  # seconds a single run of the peer may take; it is not asked for what would take longer


@dataclass
class Pair:
    name: str
    a: Mesh
    b: Mesh
    published: tuple[float, float] | None = None

    @property
    def near_zero(self) -> bool:
        """A mesh against its own subdivision."""
        return self.name.endswith("sub")


def published_pairs() -> list[Pair]:
    """The pairs of the folder of real data, none where none is named."""
    data = data_folder((MESHES,))
    if data is None:
        return []
    reference = data / MESHES

    def load(name: str) -> Mesh:
        with np.load(reference.with_name(name)) as arrays:
            return np.ascontiguousarray(arrays["V"], np.float64), np.ascontiguousarray(arrays["F"], np.int32)

    entries = json.loads(reference.read_text())
    data_folder(sorted({f"meshes/{entry[side]}" for entry in entries for side in "AB"}))
    return [
        Pair(e["id"], load(e["A"]), load(e["B"]), (e["directed_A_to_B"]["lower"], e["directed_A_to_B"]["upper"]))
        for e in entries
    ]


def spheres() -> list[Pair]:
    """An octahedron subdivided six times (32,768 faces): against a coarser one, a noisy copy and its subdivision."""
    v = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)
    f = np.array([[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]])
    levels = [(v, f)]
    for _ in range(6):
        v, f = subdivided(v, f)
        v = v / np.linalg.norm(v, axis=1, keepdims=True)
        levels.append((v, f))
    fine = np.ascontiguousarray(v), np.ascontiguousarray(f, np.int32)
    noise = np.random.default_rng(0).normal(scale=1e-4, size=v.shape)
    coarse_v, coarse_f = levels[4]
    sub_v, sub_f = subdivided(*fine)
    return [
        Pair("sphere|coarse", fine, (np.ascontiguousarray(coarse_v), np.ascontiguousarray(coarse_f, np.int32))),
        Pair("sphere|noise", fine, (v + noise, fine[1])),
        Pair("sphere|sub", fine, (sub_v, np.ascontiguousarray(sub_f, np.int32))),
    ]


def subdivided(v: np.ndarray, f: np.ndarray) -> Mesh:
    edges = np.sort(f[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    unique, index = np.unique(edges, axis=0, return_inverse=True)
    (a, b, c), (ab, bc, ca) = f.T, index.reshape(-1, 3).T + len(v)
    faces = np.concatenate([np.stack(t, axis=1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
    return np.concatenate([v, 0.5 * (v[unique[:, 0]] + v[unique[:, 1]])]), faces


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall-clock and processor milliseconds, and what the call returned."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu), result


def measure(pair: Pair, tolerance: float, peer: Any, runs: int) -> dict[str, Any]:
    def ours() -> Any:
        return certify_hausdorff(pair.a, pair.b, tolerance=tolerance, backend="cpu")

    def theirs() -> Any:
        return peer(*pair.a, *pair.b, tolerance, 1_000_000, True)

    # halving the tolerance of a pair at distance 0 doubles the peer's work: 1e-6 would take minutes to hours
    ask_peer = peer is not None and not (pair.near_zero and tolerance < 1e-4)
    own, other = [], []
    for i in range(runs):
        own.append(timed(ours))
        if ask_peer and (i == 0 or other[0][0] * runs < 1e3 * LONGEST_PEER):
            other.append(timed(theirs))
    certificate = own[0][2]
    row = {
        "pair": pair.name,
        "faces": [len(pair.a[1]), len(pair.b[1])],
        "tolerance": tolerance,
        "status": str(certificate.status),
        "lower": certificate.lower,
        "upper": certificate.upper,
        "relative_gap": certificate.relative_gap,
        "triangles": certificate.triangles,
        "median_ms": statistics.median(t for t, _, _ in own),
        "median_cpu_ms": statistics.median(t for _, t, _ in own),
        "runs": len(own),
    }
    if pair.published is not None:
        row["meets_published"] = certificate.lower <= pair.published[1] and certificate.upper >= pair.published[0]
    if other:
        lower, upper = other[0][2][:2]
        row |= {
            "peer_lower": lower,
            "peer_upper": upper,
            "peer_median_ms": statistics.median(t for t, _, _ in other),
            "peer_median_cpu_ms": statistics.median(t for _, t, _ in other),
            "peer_runs": len(other),
            "meets_peer": certificate.lower <= upper and certificate.upper >= lower,
        }
        row["times_faster"] = row["peer_median_ms"] / row["median_ms"]
        row["times_faster_by_cpu"] = row["peer_median_cpu_ms"] / row["median_cpu_ms"]
    return row


def more(pair: Pair, runs: int) -> list[dict[str, Any]]:
    """Symmetric, against a prepared map, and with 64 MB."""
    target = prepare_mesh(pair.b)
    calls = {
        "symmetric": lambda: certify_hausdorff(pair.a, pair.b, symmetric=True, backend="cpu"),
        "B prepared": lambda: certify_hausdorff(pair.a, target, backend="cpu"),
        "64 MB": lambda: certify_hausdorff(pair.a, pair.b, memory_limit=64_000_000, backend="cpu"),
    }
    rows = []
    for what, call in calls.items():
        call()
        results = [timed(call) for _ in range(runs)]
        c = results[0][2]
        rows.append(
            {
                "pair": pair.name,
                "what": what,
                "status": str(c.status),
                "lower": c.lower,
                "upper": c.upper,
                "median_ms": statistics.median(t for t, _, _ in results),
                "median_cpu_ms": statistics.median(t for _, t, _ in results),
            }
        )
    return rows


def show(rows: list[dict[str, Any]], title: str, columns: dict[str, str]) -> None:
    table = Table(title=title)
    for heading in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        values = (row.get(key) for key in columns.values())
        table.add_row(*("" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    Console(width=150).print(table)


@click.command()
@click.option("--runs", default=9, show_default=True)
@click.option("--pair", "only", help="Only pairs whose name contains this.")
def main(runs: int, only: str | None) -> None:
    try:
        peer = import_peer("cascading_upper_bounds").pompeiu_hausdorff
    except ImportError as error:
        peer = None
        click.echo(f"the peer is not measured: {error}")
    pairs = [*published_pairs(), *spheres()]
    pairs = [pair for pair in pairs if only is None or only in pair.name]
    load = os.getloadavg()[0]
    warm_up("cpu")
    rows = [measure(pair, tolerance, peer, runs) for pair in pairs for tolerance in TOLERANCES]
    show(
        rows,
        "directed, A to B",
        {"pair": "pair", "tolerance": "tolerance", "status": "status", "lower": "lower", "upper": "upper"}
        | {"ms": "median_ms", "CPU ms": "median_cpu_ms", "peer ms": "peer_median_ms"}
        | {"peer CPU ms": "peer_median_cpu_ms", "faster": "times_faster", "by CPU": "times_faster_by_cpu"},
    )
    totals = []
    for tolerance in TOLERANCES:
        at = [r for r in rows if r["tolerance"] == tolerance and "peer_median_ms" in r]
        for name, chosen in (
            ("not sub", lambda r: not r["pair"].endswith("sub")),
            ("sub", lambda r: r["pair"].endswith("sub")),
        ):
            some = [r for r in at if chosen(r)]
            if some:
                ours, theirs = (sum(r[k] for r in some) for k in ("median_ms", "peer_median_ms"))
                ours_cpu, theirs_cpu = (sum(r[k] for r in some) for k in ("median_cpu_ms", "peer_median_cpu_ms"))
                totals.append(
                    {
                        "pairs": name,
                        "tolerance": tolerance,
                        "ms": ours,
                        "peer_ms": theirs,
                        "times_faster": theirs / ours,
                    }
                    | {
                        "times_faster_by_cpu": theirs_cpu / ours_cpu,
                        "slowest_ratio": min(r["times_faster"] for r in some),
                    }
                )
    show(totals, "sums", {key: key for key in totals[0]} if totals else {})
    others = [row for pair in pairs for row in more(pair, max(1, runs // 2))]
    show(others, "more, at 1e-6", {key: key for key in others[0]})
    ratios = {
        f"{'near-zero' if t['pairs'] == 'sub' else 'other'} pairs at {t['tolerance']:g}, beside cascading_upper_bounds":
        t["times_faster"]
        for t in totals
    }  # fmt: skip
    path = write_results("hausdorff_cpu", rows, load_before=load, totals=totals, more=others, ratios=ratios)
    click.echo(f"written to {path}")


if __name__ == "__main__":
    main()
