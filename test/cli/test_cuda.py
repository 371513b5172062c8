"""Every command on a CUDA device gives what it gives on the CPU."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from process_bags import N, content

from radius_fps_ros.cli import cli
from radius_fps_ros.clouds import write_cloud
from radius_fps_ros.clouds.synthetic import street_scan

pytestmark = pytest.mark.gpu

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.fixture
def scan(tmp_path):
    write_cloud(tmp_path / "scan.pcd", street_scan(5000))
    return tmp_path / "scan.pcd"


def run(backend, command, *arguments):
    result = CliRunner().invoke(cli, [command, *map(str, arguments), "--backend", backend], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def on_both(command, *arguments, to):
    """What the command prints and the file it writes, on either."""
    return [
        (run(backend, command, *arguments, "-o", to.with_stem(backend)), to.with_stem(backend))
        for backend in ("cpu", "cuda")
    ]


def test_sample(scan, tmp_path):
    (_, ours), (_, theirs) = on_both("sample", scan, "--n", 300, to=tmp_path / "out.pcd")
    assert ours.read_bytes() == theirs.read_bytes()


def test_features_of_the_levels(scan, tmp_path):
    (_, cpu), (printed, cuda) = on_both("features", scan, to=tmp_path / "out.npz")
    assert "backend: cuda" in printed
    ours, theirs = np.load(cpu), np.load(cuda)
    assert set(ours) == set(theirs)
    for name in ours:
        if name.endswith("_features"):
            assert abs(ours[name] - theirs[name]).max() < 1e-4 * abs(ours[name]).max()
        else:
            assert np.array_equal(ours[name], theirs[name])


def test_features_of_the_points(scan, tmp_path):
    places = on_both("features", scan, "--level", "x_conv2", "--level", "x_conv4", to=tmp_path / "out.npy")
    ours, theirs = (np.load(place)["features"] for _, place in places)
    assert ours.shape == (5000, 160)
    assert abs(ours - theirs).max() < 1e-4 * abs(ours).max()


def test_features_picture(scan, tmp_path):
    run("cuda", "features", scan, "--dtype", "float16", "--picture", tmp_path / "sites.png")
    assert (tmp_path / "sites.png").read_bytes()[:4] == b"\x89PNG"


def test_certify(tmp_path):
    (tmp_path / "a.obj").write_text(TETRAHEDRON)
    (tmp_path / "b.obj").write_text(TETRAHEDRON.replace("v 0 0 1", "v 0 0 1.5"))
    answer = json.loads(run("cuda", "certify", tmp_path / "b.obj", tmp_path / "a.obj", "--json"))
    assert answer["lower"] <= 0.5 <= answer["upper"]
    assert answer["backend"] == "cuda"


def test_process(bags, tmp_path):
    for backend in ("cpu", "cuda"):
        run(backend, "process", bags["mcap"], "-o", tmp_path / backend, "--n", N)
    assert content(tmp_path / "cuda") == content(tmp_path / "cpu")
