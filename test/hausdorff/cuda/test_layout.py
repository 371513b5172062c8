"""What needs no device: the host's structures are the kernels', trees are counted right, memory limits are planned."""

import itertools
import re

import numpy as np
import pytest

pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")
from cupy_backends.cuda.libs import nvrtc

from radius_fps_ros.hausdorff import prepare_mesh
from radius_fps_ros.hausdorff.cuda import kernels
from radius_fps_ros.hausdorff.cuda.kernels import KERNEL_WAVEFRONT
from radius_fps_ros.hausdorff.cuda.mesh import CudaMesh, first_node, tree_levels
from radius_fps_ros.hausdorff.cuda.wavefront import BYTES, LARGEST, SMALLEST, capacity_of

from .. import shapes

STRUCTURES = {
    "Frame": kernels.FRAME,
    "Mesh": kernels.MESH,
    "Target": kernels.TARGET,
    "Worklist": kernels.WORKLIST,
    "Precision": kernels.PRECISION,
    "Search": kernels.SEARCH,
    "Champion": kernels.CHAMPION,
    "State": kernels.STATE,
}


def compile_with(lines):
    source = "\n".join([KERNEL_WAVEFRONT.source(), *lines])
    program = nvrtc.createProgram(source, "layout.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--std=c++17", "--gpu-architecture=sm_80"))
    except nvrtc.NVRTCError:
        return nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    return None


def fields(name):
    """Names of a structure's members, in order."""
    body = re.search(rf"struct {name} {{(.*?)\n}};", KERNEL_WAVEFRONT.source(), re.DOTALL).group(1)
    names = []
    for line in body.split("\n"):
        declaration = re.match(r"\s+(?:const )?\w+[ *]+(\w[^;()]*);", line)
        if declaration:
            names += [re.sub(r"\W.*", "", part.strip("* ")) for part in declaration.group(1).split(", ")]
    return tuple(names)


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_have_the_members_the_kernels_expect(name):
    assert fields(name) == STRUCTURES[name].names


def test_structures_are_as_large_as_the_kernels_expect():
    lines = [f'static_assert(sizeof({name}) == {t.itemsize}, "{name}");' for name, t in STRUCTURES.items()]
    for constant in ("GROUP", "TRIANGLE_BYTES"):
        lines.append(f'static_assert({constant} == {getattr(kernels, constant)}, "{constant}");')
    lines.append(f'static_assert(NODE * sizeof(float4) == {kernels.NODE_BYTES}, "node");')
    assert compile_with(lines) is None


def test_a_wrong_layout_is_noticed():
    assert "State" in compile_with([f'static_assert(sizeof(State) == {kernels.STATE.itemsize + 8}, "State");'])


@pytest.mark.parametrize("faces", [1, 4, 5, 16, 17, 64, 65, 1023, 1024, 1025, 277_804])
def test_levels_of_the_tree(faces):
    levels = tree_levels(faces)
    assert levels[0] == 1
    assert levels[-1] == -(-faces // 4)
    for level, (above, below) in enumerate(itertools.pairwise(levels)):
        assert above == -(-below // 4)
        # the children of a level's nodes are the nodes of the next
        assert 4 * first_node(level) + 1 == first_node(level + 1)


@pytest.mark.parametrize("limit", [100_000, 1_000_000, 10_000_000, 10**12])
def test_capacity_stays_within_the_limit(limit):
    a = prepare_mesh(shapes.sphere(4))
    b = prepare_mesh(shapes.subdivide(shapes.sphere(4)))
    capacity = capacity_of(a, b, limit)
    assert capacity % 8 == 0
    assert 0 <= capacity <= LARGEST
    if capacity:
        meshes = CudaMesh.bytes(a, tree=False) + CudaMesh.bytes(b, tree=True)
        assert meshes + BYTES * capacity <= limit
    else:
        assert limit < 2_000_000
    assert capacity_of(a, b, None) >= SMALLEST
    assert np.iinfo(np.int32).max >= 4 * LARGEST
