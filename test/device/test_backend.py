"""The choice of the backend and of the CPU threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import radius_fps_ros
from radius_fps_ros.device import (
    array_module,
    cuda_unavailable_reason,
    device_memory,
    is_cupy_array,
    numba_threads,
    select_backend,
    usable_cores,
)
from radius_fps_ros.errors import BackendError, InputError

STAND_IN_FOR_CUPY = """
from types import SimpleNamespace as Of
runtime = Of(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
cuda = Of(runtime=runtime, Device=lambda: Of(compute_capability="90"))
"""


def test_auto_says_why():
    choice = select_backend("auto", np.zeros(3))
    assert choice.name == ("cpu" if cuda_unavailable_reason() else "cuda")
    assert choice.reason


def test_device_memory_is_none_on_the_cpu():
    assert device_memory(select_backend("cpu")) is None


@pytest.mark.gpu
def test_device_memory_grows_with_what_is_held():
    import cupy

    choice = select_backend("cuda")
    before = device_memory(choice)
    held = cupy.zeros(50_000_000, cupy.uint8)
    assert device_memory(choice) >= before + held.nbytes - cupy.get_default_memory_pool().free_bytes()
    assert device_memory(choice) >= held.nbytes


def test_unknown_backend_is_refused():
    with pytest.raises(InputError, match="backend must be one of auto, cpu, cuda, not 'gpu'"):
        select_backend("gpu")


@pytest.mark.skipif(cuda_unavailable_reason() is None, reason="a CUDA device is here")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(BackendError, match="backend='cuda' cannot run"):
        select_backend("cuda")


def test_a_cupy_that_cannot_be_imported_is_no_device(tmp_path):
    """As in a home folder that cannot be written, where CuPy wants a folder for its cache."""
    (tmp_path / "cupy.py").write_text("raise PermissionError(13, 'Permission denied', '/.cupy')\n")
    code = "from radius_fps_ros.device import select_backend; print(select_backend('auto'))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith(
        "BackendChoice(name='cpu', reason=\"CUDA is not usable because CuPy cannot be imported"
    )
    assert "Permission denied: '/.cupy'" in done.stdout


def test_a_device_without_nvrtc_is_not_used(tmp_path):
    """As with CuPy's wheel and a driver alone: neither brings the compiler of the kernels."""
    (tmp_path / "cupy.py").write_text(STAND_IN_FOR_CUPY)
    libraries = tmp_path / "cupy_backends" / "cuda" / "libs"
    libraries.mkdir(parents=True)
    for package in (libraries, *libraries.parents[:2]):
        (package / "__init__.py").touch()
    (libraries / "nvrtc.py").write_text("def getVersion(): raise RuntimeError('Failure finding libnvrtc\\nmore')\n")
    code = "from radius_fps_ros.device import select_backend; print(select_backend('auto'))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("BackendChoice(name='cpu', reason='CuPy finds no NVRTC (pip install "), done.stderr
    assert done.stdout.endswith("or a CUDA toolkit): Failure finding libnvrtc')\n")


def test_arrays_keep_their_library():
    assert array_module(np.zeros(3)) is np
    assert not is_cupy_array(np.zeros(3))


def test_numba_threads_are_restored():
    import numba

    before = numba.get_num_threads()
    with numba_threads(1) as threads:
        assert threads == numba.get_num_threads() == 1
    assert numba.get_num_threads() == before
    with pytest.raises(InputError, match="threads must be at least 1, not 0"), numba_threads(0):
        pass


def test_at_least_one_core():
    assert usable_cores() >= 1


CORE = ("sampling", "sparse", "hausdorff", "clouds", "device", "cli", "pipeline", "frame_features")


@pytest.mark.parametrize("part", CORE)
def test_the_core_imports_no_ros_and_no_cupy(part):
    """Dependencies point one way: only ``nodes`` knows ROS, and only importing a ``cuda`` package imports CuPy."""
    root = Path(radius_fps_ros.__file__).parent
    files = [root / f"{part}.py"] if (root / f"{part}.py").exists() else sorted((root / part).rglob("*.py"))
    paths = [f.relative_to(root).with_suffix("") for f in files if "cuda" not in f.parts]
    names = [".".join(("radius_fps_ros", *path.parts)) for path in paths]
    code = (
        "import sys, importlib\n"
        f"for name in {names}: importlib.import_module(name.removesuffix('.__init__'))\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('rclpy', 'sensor_msgs', 'cupy')]\n"
        "sys.exit(f'imported {bad}' if bad else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
