"""Memory that ran out is told apart from a device that failed, and neither from an ordinary error."""

import pytest

from radius_fps_ros.device import BackendChoice
from radius_fps_ros.errors import BackendError, InputError
from radius_fps_ros.faults import faults_as_sentences, free_device_memory, is_out_of_memory


def caught(error):
    with pytest.raises(type(error)) as info, faults_as_sentences("working"):
        raise error
    return info.value


@pytest.mark.parametrize("error", [InputError("no points"), RuntimeError("a defect"), MemoryError("no room")])
def test_what_cuda_did_not_report_passes_unchanged(error):
    assert caught(error) is error
    assert is_out_of_memory(error) == isinstance(error, MemoryError)


def test_the_cause_counts():
    error = BackendError("sampling failed")
    error.__cause__ = MemoryError("no room")
    assert is_out_of_memory(error)
    assert not is_out_of_memory(BackendError("sampling failed"))


@pytest.mark.parametrize(
    ("make", "out_of_memory"),
    [
        (lambda cupy: cupy.cuda.memory.OutOfMemoryError(10, 20, 0), True),
        (lambda cupy: cupy.cuda.runtime.CUDARuntimeError(2), True),  # cudaErrorMemoryAllocation
        (lambda cupy: cupy.cuda.runtime.CUDARuntimeError(700), False),  # cudaErrorIllegalAddress
    ],
)
def test_errors_of_cuda_become_one_kind(make, out_of_memory):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    error = make(cupy)
    words = "the CUDA device failed while working: "
    with pytest.raises(BackendError, match=words) as info, faults_as_sentences("working"):
        raise error
    assert str(error) in str(info.value)
    assert is_out_of_memory(info.value) == out_of_memory


def test_there_is_nothing_to_free_where_the_cpu_runs():
    free_device_memory(BackendChoice("cpu", "requested"))


@pytest.mark.gpu
def test_freed_blocks_go_back_to_the_device():
    import cupy

    pool = cupy.get_default_memory_pool()
    block = cupy.empty(1 << 20, cupy.uint8)
    held = pool.total_bytes()
    del block
    free_device_memory(BackendChoice("cuda", "requested"))
    assert pool.total_bytes() < held
