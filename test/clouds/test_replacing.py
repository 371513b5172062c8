"""Files that are written appear complete or not at all."""

import os
import resource
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from radius_fps_ros.cli import features
from radius_fps_ros.clouds import read_cloud, write_cloud
from radius_fps_ros.clouds.picture import save_picture
from radius_fps_ros.errors import InputError
from radius_fps_ros.replacing import replacing

CLOUD = np.zeros(20_000, [(name, "<f4") for name in ("x", "y", "z", "intensity")])


@contextmanager
def full_disk():
    """No file may grow beyond 40,000 bytes, as on a disk that fills up."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def full():
    """The disk is full during the test."""
    with full_disk():
        yield


@pytest.mark.parametrize("suffix", [".pcd", ".ply", ".npy", ".xyz", ".bin"])
def test_a_failed_write_leaves_what_was_there(suffix, tmp_path, full):
    path = tmp_path / f"a{suffix}"
    write_cloud(path, CLOUD[:50])
    before = path.read_bytes()
    for target in (path, tmp_path / f"new{suffix}"):
        with pytest.raises(InputError, match=rf"{target.name} cannot be written"):
            write_cloud(target, CLOUD)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_picture_leaves_nothing(tmp_path, full):
    points = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
    with pytest.raises(OSError, match="File too large"):
        save_picture(tmp_path / "a.png", points, points, "title")
    assert not list(tmp_path.iterdir())


def test_failed_features_leave_nothing(tmp_path, monkeypatch):
    cloud = CLOUD[:2000].copy()
    cloud["x"] = np.linspace(-50, 50, 2000)
    write_cloud(tmp_path / "scan.npy", cloud)
    write = features._write
    monkeypatch.setattr(features, "_write", full_disk()(write))  # not while kernels are compiled and kept
    arguments = [str(tmp_path / "scan.npy"), "-o", str(tmp_path / "out.npz"), "--backend", "cpu", "--config", "light"]
    with pytest.raises(InputError, match=r"out\.npz cannot be written"):
        features.command.main(arguments, standalone_mode=False)
    assert [file.name for file in tmp_path.iterdir()] == ["scan.npy"]


@pytest.mark.parametrize("suffix", [".pcd", ".ply", ".npy", ".xyz", ".bin"])
def test_a_file_may_be_replaced_by_what_was_read_from_it(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    write_cloud(path, CLOUD[:50])
    write_cloud(path, read_cloud(path).records[:7])
    assert len(read_cloud(path)) == 7


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "a.txt", tmp_path / "link.txt"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replacing(link) as new:
        assert (new.parent, new.suffix) == (tmp_path, ".txt")
        new.write_text("new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_itself():
    with replacing(os.devnull) as new:
        assert str(new) == os.devnull


def test_pictures_have_the_format_of_their_suffix(tmp_path):
    save_picture(tmp_path / "a.jpg", np.zeros((9, 3), np.float32), np.zeros((9, 3), np.float32), "title")
    with Image.open(tmp_path / "a.jpg") as image:
        assert image.format == "JPEG"
