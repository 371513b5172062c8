"""``radius-fps sample`` as users run it: a process of its own, files in and out."""

import json
import subprocess
import sys

import numpy as np
import pytest

from radius_fps_ros.cli import main
from radius_fps_ros.clouds import read_cloud, write_cloud
from radius_fps_ros.clouds.synthetic import StreetScene
from radius_fps_ros.sampling.reference import reference_sampling


def run(*arguments):
    program = "import sys; from radius_fps_ros.cli import main; sys.argv[0] = 'radius-fps'; main()"
    words = [str(argument) for argument in arguments]
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line inside this process, which spares the start of Python: (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["radius-fps", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def refusal(call):
    """The one line on stderr with which the command ends; exit code 2, nothing on stdout."""

    def refusal(*arguments):
        code, out, err = call(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("radius-fps: ")
        assert err.count("\n") == 1
        return err

    return refusal


@pytest.fixture(scope="module")
def scan():
    return StreetScene(azimuth_steps=64).frame(0)


@pytest.fixture
def pcd(tmp_path, scan):
    write_cloud(tmp_path / "my scan.pcd", scan)
    return tmp_path / "my scan.pcd"


def test_prints_a_summary(pcd, scan):
    done = run("sample", pcd, "--n", 100, "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"my scan.pcd: {len(scan):,} points with x y z intensity ring time" in done.stdout
    assert "100 samples, coverage radius" in done.stdout
    assert " ms (" in done.stdout
    assert "written" not in done.stdout
    assert "\n1 sample, coverage radius" in run("sample", pcd, "--n", 1, "--backend", "cpu").stdout


def test_pcd_in_ply_out_with_all_fields_and_json(pcd, scan, tmp_path):
    output = tmp_path / "out.ply"
    options = (
        "--n",
        100,
        "-o",
        output,
        "--start",
        7,
        "--method",
        "brute",
        "--backend",
        "cpu",
        "--threads",
        1,
        "--json",
    )
    done = run("sample", pcd, *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    xyz = np.column_stack([scan[name] for name in "xyz"])
    indices, squared = reference_sampling(xyz, 100, 7)
    assert read_cloud(output).records.tobytes() == scan[indices].tobytes()
    assert report["points"] == report["finite_points"] == len(scan)
    assert report["samples"] == report["n_requested"] == 100
    assert report["fields"] == ["x", "y", "z", "intensity", "ring", "time"]
    assert report["start"] == 7
    assert report["method"] == "brute"
    assert report["backend"] == "cpu"
    assert report["threads"] == 1
    assert report["output"] == str(output)
    assert report["milliseconds"] > 0
    assert report["coverage_radius"] == pytest.approx(float(np.sqrt(squared)))


def test_points_that_are_not_finite_are_left_out(call, tmp_path):
    points = np.arange(60, dtype=np.float32).reshape(20, 3)
    points[:3] = np.nan
    np.save(tmp_path / "a.npy", points)
    code, out, _ = call("sample", tmp_path / "a.npy", "--n", 5, "-o", tmp_path / "b.xyz", "--backend", "cpu", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["finite_points"] == 17
    assert report["start"] == 3
    assert read_cloud(tmp_path / "b.xyz").xyz.tolist()[:2] == [[9, 10, 11], [57, 58, 59]]


def test_says_so_when_fewer_distinct_points_exist(call, tmp_path):
    np.save(tmp_path / "a.npy", np.repeat(np.eye(3, dtype=np.float32), 4, axis=0))
    code, out, _ = call("sample", tmp_path / "a.npy", "--n", 9, "--backend", "cpu")
    assert code == 0
    assert "3 samples, coverage radius 0," in out
    assert "fewer than the 9 asked for: no more distinct points exist" in out


def test_json_has_no_infinity(call, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 0, 0], [3e38, 0, 0], [-3e38, 0, 0]], np.float32))
    code, out, _ = call("sample", tmp_path / "a.npy", "--n", 1, "--backend", "cpu", "--json")
    assert code == 0
    assert "Infinity" not in out
    assert json.loads(out)["coverage_radius"] is None


def test_help_has_an_example(call):
    code, out, _ = call("sample", "--help")
    assert code == 0
    assert "Example: radius-fps sample scan.pcd --n 4096 -o sampled.ply" in out


def test_more_samples_than_points_gives_all_distinct_points(call, pcd, scan):
    code, out, _ = call("sample", pcd, "--n", 10**7, "--backend", "cpu")
    assert code == 0
    assert f"{len(np.unique(scan[['x', 'y', 'z']])):,} samples" in out
    assert "fewer than the 10,000,000 asked for" in out


class TestBadInput:
    """Each ends with one sentence and exit code 2."""

    def test_missing_file(self, refusal, tmp_path):
        assert "gone.pcd cannot be read: No such file or directory" in refusal(
            "sample", tmp_path / "gone.pcd", "--n", 9
        )

    def test_text_named_ply(self, refusal, tmp_path):
        (tmp_path / "a.ply").write_text("1 2 3\n")
        assert "a.ply is not a readable PLY file" in refusal("sample", tmp_path / "a.ply", "--n", 1)

    def test_zero_samples(self, refusal, pcd):
        assert "at least 1, not 0" in refusal("sample", pcd, "--n", 0, "--backend", "cpu")

    def test_start_outside(self, refusal, pcd):
        assert "start must be" in refusal("sample", pcd, "--n", 3, "--start", 10**7, "--backend", "cpu")

    def test_no_points(self, refusal, tmp_path, scan):
        write_cloud(tmp_path / "a.pcd", scan[:0])
        assert "a.pcd has no points" in refusal("sample", tmp_path / "a.pcd", "--n", 1)

    def test_nothing_finite(self, refusal, tmp_path):
        np.save(tmp_path / "a.npy", np.full((4, 3), np.nan))
        assert "none of the 4 points in" in refusal("sample", tmp_path / "a.npy", "--n", 1)

    def test_output_that_cannot_be_written(self, refusal, pcd, tmp_path):
        assert "cannot be written" in refusal(
            "sample", pcd, "--n", 3, "--backend", "cpu", "-o", tmp_path / "no" / "a.pcd"
        )

    def test_output_that_cannot_hold_the_fields(self, refusal, pcd, tmp_path):
        sentence = refusal("sample", pcd, "--n", 3, "--backend", "cpu", "-o", tmp_path / "a.bin")
        assert "but the fields are: 'x', 'y', 'z', 'intensity', 'ring', 'time'; write .pcd" in sentence

    def test_wrong_option_value(self, call, pcd):
        code, _, err = call("sample", pcd, "--n", "many")
        assert code == 2
        assert "Invalid value for '--n': 'many' is not a valid integer" in err

    def test_as_a_process_too(self, tmp_path):
        done = run("sample", tmp_path / "gone.pcd", "--n", 9)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.endswith("gone.pcd cannot be read: No such file or directory\n")
        assert done.stderr.count("\n") == 1


def test_real_bin_file(call, data_dir, tmp_path):
    code, out, _ = call(
        "sample", data_dir / "nuscenes_top_34688x5_f32.bin", "--n", 50, "--backend", "cpu", "-o", tmp_path / "a.bin"
    )
    assert code == 0
    assert "34,688 points with x y z intensity ring" in out
    values = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", np.float32).reshape(-1, 5)
    indices, _ = reference_sampling(values[:, :3], 50, 0)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "a.bin", np.float32).reshape(-1, 5), values[indices])
