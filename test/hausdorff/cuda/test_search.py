"""The CUDA search beside the CPU's: intervals that intersect always, memory, deferral, determinism, many callers."""

import threading
import time

import numpy as np
import pytest

from radius_fps_ros.hausdorff import Status, prepare_mesh
from radius_fps_ros.hausdorff.goal import Goal, Interval

from .. import shapes

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")
pytestmark = pytest.mark.gpu

from radius_fps_ros.hausdorff.cpu.wavefront import directed as on_cpu
from radius_fps_ros.hausdorff.cuda import directed, wavefront
from radius_fps_ros.hausdorff.cuda.mesh import cuda_mesh


def search(a, b, tolerance=1e-6, run=directed, **options):
    a, b = prepare_mesh(a), prepare_mesh(b)
    return run(a, b, Goal(tolerance * (a.diagonal or 1.0), **options), Interval(0.0, 0.0))


def assert_intersect(one, other):
    assert one.lower <= one.upper
    assert one.lower <= other.upper
    assert other.lower <= one.upper


def random_mesh(rng):
    n, kind = int(rng.integers(3, 40)), rng.integers(0, 6)
    v = rng.normal(size=(n, 3))
    if kind == 1:
        v[:, 2] = 0
    elif kind == 2:
        v = np.round(v)
    elif kind == 3:
        v[:, 1:] *= 1e-7  # needles
    elif kind == 4:
        v[:, 1:] = 0  # segments
    return v, rng.integers(0, n, (int(rng.integers(1, 60)), 3))


@pytest.mark.parametrize("seed", range(60))
def test_intersects_the_interval_of_the_cpu(seed):
    rng = np.random.default_rng(seed)
    a, b = random_mesh(rng), random_mesh(rng)
    scale = 10.0 ** rng.choice([0, 0, -30, 30, -10, 6])
    offset = scale * rng.choice([0.0, 1e3, 1e6]) * np.array([1, 2, 0.1])
    if rng.integers(3) == 0:
        b = shapes.moved(a, rng.normal(size=3) * 10.0 ** rng.integers(-9, 1))
    a, b = shapes.moved(a, offset, scale=scale), shapes.moved(b, offset, scale=scale)
    tolerance = 10.0 ** rng.integers(-10, -1)
    diagonal = prepare_mesh(a).diagonal
    threshold = float(diagonal * 10.0 ** rng.uniform(-3, 1)) if diagonal and rng.integers(4) == 0 else None
    one = search(a, b, tolerance, threshold=threshold)
    other = search(a, b, tolerance, on_cpu, threshold=threshold)
    assert_intersect(one, other)
    # rounding may stop one before the other only where it is of the size of the tolerance
    if Status.PRECISION_LIMIT not in (one.status, other.status):
        assert one.status is other.status


@pytest.mark.parametrize("tolerance", [1e-6, 1e-8])
def test_near_zero_pairs_finish(tolerance):
    a = shapes.moved(shapes.sphere(6), scale=2.0)
    assert len(a[1]) == 32_768
    for b in (shapes.subdivide(a), (a[0] + np.random.default_rng(0).normal(size=a[0].shape) * 1e-7, a[1]), a):
        c = search(a, b, tolerance)
        assert c.status is Status.CONVERGED
        assert c.upper < 1e-6


def test_a_tight_tolerance_needs_few_triangles():
    """Where two triangles are equally near, bounds must close faster than triangles shrink; here on a segment."""
    a = shapes.triangle((-0.297, 0, 0), (-0.8975, 0, 0), (0.1736, 0, 0))
    b = shapes.joined(
        shapes.triangle((-0.7564, 1.1239, 0.2136), (-1.6773, -0.5686, -1.9231), (-0.7138, 0.9225, 0.7972)),
        shapes.segment((0.7709, 0.2537, -0.406), (0.0089, 0.7997, -0.2448)),
    )
    c = search(a, b, 1e-9)
    assert c.status is Status.CONVERGED
    assert c.triangles <= 2 * search(a, b, 1e-9, on_cpu).triangles


def open_pair():
    """Each face of a plane over a random one: many stay open for several rounds."""
    rng = np.random.default_rng(3)
    a = shapes.sphere(5)
    return a, (a[0] + 0.02 * rng.normal(size=a[0].shape), a[1])


@pytest.fixture(scope="module")
def plenty():
    return search(*open_pair(), tolerance=1e-7)


@pytest.mark.parametrize("capacity", [1024, 2048, 8192])
def test_deferral_reaches_the_same_distance(plenty, capacity, monkeypatch):
    monkeypatch.setattr(wavefront, "capacity_of", lambda *_: capacity)
    c = search(*open_pair(), tolerance=1e-7)
    assert c.status is Status.CONVERGED
    assert_intersect(c, plenty)


def test_a_worklist_too_small_gives_a_valid_interval(plenty, monkeypatch):
    monkeypatch.setattr(wavefront, "capacity_of", lambda *_: 8)
    monkeypatch.setattr(wavefront, "SMALLEST", 8)
    c = search(*open_pair(), tolerance=1e-7)
    assert c.status is Status.MEMORY_LIMIT
    assert c.lower <= plenty.upper
    assert c.upper >= plenty.lower


@pytest.mark.parametrize("spare", [2_000_000, 6_000_000])
def test_memory_limit_is_kept(spare, plenty):
    a, b = (prepare_mesh(mesh) for mesh in open_pair())
    limit = wavefront.CudaMesh.bytes(a, tree=False) + wavefront.CudaMesh.bytes(b, tree=True) + spare
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=limit)  # more cannot be had
    with cupy.cuda.using_allocator(pool.malloc):
        c = search(a, b, tolerance=1e-7, memory_limit=limit)
    assert c.status is Status.CONVERGED
    assert_intersect(c, plenty)


@pytest.mark.parametrize("limit", [1_000, 100_000])
def test_too_little_memory_for_the_structures(limit, plenty):
    c = search(*open_pair(), memory_limit=limit)
    assert c.status is Status.MEMORY_LIMIT
    assert c.triangles == 0
    assert c.lower <= plenty.upper
    assert c.upper >= plenty.lower


def test_a_full_device_is_no_crash(plenty):
    a, b = (prepare_mesh(mesh) for mesh in open_pair())
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=1_000_000)
    with cupy.cuda.using_allocator(pool.malloc):
        c = search(a, b)
    assert c.status is Status.MEMORY_LIMIT
    assert c.upper >= plenty.lower


def test_faces_in_several_chunks(plenty, monkeypatch):
    monkeypatch.setattr(wavefront, "CHUNK", 1000)
    c = search(*open_pair(), tolerance=1e-7)
    assert c.status is Status.CONVERGED
    assert (c.lower, c.triangles) == (plenty.lower, plenty.triangles)


def test_same_answer_every_time(plenty):
    for _ in range(5):
        c = search(*open_pair(), tolerance=1e-7)
        assert (c.lower, c.upper, c.triangles) == (plenty.lower, plenty.upper, plenty.triangles)
        np.testing.assert_array_equal(c.witness, plenty.witness)
        np.testing.assert_array_equal(c.nearest, plenty.nearest)


def test_many_callers_at_once(plenty):
    for _ in range(10):
        a, b = (prepare_mesh(mesh) for mesh in open_pair())
        results = [None] * 8

        def call(i, a=a, b=b, results=results):
            with cupy.cuda.Stream(non_blocking=True):
                results[i] = search(a, b, tolerance=1e-7)

        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for c in results:
            assert (c.lower, c.upper, c.triangles) == (plenty.lower, plenty.upper, plenty.triangles)


DELAY = """
extern "C" __global__ void delay(long long cycles) {
    for (const long long start = clock64(); clock64() - start < cycles;) {}
}
"""


def test_who_finds_a_tree_waits_until_it_is_built():
    rng = np.random.default_rng(3)
    mesh = cuda_mesh(prepare_mesh((rng.normal(size=(3000, 3)), rng.integers(0, 3000, (6000, 3)))))
    delay = cupy.RawKernel(DELAY, "delay")
    delay((1,), (1,), (np.int64(0),))
    seen = []

    def find():
        with cupy.cuda.Stream(non_blocking=True) as stream:
            mesh.target()
            seen.append(mesh._tree[1].copy())
            stream.synchronize()

    finder = threading.Thread(target=find)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        with mesh._lock:
            finder.start()
            time.sleep(0.2)  # it waits for the lock, and for nothing that comes now
            delay((1,), (1,), (np.int64(100_000_000),))
            mesh._tree = mesh._build_tree(mesh.source())
        finder.join()
        stream.synchronize()
    np.testing.assert_array_equal(seen[0].get(), mesh._tree[1].get())


def test_device_memory_goes_with_the_prepared_mesh():
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        a, b = (prepare_mesh(mesh) for mesh in open_pair())
        search(a, b)
        assert pool.used_bytes() > 0
        del a, b
        assert pool.used_bytes() == 0


def test_published_pairs(data_dir):
    for name in ("fandisk_q50", "rocker-arm_noise", "spot_sub"):
        a, b = (np.load(data_dir / "meshes" / f"{mesh}.npz") for mesh in (name.split("_")[0], name))
        one = search((a["V"], a["F"]), (b["V"], b["F"]), 1e-8)
        other = search((a["V"], a["F"]), (b["V"], b["F"]), 1e-5, on_cpu)
        assert one.status is Status.CONVERGED
        assert_intersect(one, other)
