"""What needs no device: the host's structure is the kernels', and clouds of about one size share buffers."""

import re

import pytest

pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")
from cupy_backends.cuda.libs import nvrtc

from radius_fps_ros.cuda_frame import layout
from radius_fps_ros.cuda_frame.kernels import KERNEL_FRAME


def compile_with(lines):
    """NVRTC's log when the kernels with ``lines`` behind them do not compile, else None."""
    program = nvrtc.createProgram("\n".join([KERNEL_FRAME.source(), *lines]), "layout.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--std=c++17", "--gpu-architecture=sm_80"))
    except nvrtc.NVRTCError:
        return nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    return None


def size_is(size):
    return f'static_assert(sizeof(Frame) == {size}, "Frame");'


def test_the_frame_is_as_the_kernels_expect():
    body = re.search(r"struct Frame \{(.*?)\n\};", KERNEL_FRAME.source(), re.DOTALL).group(1)
    members = re.findall(r"(\w+)(?:\[\w+\])?[,;]", re.sub(r"//.*", "", body))
    assert tuple(members) == layout._FRAME.names
    columns = f'static_assert(MOST_COLUMNS == {layout.MOST_COLUMNS}, "columns");'
    assert compile_with([size_is(layout._FRAME.itemsize), columns]) is None


def test_a_wrong_size_is_noticed():
    assert "Frame" in compile_with([size_is(layout._FRAME.itemsize + 8)])


@pytest.mark.parametrize("points", [1, 1023, 1024, 1025, 1281, 34_688, 130_000, 131_072, 131_073, 1_000_000])
def test_capacities_are_a_quarter_too_large_at_most(points):
    capacity = layout.capacity_for(points)
    assert points <= capacity <= max(1024, 1.25 * points)
    assert layout.capacity_for(capacity) == layout.capacity_for(capacity - 1) == capacity
