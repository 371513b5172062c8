"""Large text meshes, read by a process of their own: the same arrays, the same sentences, and nothing left behind."""

import os
import subprocess
import sys

import numpy as np
import pytest
import trimesh

from radius_fps_ros.errors import InputError
from radius_fps_ros.hausdorff import load_mesh
from radius_fps_ros.nodes import mesh_reader

SPHERE = trimesh.creation.icosphere(3)
WRITTEN = {".off": {}, ".obj": {}, ".ply": {"encoding": "ascii"}, ".stl": {"file_type": "stl_ascii"}}


@pytest.fixture
def apart(monkeypatch):
    """Every text counts as large, and nothing is read in this process."""
    monkeypatch.setattr(mesh_reader, "LARGE", 0)

    def read_here(path):
        raise AssertionError(f"{path} was read in the node's process")

    monkeypatch.setattr(mesh_reader, "load_mesh", read_here)


@pytest.mark.parametrize("suffix", WRITTEN)
def test_it_is_what_load_mesh_gives(apart, tmp_path, suffix):
    path = tmp_path / os.fsdecode(b"a \xff" + suffix.encode())
    SPHERE.export(str(tmp_path / f"a{suffix}"), **WRITTEN[suffix])
    (tmp_path / f"a{suffix}").rename(path)
    for ours, theirs in zip(mesh_reader.read_mesh(path), load_mesh(path), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.flags.carray, "another kind of array would compile the kernels anew"
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["a.off", "a.ply", "a.txt"])
def test_a_refusal_is_that_of_load_mesh(apart, tmp_path, name):
    (tmp_path / name).write_text("no mesh, 5 \u00e4pples")
    with pytest.raises(InputError) as theirs:
        load_mesh(tmp_path / name)
    with pytest.raises(InputError) as ours:
        mesh_reader.read_mesh(tmp_path / name)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(("suffix", "size"), [(".ply", 0), (".off", mesh_reader.LARGE)])
def test_what_is_binary_or_small_is_read_here(monkeypatch, tmp_path, suffix, size):
    path = tmp_path / f"a{suffix}"
    SPHERE.export(str(path))
    monkeypatch.setattr(mesh_reader, "LARGE", size)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert len(mesh_reader.read_mesh(path)[1]) == len(SPHERE.faces)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        mesh_reader.read_mesh(tmp_path / "gone.off")


def test_a_reader_that_dies_is_said(apart, monkeypatch, tmp_path):
    (tmp_path / "a.off").write_text("OFF")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InputError, match=r"a\.off cannot be read: the process that read it ended with 1"):
        mesh_reader.read_mesh(tmp_path / "a.off")


def test_the_reader_ends_with_the_node(tmp_path):
    vertices = "0 0 0\n" * 400_000  # takes seconds to read
    (tmp_path / "a.off").write_text(f"OFF\n400000 1 0\n{vertices}3 0 1 2\n")
    command = [sys.executable, "-m", mesh_reader.__name__, tmp_path / "a.off"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        reader.stdin.close()
        assert reader.stdout.read() == b""
        assert reader.wait() == 1
