"""Every CPU method against the reference, bit for bit."""

import numpy as np
import pytest

from radius_fps_ros.sampling import Sampler
from sampling.cases import CASES, assert_matches_reference, lidar_like, random_case

METHODS = ["radius", "lookahead", "brute", "auto"]


@pytest.fixture(scope="module", params=METHODS)
def sampler(request):
    return Sampler(backend="cpu", method=request.param)


@pytest.mark.parametrize("name", CASES)
def test_named_clouds(sampler, name):
    case = CASES[name]
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


def test_real_scans(data_dir):
    scan = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", np.float32).reshape(-1, 5)[:, :3]
    for method in METHODS:
        assert_matches_reference(Sampler(backend="cpu", method=method), scan, 1200, 77)
