"""Thresholds, limits, cancelling, prepared meshes, several callers at once."""

import itertools
import json
import threading
import tracemalloc

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.hausdorff import Progress, Status, certify_hausdorff, prepare_mesh
from radius_fps_ros.hausdorff.cpu import wavefront
from radius_fps_ros.hausdorff.cpu.memory import available_bytes, fixed_bytes

from . import shapes

NEAR = shapes.sphere(4), shapes.moved(shapes.sphere(3), (0.05, 0.02, 0))


@pytest.fixture(scope="module")
def distance():
    return certify_hausdorff(*NEAR, tolerance=1e-9, backend="cpu")


@pytest.mark.parametrize("symmetric", [False, True])
def test_threshold_above_and_below(distance, symmetric, backend):
    options = {"symmetric": symmetric, "tolerance": 1e-9, "backend": backend}
    above = certify_hausdorff(*NEAR, threshold=distance.lower * 0.7, **options)
    assert above.status is Status.PROVEN_ABOVE
    assert above.lower > distance.lower * 0.7
    below = certify_hausdorff(*NEAR, threshold=distance.upper * 1.5, **options)
    assert below.status is Status.PROVEN_BELOW
    assert below.upper <= distance.upper * 1.5
    for c in (above, below):
        assert c.lower <= distance.upper or symmetric
        assert c.upper >= distance.lower
    # a wide answer is enough: far fewer triangles than the distance itself needs
    full = certify_hausdorff(*NEAR, **options)
    assert above.triangles < full.triangles
    assert below.triangles < full.triangles


def test_threshold_on_the_distance_stays_open(backend):
    a, b = shapes.rectangle(0, 0, 1, 1), shapes.rectangle(0, 0, 1, 1, z=0.25)
    c = certify_hausdorff(a, b, threshold=0.25, tolerance=1e-6, backend=backend)
    # rounding keeps 0.25 inside the interval, so nothing is proven
    assert c.status is Status.CONVERGED
    assert c.lower <= 0.25 < c.upper


def test_threshold_far_off_needs_no_search(backend):
    c = certify_hausdorff(*NEAR, threshold=10.0, backend=backend)
    assert c.status is Status.PROVEN_BELOW
    assert c.triangles == 0
    far = certify_hausdorff(NEAR[0], shapes.moved(NEAR[1], (100, 0, 0)), threshold=50.0, backend=backend)
    assert far.status is Status.PROVEN_ABOVE


@pytest.mark.parametrize("symmetric", [False, True])
def test_time_limit_gives_a_valid_interval(distance, symmetric, backend):
    c = certify_hausdorff(*NEAR, time_limit=1e-9, symmetric=symmetric, backend=backend)
    assert c.status is Status.TIME_LIMIT
    assert c.lower <= distance.lower
    assert c.upper >= distance.upper


@pytest.mark.parametrize("calls", [1, 2, 4])
@pytest.mark.parametrize("symmetric", [False, True])
def test_cancelling_gives_a_valid_interval(distance, calls, symmetric, backend, monkeypatch):
    monkeypatch.setattr("radius_fps_ros.hausdorff.goal.PROGRESS_INTERVAL", 0.0)
    seen = []

    def progress(state):
        seen.append(state)
        return False if len(seen) == calls else None

    c = certify_hausdorff(*NEAR, tolerance=1e-9, symmetric=symmetric, backend=backend, progress=progress)
    assert c.status is Status.CANCELLED
    assert len(seen) == calls
    assert c.lower <= distance.upper + symmetric
    assert c.upper >= distance.lower


def test_progress_shows_the_interval_closing(distance, backend, monkeypatch):
    monkeypatch.setattr("radius_fps_ros.hausdorff.goal.PROGRESS_INTERVAL", 0.0)
    seen = []
    c = certify_hausdorff(*NEAR, tolerance=1e-9, backend=backend, progress=seen.append)
    assert c.status is Status.CONVERGED
    assert len(seen) >= 3
    assert all(isinstance(state, Progress) for state in seen)
    assert seen[0].surviving == len(NEAR[0][1])
    for earlier, later in itertools.pairwise(seen):
        assert later.lower >= earlier.lower
        # a bound that replaces a coarser one may round up a little more
        assert later.upper <= earlier.upper * (1 + 1e-12)
        assert later.elapsed >= earlier.elapsed
    for state in seen:
        assert state.lower <= distance.upper
        assert state.upper >= distance.lower


@pytest.mark.parametrize("spare", [3_000, 30_000, 300_000])
def test_memory_limit_is_kept(spare, backend):
    # a mesh against its subdivision keeps nearly every triangle open for a round
    a = shapes.sphere(5)
    b = shapes.subdivide(a)
    limit = fixed_bytes(prepare_mesh(a), prepare_mesh(b)) + spare
    a, b = prepare_mesh(a), prepare_mesh(b)
    certify_hausdorff(*NEAR, backend=backend)  # imports and compiled kernels are not the search's memory
    tracemalloc.start()
    c = certify_hausdorff(a, b, tolerance=1e-7, memory_limit=limit, backend=backend)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= limit
    assert c.status in (Status.CONVERGED, Status.MEMORY_LIMIT)
    assert c.lower == 0
    if spare >= 300_000:
        assert c.status is Status.CONVERGED


def test_too_little_memory_for_the_structures(distance, backend):
    c = certify_hausdorff(*NEAR, memory_limit=1000, backend=backend)
    assert c.status is Status.MEMORY_LIMIT
    assert c.triangles == 0
    assert c.lower <= distance.lower
    assert c.upper >= distance.upper


def test_deferral_reaches_the_same_distance(distance, monkeypatch):
    """With room for few open triangles the search goes deep first, and still converges."""
    monkeypatch.setattr(wavefront, "available_bytes", lambda: 2 * fixed_bytes(*map(prepare_mesh, NEAR)) + 100_000)
    c = certify_hausdorff(*NEAR, tolerance=1e-9, backend="cpu")
    assert c.status is Status.CONVERGED
    assert c.lower <= distance.upper
    assert c.upper >= distance.lower
    assert available_bytes() > 0


def test_absolute_tolerance_replaces_the_relative_one(backend):
    c = certify_hausdorff(*NEAR, tolerance=1e-12, absolute_tolerance=0.1, backend=backend)
    assert c.status is Status.CONVERGED
    assert 1e-3 < c.upper - c.lower <= 0.1
    fine = certify_hausdorff(*NEAR, absolute_tolerance=1e-8, backend=backend)
    assert fine.upper - fine.lower <= 1e-8


def test_prepared_meshes_give_the_same_and_are_built_once(backend):
    a, b = (prepare_mesh(mesh) for mesh in NEAR)
    plain = certify_hausdorff(*NEAR, symmetric=True, backend=backend)
    for _ in range(2):
        again = certify_hausdorff(a, b, symmetric=True, backend=backend)
        assert (again.lower, again.upper) == (plain.lower, plain.upper)
    assert prepare_mesh(a) is a
    if backend == "cpu":
        assert a.cpu() is a.cpu()


def test_many_callers_at_once(backend):
    target = prepare_mesh(shapes.sphere(4))
    candidates = [shapes.moved(shapes.sphere(3), (0.01 * i, 0, 0)) for i in range(8)]
    expected = [certify_hausdorff(c, shapes.sphere(4), backend=backend) for c in candidates]
    results = [None] * len(candidates)

    def work(i):
        results[i] = certify_hausdorff(candidates[i], target, backend=backend)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(candidates))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(r.lower, r.upper) for r in results] == [(e.lower, e.upper) for e in expected]


def test_json_form(backend):
    c = certify_hausdorff(*NEAR, backend=backend)
    back = json.loads(json.dumps(c.to_dict()))
    assert back["status"] == "CONVERGED"
    assert (back["lower"], back["upper"]) == (c.lower, c.upper)
    np.testing.assert_array_equal(back["witness_a"], c.witness_a)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1e-3", True])
@pytest.mark.parametrize("name", ["tolerance", "absolute_tolerance", "threshold", "time_limit", "memory_limit"])
def test_bad_options(name, value):
    with pytest.raises(InputError, match=f"^{name} must be a finite number above 0, not"):
        certify_hausdorff(*NEAR, **{name: value})


def test_bad_backend():
    with pytest.raises(InputError, match="backend must be one of auto, cpu, cuda, not 'gpu'"):
        certify_hausdorff(*NEAR, backend="gpu")
