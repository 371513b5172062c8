"""``radius-fps bench`` on the real scripts, and how it answers where they are missing or fail."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from radius_fps_ros.cli import bench
from radius_fps_ros.device import cuda_unavailable_reason
from radius_fps_ros.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
HELPERS = {"machine.py", "soak.py"}  # the soak run is a test of endurance, with a target of its own in the Makefile


def run(*arguments):
    command = [sys.executable, "-c", "from radius_fps_ros.cli import main; main()", "bench", *arguments]
    own_domain = {"ROS_DOMAIN_ID": str(1 + os.getpid() % 100)}
    return subprocess.run(command, env=os.environ | own_domain, capture_output=True, text=True)


def recorded():
    return {file.name: file.read_bytes() for file in (ROOT / "benchmarks" / "results").iterdir()}


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A folder of benchmarks of our own: one that writes results, one that fails, one that cannot run here."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "machine.py").write_text((ROOT / "benchmarks" / "machine.py").read_text())
    writes = "from machine import write_results; write_results('good', [], ratios={'theirs': 2.5})"
    (folder / "good.py").write_text(writes)
    (folder / "bad.py").write_text("raise SystemExit('no')")
    monkeypatch.setattr(bench, "FOLDER", folder)

    def choose(*names, **options):
        chosen = tuple(bench.Benchmark("fps", f"{name}.py", **options) for name in names)
        monkeypatch.setattr(bench, "BENCHMARKS", chosen)

    return choose


def test_every_script_is_in_the_table():
    files = {file.name for file in (ROOT / "benchmarks").glob("*.py")}
    assert {benchmark.script for benchmark in bench.BENCHMARKS} == files - HELPERS


@pytest.mark.slow
def test_a_quick_run_of_the_real_scripts(tmp_path):
    before, report = recorded(), tmp_path / "bench.json"
    done = run("fps", "backbone", "hausdorff", "--quick", "--peers", "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(report.read_text())["benchmarks"]
    for name in ("fps_cpu", "backbone_cpu", "hausdorff_cpu"):
        assert outcomes[name]["status"] == "ran"
        assert outcomes[name]["results"]["rows"]
    assert {row["exact"] for row in outcomes["fps_cpu"]["results"]["rows"] if not row["h"]} == {"exact"}
    for name in ("fps_cuda", "backbone_cuda", "hausdorff_cuda"):
        assert outcomes[name]["status"] == ("ran" if cuda_unavailable_reason() is None else "left out")
    for module, requirement in (("fpsample", "fpsample==1.0.2"), ("spconv", "spconv==2.3.8")):
        missing = importlib.util.find_spec(module) is None
        assert (requirement in done.stdout.partition("peers that are missing: pip install")[2]) == missing
    assert recorded() == before


@pytest.mark.slow
@pytest.mark.ros
def test_a_quick_run_of_single_ones_by_name(tmp_path):
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    report = tmp_path / "node.json"
    done = run("node_latency", "clouds", "--quick", "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(report.read_text())["benchmarks"]
    assert {name: outcome["status"] for name, outcome in outcomes.items()} == {"clouds": "ran", "node_latency": "ran"}


def test_ratios_are_printed_and_a_failure_does_not_stop_the_others(scripts, tmp_path):
    scripts("bad", "good")
    done = CliRunner().invoke(bench.command, ["fps", "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 1
    assert "bad: failed, exit code 1\ngood: ran\n      2.50 times faster: theirs\n" in done.stdout
    outcomes = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert outcomes["good"]["results"]["ratios"] == {"theirs": 2.5}
    assert outcomes["bad"]["status"] == "failed"


def test_what_cannot_run_here_is_left_out_with_the_reason(scripts):
    scripts("bad", unavailable=lambda: "there is no such device", peers=("nothing==1.0",))
    done = CliRunner().invoke(bench.command, ["--peers"])
    assert done.exit_code == 0
    assert "bad: left out, there is no such device" in done.stdout
    assert "pip install" not in done.stdout


def test_missing_peers_are_named_with_the_command_that_installs_them(scripts):
    scripts("good", peers=("no_such_peer==1.0", "pytest==1.0"))
    done = CliRunner().invoke(bench.command, ["--peers"])
    assert done.stdout.endswith("peers that are missing: pip install no_such_peer==1.0\n")


def test_results_are_recorded_only_when_asked(scripts, tmp_path):
    scripts("good")
    recorded = tmp_path / "benchmarks" / "results" / "good.json"
    CliRunner().invoke(bench.command, [])
    assert not recorded.exists()
    CliRunner().invoke(bench.command, ["--record"])
    assert json.loads(recorded.read_text())["ratios"] == {"theirs": 2.5}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--quick", "--record"], "a quick run is no measurement to record; leave out --quick or --record"),
        (["--json", "/no/such/folder/out.json"], "the folder of /no/such/folder/out.json does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        CliRunner().invoke(bench.command, arguments, catch_exceptions=False)


def test_an_installed_package_has_no_benchmarks(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "nothing")
    with pytest.raises(InputError, match="come with the source checkout, not with the installed package"):
        CliRunner().invoke(bench.command, [], catch_exceptions=False)
