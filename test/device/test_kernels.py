"""Every CUDA file belongs to a KernelFile and compiles for every architecture, on a machine without a GPU."""

import importlib
from pathlib import Path

import pytest

import radius_fps_ros
from radius_fps_ros.device import KernelFile
from radius_fps_ros.errors import BackendError

ROOT = Path(radius_fps_ros.__file__).parent
ARCHITECTURES = ("sm_70", "sm_80", "sm_87", "sm_90")


def kernels_of(folder: Path) -> tuple[KernelFile, ...]:
    package = ".".join(("radius_fps_ros", *folder.relative_to(ROOT).parts))
    kernels: tuple[KernelFile, ...] = importlib.import_module(f"{package}.kernels").KERNELS
    return kernels


FOLDERS = sorted({file.parent for file in ROOT.rglob("*.cu")})
CASES = [
    pytest.param(kernel, variant, arch, id="-".join([kernel.name, *(f"{k}={v}" for k, v in variant), arch]))
    for folder in FOLDERS
    for kernel in kernels_of(folder)
    for variant in kernel.variants
    for arch in (*ARCHITECTURES, *filter(None, [kernel.architecture]))
]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_every_cuda_file_is_listed(folder):
    assert {kernel.name for kernel in kernels_of(folder)} == {file.name for file in folder.glob("*.cu")}


@pytest.mark.parametrize(("kernel", "variant", "arch"), CASES)
def test_kernel_compiles(kernel, variant, arch):
    assert kernel.compile(arch, variant)[:4] == b"\x7fELF"


def test_a_fault_in_a_kernel_fails(tmp_path, monkeypatch):
    package = tmp_path / "faulty_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "faulty.cu").write_text('extern "C" __global__ void k(int* p) { p[0] = undeclared; }\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError, match="undeclared"):
        KernelFile("faulty_kernels", "faulty.cu").compile("sm_80")


def test_includes_are_expanded_once(tmp_path, monkeypatch):
    package = tmp_path / "including_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "common.cuh").write_text("__device__ int one() { return 1; }\n")
    (package / "uses.cu").write_text(
        '#include "common.cuh"\n#include "common.cuh"\nextern "C" __global__ void k(int* p) { p[0] = one() + N; }\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    kernel = KernelFile("including_kernels", "uses.cu")
    assert kernel.source().count("int one()") == 1
    assert kernel.compile("sm_80", (("N", 3),))
