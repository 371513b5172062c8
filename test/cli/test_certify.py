"""``radius-fps certify`` on small mesh files: output, exit codes, the picture, each kind of bad input."""

import io
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import trimesh
from PIL import Image

from radius_fps_ros import cli
from radius_fps_ros.hausdorff import Status


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line inside this process: (exit code, stdout, stderr)."""
    monkeypatch.setitem(cli.COMMANDS, "certify", "")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["radius-fps", "certify", "--backend", "cpu", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def spheres(tmp_path):
    """A unit sphere and one moved by (0.25, 0, 0): paths."""
    mesh = trimesh.creation.icosphere(3)
    mesh.export(tmp_path / "a.ply")
    mesh.apply_translation((0.25, 0, 0))
    mesh.export(tmp_path / "b.off", digits=12)
    return tmp_path / "a.ply", tmp_path / "b.off"


def test_the_interval_is_printed(spheres, call):
    code, out, err = call(*spheres)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    lower, upper = (float(x) for x in lines[0].removeprefix("distance in [").split("]")[0].split(", "))
    assert 0.24 < lower <= upper < 0.2501
    assert upper - lower < 1e-5
    assert lines[0].endswith("CONVERGED")
    assert lines[2].startswith("witness on A: (")
    assert lines[3].endswith(" ms, cpu")


def test_json(spheres, call):
    code, out, err = call(*spheres, "--json", "--symmetric", "--absolute-tolerance", "1e-3")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["status"] == "CONVERGED"
    assert report["symmetric"] is True
    assert 0 <= report["upper"] - report["lower"] <= 1e-3
    assert report["a"].endswith("a.ply")
    assert len(report["witness_a"]) == 3


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        (("--threshold", "0.3"), 0, "PROVEN_BELOW"),
        (("--threshold", "0.1"), 1, "PROVEN_ABOVE"),
        (("--time-limit", "1e-9"), 3, "TIME_LIMIT"),
        (("--memory-limit", "0.001"), 3, "MEMORY_LIMIT"),
        (("--tolerance", "1e-17"), 3, "PRECISION_LIMIT"),
    ],
)
def test_exit_codes(options, code, status, spheres, call):
    got, out, err = call(*spheres, *options)
    assert (got, err) == (code, "")
    assert status in out
    threshold = float(options[1]) if options[0] == "--threshold" else None
    assert Status(status).meaning(threshold) in out


def test_every_status_has_a_meaning_of_its_own():
    assert len({status.meaning(0.5) for status in Status}) == len(Status)
    assert Status.PROVEN_ABOVE.meaning(0.05) == "the distance is proven to be above the threshold 0.05"
    assert Status.PROVEN_BELOW.meaning() == "the distance is proven to be at most the threshold"


def test_picture(spheres, call, tmp_path):
    code, _, _ = call(*spheres, "--picture", tmp_path / "worst.png")
    assert code == 0
    with Image.open(tmp_path / "worst.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert pixels.shape[1] > pixels.shape[0] > 300
    # both meshes are seen: more blue than red, more red than blue; and the black segment
    assert (pixels[..., 2] - pixels[..., 0] > 40).sum() > 500
    assert (pixels[..., 0] - pixels[..., 2] > 40).sum() > 500
    assert (pixels.max(axis=2) < 60).sum() > 50


def test_progress_line_on_a_terminal(spheres, call, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("radius_fps_ros.hausdorff.goal.PROGRESS_INTERVAL", 0.0)
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")  # on a dumb one nothing can be drawn over
    monkeypatch.setattr(sys, "stderr", terminal)
    code, out, _ = call(*spheres)
    assert code == 0
    assert "CONVERGED" in out
    assert "triangles open" in terminal.getvalue()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--tolerance", "0"), "tolerance must be a finite number above 0, not 0.0"),
        (("--absolute-tolerance", "-1"), "absolute_tolerance must be a finite number above 0, not -1.0"),
        (("--threshold", "0"), "threshold must be a finite number above 0, not 0.0"),
        (("--time-limit", "0"), "time_limit must be a finite number above 0, not 0.0"),
        (("--memory-limit", "0"), "--memory-limit must be a finite number of MB, at least 1e-6 (a byte), not 0\n"),
        (("--memory-limit", "-1"), "--memory-limit must be a finite number of MB, at least 1e-6 (a byte), not -1\n"),
        (("--memory-limit", "1e-9"), "--memory-limit must be a finite number of MB, at least 1e-6 (a byte), not 1e-09"),
        (("--memory-limit", "1e305"), "--memory-limit must be a finite number of MB"),
        (("--picture", "/nowhere/at/all.png"), "/nowhere/at/all.png cannot be written: there is no folder /nowhere/at"),
        (("--picture", "worst.docx"), "worst.docx has the suffix '.docx'; a picture can be "),
    ],
)
def test_bad_options_are_one_sentence(options, sentence, spheres, call):
    code, _, err = call(*spheres, *options)
    assert code == 2
    assert err.startswith(f"radius-fps: {sentence}")
    assert err.count("\n") == 1


def test_bad_files_are_one_sentence(spheres, call, tmp_path):
    (tmp_path / "text.ply").write_text("not a mesh\n")
    (tmp_path / "zero.ply").write_bytes(b"")
    for name, sentence in (
        ("missing.ply", "no such file"),
        ("text.ply", "cannot be read as a .ply mesh"),
        ("zero.ply", "is empty (0 bytes)"),
        (".", "is not a file"),
    ):
        code, out, err = call(spheres[0], tmp_path / name)
        assert (code, out) == (2, "")
        assert err.startswith("radius-fps: ")
        assert sentence in err
        assert err.count("\n") == 1


def test_unknown_option_and_missing_argument(spheres, call):
    assert call(spheres[0])[0] == 2
    assert call(*spheres, "--frobnicate")[0] == 2


def test_help_shows_an_example(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "Example: radius-fps certify scan.ply map.ply" in out
    assert "Exit code: 0" in out
    assert "130 interrupted by Ctrl-C or SIGTERM" in " ".join(out.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_search_whose_kernels_run_long(number, tmp_path):
    outer = trimesh.creation.icosphere(6)
    outer.export(tmp_path / "outer.ply")
    trimesh.creation.icosphere(6, radius=0.01).export(tmp_path / "inner.ply")  # nearly equally near from everywhere
    program = """
import radius_fps_ros.cli as cli, radius_fps_ros.cli.certify as certify, sys
search = certify.certify_hausdorff
def told(*meshes, **options):
    print("searching", flush=True)
    return search(*meshes, **options)
certify.certify_hausdorff = told
sys.argv[1:1] = ["certify", "--backend", "cpu"]
cli.main()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "outer.ply"), str(tmp_path / "inner.ply")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"searching\n"
            time.sleep(1.0)
            process.send_signal(number)
            begin = time.monotonic()
            _, err = process.communicate(timeout=60)
            assert time.monotonic() - begin < 1.0
        finally:
            process.kill()
    assert process.returncode == 130
    assert err.strip() == b"radius-fps: interrupted"
