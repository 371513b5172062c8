"""``radius-fps bench`` on the real scripts, and how it answers where they are missing or fail."""

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from radius_fps_ros.cli import bench
from radius_fps_ros.device import cuda_unavailable_reason
from radius_fps_ros.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
HELPERS = {
    "machine.py",
    "real_data.py",
    "soak.py",
}  # the soak run is a test of endurance, with a target of its own in the Makefile


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


def test_the_readme_names_the_peers_that_need_no_device():
    peers = {peer for benchmark in bench.BENCHMARKS if "cuda" not in benchmark.name for peer in benchmark.peers}
    (line,) = re.findall(r"`\.venv/bin/pip install ([^`]+)`", (ROOT / "README.md").read_text())
    assert set(line.split()) == peers


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


SCAN, BAG = "the scan nuscenes_top_34688x5_f32.bin", "a folder with a ROS 2 bag and its metadata.yaml"
NEEDED = {
    ("fps_cpu", "clouds"): f"{SCAN}, the scan kitti_000008_17238x4_f32.bin, {BAG}",
    ("backbone_cpu", "clouds"): SCAN,
    ("hausdorff_cpu", "published_pairs"): "meshes/reference.json with the meshes that it names",
    ("process_bag", "real_bags"): BAG,
}


@pytest.mark.parametrize(("script", "function"), NEEDED)
@pytest.mark.parametrize("exists", [True, False])
def test_what_the_folder_of_real_data_must_hold_is_said(script, function, exists, tmp_path, monkeypatch):
    folder = tmp_path if exists else tmp_path / "nothing"
    monkeypatch.setenv("RADIUS_FPS_DATA", str(folder))
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    state = "does not" if exists else "is no folder"
    sentence = f"the folder of real data (RADIUS_FPS_DATA) must hold {NEEDED[script, function]}; {folder} {state}"
    with pytest.raises(SystemExit) as end:
        getattr(importlib.import_module(script), function)()
    assert end.value.code == sentence


def test_a_mesh_that_the_reference_names_and_the_folder_has_not_is_said(tmp_path, monkeypatch):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "reference.json").write_text(json.dumps([{"A": "a.npz", "B": "b.npz"}]))
    monkeypatch.setenv("RADIUS_FPS_DATA", str(tmp_path))
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    with pytest.raises(SystemExit, match=r"must hold meshes/a.npz, meshes/b.npz; \S+ does not$"):
        importlib.import_module("hausdorff_cpu").published_pairs()


def test_a_script_without_its_real_data_ends_with_the_sentence_alone(monkeypatch):
    monkeypatch.setenv("RADIUS_FPS_DATA", "no/such/folder")
    done = run("backbone", "--quick")
    assert done.returncode == 1
    folder = Path("no/such/folder").resolve()
    sentence = f"the folder of real data (RADIUS_FPS_DATA) must hold {SCAN}; {folder} is no folder\n"
    assert done.stderr == sentence
    assert "backbone_cpu: failed, exit code 1\n" in done.stdout


def test_results_that_cannot_be_written_are_said_before_anything_runs(scripts, tmp_path):
    scripts("good")
    (tmp_path / "build").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"the results cannot be written to \S+/build/benchmarks: Not a directory"):
        CliRunner().invoke(bench.command, [], catch_exceptions=False)
    assert "==" not in (tmp_path / "build").read_text()


# A test run in the background ignores SIGINT, and its children with it.
LONG = """
import signal, subprocess, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
child = subprocess.Popen(["sleep", "600"])
Path(PIDS).write_text(f"{child.pid}")
try:
    time.sleep(600)
except KeyboardInterrupt:
    Path(ENDED).touch()
"""
BENCH = """
import signal, sys
from pathlib import Path
from radius_fps_ros.cli import bench, main
signal.signal(signal.SIGINT, signal.default_int_handler)
bench.FOLDER = Path(sys.argv.pop(1))
bench.BENCHMARKS = (bench.Benchmark("fps", "long.py"),)
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_script_and_what_it_began(number, tmp_path):
    folder, pids, ended = tmp_path / "benchmarks", tmp_path / "pids", tmp_path / "ended"
    folder.mkdir()
    script = LONG.replace("PIDS", repr(str(pids))).replace("ENDED", repr(str(ended)))
    (folder / "long.py").write_text(script)
    command = [sys.executable, "-c", BENCH, str(folder), "bench"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: pids.exists() and pids.read_text())
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.strip() == "radius-fps: interrupted"
    assert ended.exists()
    wait_until(lambda: not runs(int(pids.read_text())))


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(pid):
    """Whether a process is there and is more than an entry that nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
