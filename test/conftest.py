"""What all tests share: the folder of real data, and the skip of GPU tests where no device exists."""

import os
from pathlib import Path

import pytest

from radius_fps_ros.device import cuda_unavailable_reason


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = cuda_unavailable_reason() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real clouds, bags and meshes, named by RADIUS_FPS_DATA."""
    folder = os.environ.get("RADIUS_FPS_DATA")
    if not folder:
        pytest.skip("RADIUS_FPS_DATA is not set: no folder of real data to check against")
    return Path(folder)
