"""``radius-fps features`` on small clouds."""

import numpy as np
import pytest
from click.testing import CliRunner

from radius_fps_ros.cli.features import command
from radius_fps_ros.clouds import read_cloud, write_cloud
from radius_fps_ros.errors import InputError

FIELDS = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4"), ("ring", "u2")]


@pytest.fixture
def scan(tmp_path):
    rng = np.random.default_rng(0)
    records = np.zeros(800, dtype=FIELDS)
    for name, scale in zip("xyz", (20, 20, 1), strict=True):
        records[name] = rng.standard_normal(800) * scale
    records["ring"] = np.arange(800) % 32
    write_cloud(tmp_path / "scan.pcd", records)
    return tmp_path / "scan.pcd"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text("channels: [4, 4, 4, 8]\nblocks: [1, 1, 1, 1]\nout_channels: 8\nvoxel_size: [0.5, 0.5, 0.2]\n")
    return path


def run(*arguments):
    result = CliRunner().invoke(command, ["--backend", "cpu", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_summary_of_every_level_is_printed(scan, config):
    output = run(scan, "--config", config)
    assert "random weights (seed 0), not trained" in output
    levels = [line.split()[0] for line in output.splitlines()[4:]]
    assert levels == ["input", "x_conv1", "x_conv2", "x_conv3", "x_conv4", "encoded"]


def test_levels_are_written_as_arrays(scan, config, tmp_path):
    output = run(scan, "--config", config, "-o", tmp_path / "out.npz", "--picture", tmp_path / "sites.png")
    assert output.endswith(f"written to {tmp_path / 'sites.png'}\nwritten to {tmp_path / 'out.npz'}\n")
    arrays = np.load(tmp_path / "out.npz")
    count = len(arrays["x_conv4_indices"])
    assert arrays["x_conv4_features"].shape == (count, 8)
    assert arrays["x_conv4_centres"].shape == (count, 3)
    assert (tmp_path / "sites.png").read_bytes()[:4] == b"\x89PNG"


def test_points_get_features_and_keep_their_fields(scan, config, tmp_path):
    run(scan, "--config", config, "-o", tmp_path / "out.pcd", "--level", "x_conv2", "--level", "x_conv4")
    before, after = read_cloud(scan).records, read_cloud(tmp_path / "out.pcd").records
    assert all((after[name] == before[name]).all() for name in before.dtype.names)
    assert after["features"].shape == (800, 12)
    assert (after["features"] != 0).any(axis=1).mean() > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.txt"], "allowed are .npz"),
        (["--seed", "-1"], "seed must be at least 0, not -1"),
        (["--weights", "none.pth"], "cannot read the checkpoint"),
        (["--config", "none.yaml"], "cannot read the configuration"),
    ],
)
def test_bad_arguments_are_refused(scan, arguments, message):
    with pytest.raises(InputError, match=message):
        run(scan, *arguments)


def test_a_cloud_without_the_fields_is_refused(tmp_path):
    np.save(tmp_path / "bare.npy", np.zeros((5, 3), np.float32))
    with pytest.raises(InputError, match="no field intensity"):
        run(tmp_path / "bare.npy")
