#!/usr/bin/env python3
"""Write the measured tables of the documentation from benchmarks/results: the figures stand in one place.

python tools/update_tables.py            write them
python tools/update_tables.py --check    say which differ, and end with 1 if any does

A table stands between `<!-- table: NAME -->` and `<!-- end -->` in README.md or docs/*.md; NAME is one of those below.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Of the runs whose files do not hold it; benchmarks/NOTES.md names it.
REALTIME_PRIORITY = {"fps_cpu": 50, "backbone_cpu": 5, "hausdorff_cpu": 5, "process_bag": 5, "process_bag_features": 5}

Row = dict[str, Any]


def load(name: str) -> Row:
    results: Row = json.loads((RESULTS / f"{name}.json").read_text())
    return {"realtime_priority": REALTIME_PRIORITY.get(name, 0), **results}


def one(rows: Iterable[Row], **members: Any) -> Row:
    """The only row with these members."""
    found = [row for row in rows if all(row.get(key) == value for key, value in members.items())]
    if len(found) != 1:
        sys.exit(f"update_tables: {len(found)} rows of the results have {members}, where a table needs one")
    return found[0]


def ms(value: float | None) -> str:
    """Milliseconds to three digits."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def times(value: float | None) -> str:
    """How many times faster, to two digits or the whole number."""
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def command(results: Row) -> str:
    """The command that made the results, from the root of the checkout."""
    python, script, *arguments = results["command"].split(" ")
    priority = [f"chrt -f {results['realtime_priority']}"] if results["realtime_priority"] else []
    return f"`{' '.join([*priority, python, f'benchmarks/{Path(script).name}', *map(shlex.quote, arguments)])}`"


def machine(results: Row, device: str) -> str:
    """The name of what computed, the processor's cores, and the day."""
    facts = results["machine"]
    name = facts["gpu"].partition(",")[0] if device == "cuda" else facts["processor"]
    return f"{name}, {facts['cores']} cores, {facts['date']}"


def origin(results: Row, device: str) -> str:
    """Machine, day and command, and what is to be said of them."""
    return f"{machine(results, device)}: {command(results)}{remarks(results)}"


def remarks(results: Row) -> str:
    """The file's own remark (a new measurement drops it), and whether the machine had other work."""
    said = [results["remark"]] if "remark" in results else []
    load = results.get("load_before", results.get("load_average", 0.0))
    if load > results["machine"]["cores"]:
        effect = "held off by real-time priority" if results["realtime_priority"] else "kept the machine busy"
        said.append(f"other work {effect}, load {load:.1f}")
    return f" ({'; '.join(said)})" if said else ""


def markdown(headings: str, rows: Iterable[Iterable[Any]]) -> str:
    """A table; ``headings`` are divided by ``|``."""
    columns = [heading.strip() for heading in headings.split("|")]
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def fps_cpu() -> str:
    results = load("fps_cpu")
    most = max(row["threads"] for row in results["rows"])
    rows = []
    for alone in (row for row in results["rows"] if row["method"] == "lookahead" and row["threads"] == 1):
        same = {key: alone[key] for key in ("cloud", "samples", "method")}
        shared = one(results["rows"], threads=most, **same)
        peer = one(results["rows"], **(same | {"method": alone["best_peer"]}))
        faster = (times(row["times_faster_than_best_peer"]) for row in (alone, shared))
        figures = (ms(alone["median_ms"]), ms(shared["median_ms"]), peer["method"], ms(peer["median_ms"]), *faster)
        rows.append((alone["cloud"], f"{alone['samples']:,}", *figures))
    headings = f"cloud, points | samples | 1 thread, ms | {most} threads, ms | best peer | its ms | times faster"
    return f"{origin(results, 'cpu')}\n\n{markdown(f'{headings}, 1 thread | {most} threads', rows)}"


def fps_cuda() -> str:
    results = load("fps_cuda")
    rows = []
    for look in (row for row in results["rows"] if row["method"] == "lookahead"):
        same = [row for row in results["rows"] if all(row[k] == look[k] for k in ("cloud", "points", "samples"))]
        by_method = {row["method"]: row["ms"] for row in same}
        others = (ms(by_method.get(method)) for method in ("radius", "cluster", "single_block", "brute"))
        size = (f"{look['cloud']} {look['points']:,}", f"{look['samples']:,}")
        rows.append((*size, ms(look["ms"]), ms(look["graph_ms"]), *others, times(look["times_faster_than_brute"])))
    headings = "cloud, points | samples | look-ahead, ms | in a CUDA graph | radius | one cluster | one block"
    return f"{origin(results, 'cuda')}\n\n{markdown(headings + ' | brute | times faster than brute', rows)}"


def backbone_cpu() -> str:
    results = load("backbone_cpu")
    cores = results["machine"]["cores"]
    rows = []
    for cloud, config in dict.fromkeys((row["cloud"], row["config"]) for row in results["rows"]):
        by_what = {r["what"]: r["median_ms"] for r in results["rows"] if (r["cloud"], r["config"]) == (cloud, config)}
        peer = next((value for what, value in by_what.items() if what.startswith("spconv")), None)
        single = by_what["network, 1 core"]
        ours = (by_what["voxelize"], by_what[f"network, {cores} cores"], single, peer)
        rows.append((cloud, config, *map(ms, ours), times(peer and peer / single)))
    headings = f"cloud, points | network | voxelize, ms | network, {cores} cores | network, 1 core | spconv, 1 core"
    return f"{origin(results, 'cpu')}\n\n{markdown(headings + ' | times faster on 1 core', rows)}"


def backbone_cuda() -> str:
    results = load("backbone_cuda")
    table = markdown(
        "cloud, points | dtype | voxels | ours, ms | in a CUDA graph | spconv as published | spconv, norms folded | "
        "times faster than the faster",
        ((row["input"], row["dtype"], f"{row['voxels']:,}", ms(row["ours ms"]), ms(row["graph ms"]),
          ms(row.get("spconv as published ms")), ms(row.get("spconv folded ms")), times(row.get("times faster")))
         for row in results["rows"]),
    )  # fmt: skip
    return f"{origin(results, 'cuda')}\n\n{table}"


def middleware() -> str:
    results = load("middleware")
    rows = [
        (f"{row['points']:,}", row["transport"], row["reliability"].replace("_", " "),
         f"{row['received']} of {row['published']}", " / ".join(filter(None, (ms(row["p50_ms"]), ms(row["p99_ms"])))))
        for row in results["rows"]
    ]  # fmt: skip
    headings = "points of 16 bytes | transport | reliability | received | p50 / p99 ms"
    return f"{origin(results, 'cpu')}\n\n{markdown(headings, rows)}"


def hausdorff_cpu_pairs() -> str:
    """Pair by pair, those of the shared meshes."""
    results = load("hausdorff_cpu")
    table = []
    for pair in dict.fromkeys(row["pair"] for row in results["rows"] if not row["pair"].startswith("sphere")):
        at = {row["tolerance"]: row for row in results["rows"] if row["pair"] == pair}
        figures = [(ms(at[t]["median_ms"]), ms(at[t].get("peer_median_ms")) or "-") for t in (1e-4, 1e-6)]
        faces = " / ".join(f"{n:,}" for n in at[1e-4]["faces"])
        table.append((pair.replace("|", " / "), faces, *figures[0], *figures[1], ms(at[1e-8]["median_ms"])))
    headings = "pair | faces A / B | 1e-4 | published | 1e-6 | published | 1e-8"
    return f"{origin(results, 'cpu')}\n\n{markdown(headings, table)}"


def hausdorff_cpu() -> str:
    results = load("hausdorff_cpu")
    table = markdown(
        "pairs | tolerance | ours in all, ms | cascading_upper_bounds, ms | times faster | by processor time",
        ((f"{'of distance 0' if row['pairs'] == 'sub' else 'others'}: {summed(results, row)}",
          f"{row['tolerance']:g}", ms(row["ms"]), ms(row["peer_ms"]), times(row["times_faster"]),
          times(row["times_faster_by_cpu"]))
         for row in results["totals"]),
    )  # fmt: skip
    return f"{origin(results, 'cpu')}\n\n{table}"


def summed(results: Row, total: Row) -> str:
    """How many pairs are in a sum of ``hausdorff_cpu``: those of its kind that the peer was measured on."""
    pairs = [
        row["pair"]
        for row in results["rows"]
        if row["tolerance"] == total["tolerance"]
        and "peer_median_ms" in row
        and row["pair"].endswith("sub") == (total["pairs"] == "sub")
    ]
    spheres = sum(pair.startswith("sphere") for pair in pairs)
    return f"{len(pairs)}, {spheres} of them synthetic"


def hausdorff_cuda() -> str:
    results = load("hausdorff_cuda")
    table = markdown(
        "pair | triangles | prepared, ms | from arrays, ms | cascading_upper_bounds on the processor, ms | "
        "times faster, prepared",
        ((row["pair"].replace("|", " and "), " / ".join(f"{n:,}" for n in row["faces"]), ms(row["prepared_ms"]),
          ms(row["arrays_ms"]), ms(row.get("peer_ms")) or "not within 5 s" * ("peer_longer_than_ms" in row),
          times(row.get("times_faster_prepared"))) for row in results["rows"]),
    )  # fmt: skip
    return f"{origin(results, 'cuda')}\n\n{table}"


def hausdorff_service() -> str:
    results = load("hausdorff_service")
    triangles = " and ".join(f"{n:,}" for n in results["rows"][0]["triangles"])
    table = markdown(
        f"meshes of {triangles} triangles | round trip, ms | of it certification",
        ((row["what"], ms(row["round_trip_ms"]), ms(row["certification_ms"])) for row in results["rows"]),
    )
    return f"{origin(results, results['rows'][0]['backend'])}\n\n{table}"


def node_latency() -> str:
    def two(percentiles: Row | None) -> str:
        return "off" if percentiles is None else f"{ms(percentiles['50'])} / {ms(percentiles['99'])}"

    rows = []
    for path in sorted(RESULTS.glob("node_latency*.json")):
        results = load(path.stem)
        for row in results["rows"]:
            cells = (f"{row['points']:,}", f"{row['rate']:g} Hz", f"{row['answered']:,} of {row['published']:,}")
            featured = f"{row['features_received']:,}" if row["features_latency_ms"] else "off"
            latencies = (two(row["latency_ms"]), two(row["features_latency_ms"]))
            rows.append((machine(results, row["backend"]), *cells, featured, *latencies, command(results)))
    headings = (
        "where | points | rate | answered | of them with features | samples, p50 / p99 ms | features, p50 / p99 ms"
    )
    return markdown(f"{headings} | command", rows)


def frame_cuda() -> str:
    results = load("frame_cuda")
    stages = ("upload", "decode", "sample", "voxelize", "backbone", "gather", "pack", "download")
    rows = []
    for row in results["rows"]:
        spent = (ms(row["stage_ms_median"].get(stage)) for stage in stages)
        whole = (ms(row["device_ms"]), ms(row["wall_ms"]["50"]), times(row["times_faster_than_stage_by_stage"]))
        rows.append((f"{row['points']:,}", row["features"], *spent, *whole))
    headings = f"points | features | {' | '.join(stages)} | device in all, ms | frame, ms | times faster than"
    return f"{origin(results, 'cuda')}\n\n{markdown(headings + ' stage by stage', rows)}"


def process_bag() -> str:
    parts = []
    for name, what in (("process_bag", "sampling"), ("process_bag_features", "with features")):
        results = load(name)
        table = markdown(
            f"bag, {what} | clouds | one after the other | process, 1 thread | process, all threads | load",
            ((row["bag"], row["clouds"], *(row[key] for key in ("plain", "1 thread", "all threads", "load_average")))
             for row in results["rows"]),
        )  # fmt: skip
        parts.append(f"{origin(results, 'cpu')}\n\n{table}")
    return "\n\n".join(parts)


def summary() -> str:
    """The figures to show first, a line each."""
    rows = []

    def line(what: str, figure: str, results: Row, device: str) -> None:
        rows.append((what, machine(results, device), figure, command(results)))

    results = load("fps_cpu")
    both = [
        one(results["rows"], cloud="street 120,000", samples=4096, threads=threads, method="lookahead")
        for threads in (1, max(row["threads"] for row in results["rows"]))
    ]
    line(
        f"120,000 LiDAR points to 4,096 samples, 1 / {both[1]['threads']} threads",
        f"{' / '.join(ms(row['median_ms']) for row in both)} ms, "
        f"{' / '.join(times(row['times_faster_than_best_peer']) for row in both)} times faster than the best of "
        "fpsample and torch_quickfps",
        results,
        "cpu",
    )
    results = load("fps_cuda")
    both = [one(results["rows"], cloud="street", points=130_815, samples=m, method="lookahead") for m in (4096, 16_384)]
    line(
        "130,815 LiDAR points to 4,096 / 16,384 samples",
        f"{' / '.join(ms(row['ms']) for row in both)} ms, "
        f"{' / '.join(times(row['times_faster_than_brute']) for row in both)} times faster than two launches a sample",
        results,
        "cuda",
    )
    results = load("backbone_cuda")
    row = one(results["rows"], input="real 34,688", dtype="float16")
    line(
        "whole VoxelResBackBone8x, 34,688-point frame, float16",
        f"{ms(row['ours ms'])} ms, {times(row['times faster'])} times faster than spconv 2.3.8",
        results,
        "cuda",
    )
    results = load("backbone_cpu")
    light = {row["what"]: row["median_ms"] for row in results["rows"]
             if (row["cloud"], row["config"]) == ("real 34,688", "light")}  # fmt: skip
    single = light["network, 1 core"]
    line(
        "the light network, 34,688-point frame",
        f"{ms(light['network, 2 cores'])} ms; on one core {ms(single)} ms, "
        f"{times(light['spconv 2.3.8, 1 core'] / single)} times faster than spconv 2.3.8 on one thread"
        f"{remarks(results)}",
        results,
        "cpu",
    )
    results = load("hausdorff_cpu")
    row = one(results["totals"], pairs="not sub", tolerance=1e-6)
    line(
        f"Hausdorff intervals of mesh pairs ({summed(results, row)}) at 1e-6",
        f"{ms(row['ms'])} ms in all, {times(row['times_faster'])} times faster than cascading_upper_bounds 1.0.0 by "
        f"the clock, {times(row['times_faster_by_cpu'])} by processor time{remarks(results)}",
        results,
        "cpu",
    )
    results = load("hausdorff_cuda")
    totals = results["totals"]
    line(
        f"Hausdorff intervals of {len(results['rows'])} mesh pairs, 3 of them of distance 0, at 1e-6",
        f"median {ms(totals['median_of_pairs_prepared_ms'])} ms with prepared meshes, "
        f"{ms(totals['median_of_pairs_arrays_ms'])} from arrays{remarks(results)}",
        results,
        "cuda",
    )
    for name in ("node_latency", "node_latency_h200_float32"):
        results = load(name)
        (row,) = results["rows"]
        features = row["features_latency_ms"]
        featured = f", {row['features_received']:,} with features" if features else ""
        p99 = " / ".join(ms(part["99"]) for part in (row["latency_ms"], features) if part)
        line(
            f"node, publish to samples{' / features' if features else ''} received, {row['points']:,} points at "
            f"{row['rate']:g} Hz",
            f"p99 {p99} ms, {row['answered']:,} of {row['published']:,}{featured}",
            results,
            row["backend"],
        )
    return markdown("what | where | figure | reproduce with", rows)


TABLES: dict[str, Callable[[], str]] = {
    table.__name__: table
    for table in (
        summary, fps_cpu, fps_cuda, backbone_cpu, backbone_cuda, hausdorff_cpu, hausdorff_cpu_pairs, hausdorff_cuda,
        middleware, hausdorff_service,
        frame_cuda, node_latency, process_bag,
    )
}  # fmt: skip


def updated(text: str) -> str:
    """``text`` with every table between its marks as the results give it."""

    def table(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if name not in TABLES:
            sys.exit(f"update_tables: there is no table {name!r}; allowed are {', '.join(TABLES)}")
        return f"{begin}{TABLES[name]()}\n{end}"

    return PLACE.sub(table, text)


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    differing = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        if updated(text) != text:
            differing.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(updated(text))
    if check and differing:
        sys.exit(f"{', '.join(differing)}: other figures than benchmarks/results; run python tools/update_tables.py")
    print(f"tables written to {', '.join(differing)}" if differing else "the tables are as the results give them")


if __name__ == "__main__":
    main()
