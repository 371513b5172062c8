"""``radius-fps bench``: the benchmarks of the source checkout, as many as this machine can run, in one go."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from ..device import cuda_unavailable_reason
from ..errors import InputError
from .interrupts import signals_as_ctrl_c

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
FAILED = 1
GRACE = 10.0  # s for a script that was interrupted, and the nodes that it began, to end in order


def _ros_unavailable_reason() -> str | None:
    for name in ("rclpy", "radius_fps_interfaces"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: source ROS 2, or run `make setup` and use .venv"
    return None


def _nothing_needed() -> str | None:
    return None


@dataclass(frozen=True)
class Benchmark:
    """One script.

    Attributes:
        group: by which the command line chooses it.
        script: file name in the folder of benchmarks, which is also the name of its results.
        unavailable: why it cannot run here, or ``None``.
        peers: what ``pip install`` brings the other implementations that it measures beside ours.
        quick: its arguments for a short run.
    """

    group: str
    script: str
    unavailable: Callable[[], str | None] = _nothing_needed
    peers: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Stem of the script and of its result file."""
        return Path(self.script).stem


TORCH = "torch==2.13.0"
HAUSDORFF_PEER = ("cascading_upper_bounds==1.0.0",)
BENCHMARKS = (
    Benchmark(
        "fps", "fps_cpu.py", peers=("fpsample==1.0.2", TORCH, "torch_quickfps==2.1.0"),
        quick=("--runs", "1", "--samples", "256", "--threads", "1", "--cloud", "room"),
    ),
    Benchmark("fps", "fps_cuda.py", cuda_unavailable_reason, quick=("--runs", "1")),
    Benchmark(
        "backbone", "backbone_cpu.py", peers=("spconv==2.3.8", TORCH), quick=("--runs", "1", "--cloud", "street 34"),
    ),
    Benchmark(
        "backbone", "backbone_cuda.py", cuda_unavailable_reason, peers=("spconv-cu126==2.3.8", TORCH),
        quick=("--runs", "1"),
    ),
    Benchmark("hausdorff", "hausdorff_cpu.py", peers=HAUSDORFF_PEER, quick=("--runs", "1", "--pair", "coarse")),
    Benchmark(
        "hausdorff", "hausdorff_cuda.py", cuda_unavailable_reason, peers=HAUSDORFF_PEER,
        quick=("--runs", "1", "--peer-runs", "1"),
    ),
    Benchmark("node", "clouds.py", quick=("--runs", "10")),
    Benchmark("node", "process_bag.py", quick=("--runs", "1", "--frames", "5")),
    Benchmark("node", "frame_cuda.py", cuda_unavailable_reason, quick=("--runs", "5", "--points", "20000")),
    Benchmark("node", "node_latency.py", _ros_unavailable_reason, quick=("--seconds", "2", "--points", "20000")),
    Benchmark(
        "node", "middleware.py", _ros_unavailable_reason,
        quick=("--clouds", "3", "--points", "100", "--reliability", "reliable"),
    ),
    Benchmark("node", "hausdorff_service.py", _ros_unavailable_reason, quick=("--runs", "1", "--rings", "40")),
)  # fmt: skip
GROUPS = tuple(dict.fromkeys(benchmark.group for benchmark in BENCHMARKS))
NAMES = tuple(benchmark.name for benchmark in BENCHMARKS)


@click.command(epilog="Example: radius-fps bench fps --peers --json fps.json")
@click.argument("which", nargs=-1, type=click.Choice(GROUPS + NAMES), metavar=f"[{'|'.join(GROUPS)}|NAME]...")
@click.option("--peers", is_flag=True, help="Measure other implementations beside ours; says which are missing.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all results to this file.")
@click.option("--quick", is_flag=True, help="A short run on little data: shows that all works, measures little.")
@click.option("--record", is_flag=True, help="Keep the results in benchmarks/results, the README's source.")
def command(which: tuple[str, ...], peers: bool, json_path: Path | None, quick: bool, record: bool) -> None:
    """Run groups of benchmarks, single ones by NAME, or all, and print how many times faster than their peers ours are.

    They are scripts of the source checkout, and their results are kept in its build/benchmarks. What needs a CUDA
    device or ROS 2 is left out, with the reason, where that is missing. Real clouds and meshes are read from the folder
    named by RADIUS_FPS_DATA; without it generated ones run.

    Exit code: 0 all that can run here ran; 1 a benchmark failed; 2 bad input; 130 interrupted, also by SIGTERM.
    """
    if not FOLDER.is_dir():
        raise InputError("the benchmarks come with the source checkout, not with the installed package: run it there")
    if record and quick:
        raise InputError("a quick run is no measurement to record; leave out --quick or --record")
    if json_path is not None and not json_path.resolve().parent.is_dir():
        raise InputError(f"the folder of {json_path} does not exist")
    chosen = [b for b in BENCHMARKS if not which or b.group in which or b.name in which]
    installed = _peers_of(chosen) if peers else {}
    outcomes: dict[str, dict[str, Any]] = {}
    results = FOLDER / "results" if record else FOLDER.parent / "build" / "benchmarks"
    _require_writable(results)
    with signals_as_ctrl_c():
        for benchmark in chosen:
            click.echo(f"\n== {benchmark.name}")
            outcomes[benchmark.name] = _outcome(benchmark, results, peers, quick)
    _print_summary(outcomes, installed)
    if json_path is not None:
        _write(json_path, {"peers": installed, "benchmarks": outcomes})
    if any(outcome["status"] == "failed" for outcome in outcomes.values()):
        sys.exit(FAILED)


def _peers_of(benchmarks: list[Benchmark]) -> dict[str, str | None]:
    """The version that is installed, or ``None``, of every peer of the benchmarks that can run here."""
    wanted = [peer for benchmark in benchmarks if benchmark.unavailable() is None for peer in benchmark.peers]
    found: dict[str, str | None] = {}
    for requirement in dict.fromkeys(wanted):
        try:
            found[requirement] = metadata.version(requirement.partition("==")[0])
        except metadata.PackageNotFoundError:
            found[requirement] = None
    return found


def _require_writable(folder: Path) -> None:
    """Before minutes of measuring, not after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"the results cannot be written to {folder}: {error.strerror or error}") from error


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Exit code of a script; when we are interrupted, it and all that it began are ended first.

    It has a process group of its own: a Ctrl-C in the terminal would reach it beside the one that is passed on, and
    break into its ending.
    """
    process = subprocess.Popen(command, cwd=FOLDER.parent, env=environment, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _outcome(benchmark: Benchmark, results: Path, peers: bool, quick: bool) -> dict[str, Any]:
    """Run one script with its output shown: its status, and the reason or the results."""
    reason = benchmark.unavailable()
    if reason is not None:
        click.echo(f"left out: {reason}")
        return {"status": "left out", "reason": reason}
    script = [str(FOLDER.relative_to(FOLDER.parent) / benchmark.script), *(benchmark.quick if quick else ())]
    environment = {"RADIUS_FPS_RESULTS": str(results), "RADIUS_FPS_PEERS": str(int(peers))}
    if data := os.environ.get("RADIUS_FPS_DATA"):
        environment["RADIUS_FPS_DATA"] = os.path.abspath(data)  # the script runs in another folder
    code = _run([sys.executable, *script], os.environ | environment)
    if code != 0:
        return {"status": "failed", "reason": f"exit code {code}"}
    return {"status": "ran", "results": json.loads((results / f"{benchmark.name}.json").read_text())}


def _print_summary(outcomes: dict[str, dict[str, Any]], installed: dict[str, str | None]) -> None:
    click.echo("\n== summary")
    for name, outcome in outcomes.items():
        click.echo(f"{name}: {outcome['status']}" + (f", {outcome['reason']}" if "reason" in outcome else ""))
        for what, ratio in outcome.get("results", {}).get("ratios", {}).items():
            click.echo(f"  {ratio:8.2f} times faster: {what}")
    missing = [requirement for requirement, version in installed.items() if version is None]
    if missing:
        click.echo(f"peers that are missing: pip install {' '.join(missing)}")


def _write(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    click.echo(f"written to {path}")
