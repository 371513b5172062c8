"""Every CPU method against the reference, bit for bit."""

import numpy as np
import pytest

from radius_fps_ros.sampling import Sampler
from radius_fps_ros.sampling.cpu import brute, lookahead, order, radius
from sampling.cases import CASES, assert_matches_reference, lidar_like, random_case

METHODS = ["radius", "lookahead", "brute", "auto"]


@pytest.fixture(scope="module", params=METHODS)
def sampler(request):
    return Sampler(backend="cpu", method=request.param)


@pytest.mark.parametrize("name", CASES)
def test_named_clouds(sampler, name):
    case = CASES[name]
    assert_matches_reference(sampler, case.points(), case.n_samples, case.start)


def test_nothing_of_an_earlier_cloud_is_read(sampler):
    rng = np.random.default_rng(6)
    sampler(rng.random((5000, 3)).astype(np.float32), 500)
    case = CASES["beyond each other's reach"]
    assert_matches_reference(sampler, case.points(), case.n_samples, case.start)


def test_random_clouds(sampler):
    for seed in range(250):
        points, n_samples, start = random_case(seed)
        assert_matches_reference(sampler, points, n_samples, start)


@pytest.mark.parametrize("method", ["radius", "lookahead"])
def test_a_lidar_scan_prepared_by_several_threads(method):
    points = lidar_like(np.random.default_rng(1), 310_000)
    points[::97] = np.nan
    three = Sampler(backend="cpu", method=method, threads=3)
    assert three(points, 200, start=1).stats.threads == 3
    assert_matches_reference(three, points, 200, 1)


def test_a_million_points():
    rng = np.random.default_rng(5)
    points = rng.random((1_000_000, 3)).astype(np.float32)
    points[rng.integers(0, len(points), 100_000)] = points[3]
    assert_matches_reference(Sampler(backend="cpu", method="lookahead"), points, 60, 3)


def test_methods_agree_where_the_reference_is_too_slow():
    points = lidar_like(np.random.default_rng(2), 50_000)
    results = [Sampler(backend="cpu", method=method)(points, 3000, start=9) for method in METHODS]
    for result in results[1:]:
        np.testing.assert_array_equal(result.indices, results[0].indices)
        assert result.coverage_radius == results[0].coverage_radius


@pytest.mark.parametrize("method", ["radius", "lookahead"])
def test_an_outlier_does_not_undo_the_pruning(method):
    points = lidar_like(np.random.default_rng(4), 20_000)
    sampler = Sampler(backend="cpu", method=method)
    clean = sampler(points, 500).stats.skip_rate
    points[123] = (1e6, -1e6, 1e6)
    assert sampler(points, 500).stats.skip_rate > clean - 0.05 > 0.8


def test_auto_takes_brute_where_sorting_would_not_pay():
    sampler = Sampler(backend="cpu")
    points = lidar_like(np.random.default_rng(6), 20_000)
    assert sampler(points[:1000], 100).stats.method == "brute"
    assert sampler(points, 16).stats.method == "brute"
    assert sampler(points, 500).stats.method == "lookahead"


def test_no_cloud_makes_a_warmed_up_sampler_compile_again():
    modules = (brute, radius, lookahead, order)
    kernels = [value for module in modules for value in vars(module).values() if hasattr(value, "nopython_signatures")]
    cached = [kernel for kernel in kernels if kernel.targetoptions.get("nogil")]
    assert len(cached) >= 9
    for method in ("brute", "radius", "lookahead"):
        Sampler(backend="cpu", method=method).warm_up()
    before = {kernel.py_func.__qualname__: kernel.signatures for kernel in cached}
    scan = lidar_like(np.random.default_rng(8), 20_000)
    read_only = np.frombuffer(scan.tobytes(), np.float32).reshape(-1, 3)
    unaligned = np.frombuffer(b"x" + scan.tobytes(), np.float32, offset=1).reshape(-1, 3)
    for method in ("brute", "radius", "lookahead"):
        sampler = Sampler(backend="cpu", method=method)
        for points in (scan, read_only, unaligned, scan[::2], scan.astype(np.float64), scan.astype(">f4")):
            sampler(points, np.int32(40), start=np.int16(3))
    assert {kernel.py_func.__qualname__: kernel.signatures for kernel in cached} == before
    assert all(len(signatures) == 1 for signatures in before.values())


def test_real_scans(data_dir):
    scan = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", np.float32).reshape(-1, 5)[:, :3]
    for method in METHODS:
        assert_matches_reference(Sampler(backend="cpu", method=method), scan, 1200, 77)
