"""Cached kernels follow their sources, those of other files too."""

import os
import subprocess
import sys

import pytest
from numba.core.caching import CompileResultCacheImpl

from radius_fps_ros.device.jit import cached_jit

KERNEL = """
from radius_fps_ros.device.jit import cached_jit
from inner import step
@cached_jit(__file__)
def twice(x):
    "Doubled steps."
    return step(step(x))
if __name__ == "__main__":
    print(twice(1), sum(twice.stats.cache_hits.values()), twice.__doc__)
"""
INNER = "from numba import njit\n@njit\ndef step(x):\n    return x + {}\n"


def run(folder):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, str(folder / "outer.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


def test_a_change_in_an_inlined_file_is_noticed(tmp_path):
    (tmp_path / "outer.py").write_text(KERNEL)
    (tmp_path / "inner.py").write_text(INNER.format(1))
    assert run(tmp_path)[:2] == ["3", "0"]
    assert run(tmp_path) == ["3", "1", "Doubled", "steps."], "the second run takes it from the cache"
    (tmp_path / "inner.py").write_text(INNER.format(10))
    assert run(tmp_path)[:2] == ["21", "0"]


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch):
    """As in an installation of root's, run by a user whose home folder cannot be written."""
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="no folder for compiled kernels can be written"):
        twice = cached_jit(__file__)(lambda x: 2 * x)
    assert twice(21) == 42
