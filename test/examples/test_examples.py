"""The examples without ROS run as they stand, and the README shows programs that are files here."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh

from radius_fps_ros.hausdorff import certify_hausdorff
from radius_fps_ros.sampling import farthest_point_sampling

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
WITH_ROS = {"read_features.py", "certify_from_node.py", "colour_by_feature_norm.py"}  # run beside the nodes' tests


def run(name, *arguments, folder=None):
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def terrain(path, side=40):
    """A wavy, slightly rough square of 20 m with an open border, as a map has."""
    x, y = np.meshgrid(*2 * [np.linspace(0, 20, side)], indexing="ij")
    z = np.sin(x / 4) * np.cos(y / 5) + 0.005 * np.random.default_rng(0).standard_normal((side, side))
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    halves = ((corner, corner + side, corner + 1), (corner + 1, corner + side, corner + side + 1))
    faces = np.concatenate([np.stack(half, axis=1) for half in halves])
    trimesh.Trimesh(np.stack([x, y, z], axis=-1).reshape(-1, 3), faces, process=False).export(path)


def test_every_example_has_a_test():
    tested = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text())) | WITH_ROS
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_every_program_in_the_readme_is_an_example():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    texts = {path.read_text(): path.name for path in EXAMPLES.glob("*.py")}
    assert [texts.get(block, block) for block in blocks] == [
        "read_features.py",
        "certify_from_node.py",
        "sample_points.py",
    ]


def test_sample_points():
    points = np.random.default_rng(0).normal(size=(100_000, 3)).astype(np.float32)
    assert run("sample_points.py").startswith(str(farthest_point_sampling(points, 5).indices))


def test_decimate_map(tmp_path):
    pytest.importorskip("fast_simplification", reason="fast-simplification is not installed")
    terrain(tmp_path / "map.ply")
    out = run("decimate_map.py", "map.ply", "decimated.ply", "--within", "0.05", folder=tmp_path)
    assert "PROVEN_ABOVE" in out  # the search went to where it is too strong
    full, decimated = (trimesh.load(tmp_path / name, process=False) for name in ("map.ply", "decimated.ply"))
    assert len(decimated.faces) < len(full.faces) / 4
    pair = [(mesh.vertices, mesh.faces) for mesh in (full, decimated)]
    assert certify_hausdorff(*pair, symmetric=True, absolute_tolerance=1e-3).lower <= 0.05


def test_sample_torch_tensor():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    lines = run("sample_torch_tensor.py").splitlines()
    points = torch.rand(100_000, 3, generator=torch.Generator().manual_seed(0)).numpy()
    first = farthest_point_sampling(points, 4).indices.tolist()
    assert lines[0] == f"cpu: (4096, 3) samples on cpu, first {first}, no copy"
    if torch.cuda.is_available():
        assert lines[1] == f"cuda: (4096, 3) samples on cuda:0, first {first}, no copy"
