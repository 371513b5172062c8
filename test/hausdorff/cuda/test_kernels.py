"""The device functions themselves: float intervals, exact distances and lower bounds against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from radius_fps_ros.hausdorff import prepare_mesh

from ..exact import distance2_to_triangle, rational

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")
pytestmark = pytest.mark.gpu

from radius_fps_ros.device import KernelFile
from radius_fps_ros.hausdorff.cuda.kernels import KERNEL_TREE
from radius_fps_ros.hausdorff.cuda.mesh import cuda_mesh, first_node, tree_levels

PROBE = """
extern "C" __global__ void probe(const double* triangles, const double* points, int n, float tiny, double* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double* c = triangles + 9 * i;
    const Triangle t = {{c[0], c[1], c[2]}, {c[3], c[4], c[5]}, {c[6], c[7], c[8]}};
    const Vector<double> p = {points[3 * i], points[3 * i + 1], points[3 * i + 2]};
    const Point a = make_point(t.a), e1 = make_point(t.b - t.a), e2 = make_point(t.c - t.a);
    const Interval interval = distance_interval({a.high, a.low, e1.high, e2.high}, make_point(p), tiny);
    const Vector<double> r = exact_residual(t, p);
    out[4 * i] = interval.lower;
    out[4 * i + 1] = interval.upper;
    out[4 * i + 2] = sqrt(dot(r, r));
    out[4 * i + 3] = distance_below(t, p);
}
"""
ROUNDING = 72 * 2.0**-53  # of a distance between coordinates up to 1: rounding.py


def cases(rng, n):
    """Triangles of every shape inside the unit cube, and points near to and far from them."""
    t = rng.uniform(-1, 1, (n, 3, 3))
    kind = rng.integers(0, 6, n)
    small = 10.0 ** rng.uniform(-12, 0, (n, 1, 1))
    t[kind == 1] = t[kind == 1][:, :1] + (t[kind == 1] - t[kind == 1][:, :1]) * small[kind == 1]  # small
    t[kind == 2, 2] = t[kind == 2, 1] + (t[kind == 2, 2] - t[kind == 2, 1]) * small[kind == 2, 0]  # a needle
    flat = kind == 3
    t[flat, 2] = 0.7 * t[flat, 0] + 0.3 * t[flat, 1] + small[flat, 0] * t[flat, 2]  # nearly a segment
    t[kind == 4, 2] = t[kind == 4, 1]  # a segment
    t[kind == 5, 1:] = t[kind == 5, :1]  # a point
    w = rng.dirichlet((0.5, 0.5, 0.5), n)
    p = (w[:, :, None] * t).sum(axis=1) + rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-14, 0, (n, 1))
    return np.clip(t, -1, 1), np.clip(p, -1, 1)


@pytest.fixture(scope="module")
def probed():
    t, p = cases(np.random.default_rng(0), 3000)
    out = cupy.empty((len(t), 4))
    module = cupy.RawModule(code=KERNEL_TREE.source() + PROBE, options=("--std=c++17",))
    arguments = (cupy.asarray(t.reshape(-1, 9)), cupy.asarray(p), np.int32(len(t)), np.float32(2.0**-43), out)
    module.get_function("probe")((len(t) // 64 + 1,), (64,), arguments)
    squared = [distance2_to_triangle(rational(q), *map(rational, c)) for c, q in zip(t, p, strict=True)]
    return out.get(), squared


def test_float_intervals_hold_exactly(probed):
    out, squared = probed
    for (lower, upper, _, _), square in zip(out, squared, strict=True):
        # up to what rounding in double takes: that is added where the search reports
        assert max(Fraction(lower) - Fraction(ROUNDING), 0) ** 2 <= square
        assert (Fraction(upper) + Fraction(ROUNDING)) ** 2 >= square


def test_float_intervals_are_narrow(probed):
    out, _ = probed
    # 2 * 2^-19 times the largest coordinate difference, 2, and what a needle costs the lower end
    assert np.median(out[:, 1] - out[:, 0]) < 2.0**-17
    assert (out[:, 1] - out[:, 0]).max() < 0.5


def test_distances_in_double(probed):
    out, squared = probed
    for (_, _, distance, below), square in zip(out, squared, strict=True):
        assert (Fraction(distance) + Fraction(ROUNDING)) ** 2 >= square
        assert max(Fraction(distance) - Fraction(ROUNDING), 0) ** 2 <= square
        assert max(Fraction(below) - Fraction(ROUNDING), 0) ** 2 <= square
        assert (Fraction(max(below, 0.0)) + Fraction(4 * ROUNDING)) ** 2 >= square


@pytest.mark.parametrize("faces", [1, 3, 4, 5, 17, 64, 1000, 4097, 140_000])
def test_boxes_contain_what_is_below(faces):
    rng = np.random.default_rng(faces)
    mesh = prepare_mesh((rng.normal(size=(faces + 2, 3)) + 1e5, rng.integers(0, faces + 2, (faces, 3))))
    on_device = cuda_mesh(mesh)
    target = on_device.target()
    _, nodes, *_ = on_device._tree
    boxes = nodes.view(np.float32).reshape(-1, 2, 3, 4).get()  # node, low or high, axis, child
    order = on_device.faces.get()
    assert sorted(map(tuple, order)) == sorted(map(tuple, mesh.faces))
    corners = (mesh.vertices[order] - mesh.origin) * on_device.scale
    levels = tree_levels(faces)
    assert target["first_leaf"] == first_node(len(levels) - 1)
    below = corners.min(axis=1), corners.max(axis=1)
    for level in range(len(levels) - 1, -1, -1):
        first = first_node(level)
        box = boxes[first : first + levels[level]]
        low, high = (box[:, i].transpose(0, 2, 1).reshape(-1, 3) for i in (0, 1))
        n = len(below[0])
        assert (low[:n] <= below[0]).all()
        assert (high[:n] >= below[1]).all()
        assert np.isposinf(low[n:]).all()
        assert np.isneginf(high[n:]).all()
        below = box[:, 0].min(axis=2), box[:, 1].max(axis=2)


SHARES = """
extern "C" __global__ void shares(int items, int threads, int* held, int* led) {
    const Share share(items, threads);
    for (int base = share.base; base < items; base += share.step) {
        const int i = base + share.here;
        if (i >= items) continue;
        atomicAdd(&held[i], 1);
        if (share.leads()) atomicAdd(&led[i], 1);
    }
}
"""


@pytest.fixture(scope="module")
def shares():
    source = KernelFile("radius_fps_ros.hausdorff.cuda", "search.cuh").source()
    return cupy.RawModule(code=source + SHARES, options=("--std=c++17",)).get_function("shares")


@pytest.mark.parametrize("items", [0, 1, 31, 32, 33, 400, 4341, 12_946, 69_451])
@pytest.mark.parametrize(("blocks", "block"), [(1, 64), (3, 64), (132, 384), (2112, 64)])
def test_every_item_is_shared_out_once(shares, items, blocks, block):
    for threads in (0, blocks * block // 2, blocks * block):
        held, led = cupy.zeros(items, np.int32), cupy.zeros(items, np.int32)
        shares((blocks,), (block,), (np.int32(items), np.int32(threads), held, led))
        assert (led.get() == 1).all()
        held = held.get()
        assert ((held >= 1) & (held <= 32)).all()
        assert held.sum() <= max(items, threads + 32)
