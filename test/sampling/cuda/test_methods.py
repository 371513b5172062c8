"""Every CUDA method against the reference, bit for bit, on a device."""

import numpy as np
import pytest

from radius_fps_ros.clouds.synthetic import room_scan, street_scan
from radius_fps_ros.sampling import Sampler
from radius_fps_ros.sampling.reference import reference_sampling
from sampling.cases import CASES, assert_matches_reference, lidar_like, random_case
from sampling.cuda.devices import CLUSTER, CLUSTERS

pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")

from radius_fps_ros.sampling.cuda import CudaEngine
from radius_fps_ros.sampling.cuda.layout import SHAPES

pytestmark = pytest.mark.gpu

METHODS = ["radius", "lookahead", "brute", "auto", "single_block", CLUSTER]
MOST_IN_CLUSTER = 65_536


def make_sampler(method):
    """A sampler, also for the methods that are asked of the engine alone."""
    sampler = Sampler(backend="cuda")
    sampler._engines["cuda"] = CudaEngine(method)
    return sampler


@pytest.fixture(scope="module", params=METHODS)
def sampler(request):
    return make_sampler(request.param)


def xyz(records):
    return np.stack([records[axis] for axis in "xyz"], axis=1).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_named_clouds(sampler, name):
    case = CASES[name]
    assert_matches_reference(sampler, case.points(), case.n_samples, case.start)


def test_random_clouds(sampler):
    for seed in range(100):
        points, n_samples, start = random_case(seed)
        assert_matches_reference(sampler, points, n_samples, start)


@pytest.mark.parametrize("method", ["single_block", CLUSTER])
@pytest.mark.parametrize("beyond", [0, 1])
def test_every_shape_of_a_launch_and_its_last_point(method, beyond):
    for shape in SHAPES[method][: -1 if beyond else None]:
        n = shape.most_points + beyond or 20_000
        points = np.round(np.random.default_rng(n).random((n, 3)) * 40).astype(np.float32)  # many equal distances
        points[-1] = 100.0
        assert_matches_reference(make_sampler(method), points, 300, n // 3)


def assert_methods_agree(points, n_samples, start):
    expected = Sampler(backend="cuda", method="brute")(points, n_samples, start=start)
    small = ["single_block", *(["cluster"] if CLUSTERS else [])] if len(points) <= MOST_IN_CLUSTER else []
    for method in ("lookahead", "radius", *small):
        result = make_sampler(method)(points, n_samples, start=start)
        np.testing.assert_array_equal(result.indices, expected.indices)
        assert result.coverage_radius == expected.coverage_radius


def lattice(side):
    axis = np.arange(side, dtype=np.float32) * np.float32(0.1)
    grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    return grid[np.random.default_rng(3).permutation(len(grid))]


LARGE = {
    "uniform": (lambda: np.random.default_rng(0).random((65_536, 3)).astype(np.float32), 4096),
    "street": (lambda: xyz(street_scan(130_815)), 8192),
    "room": (lambda: xyz(room_scan(40_684)), 4096),
    "lidar with duplicates": (lambda: lidar_like(np.random.default_rng(2), 200_000), 4096),
    "lattice": (lambda: lattice(60), 5000),
    "lattice that fits into a cluster": (lambda: lattice(40), 5000),
    "one cluster of many duplicates": (
        lambda: np.random.default_rng(4).normal(0, 1, (300, 3)).astype(np.float32).repeat(200, axis=0),
        1000,
    ),
    "an outlier": (lambda: np.r_[np.random.default_rng(5).random((50_000, 3)), [[1e6] * 3]].astype(np.float32), 2000),
    "more samples than may run ahead": (
        lambda: np.random.default_rng(6).random((40_000, 3)).astype(np.float32),
        40_000,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_methods_agree_where_the_reference_is_too_slow(name):
    make, n_samples = LARGE[name]
    assert_methods_agree(make(), n_samples, 9)


def test_brute_is_the_reference_on_a_large_scan():
    points = xyz(street_scan(130_815))
    indices, coverage_squared = reference_sampling(points, 300, 5)
    result = Sampler(backend="cuda", method="brute")(points, 300, start=5)
    np.testing.assert_array_equal(result.indices, indices)
    assert result.coverage_radius == float(np.sqrt(np.float64(coverage_squared)))


def test_a_million_points_with_non_finite_rows():
    points = xyz(street_scan(1_000_000))
    points[::7] = np.nan
    points[3::11, 1] = np.inf
    assert_methods_agree(points, 2000, 1)


def test_ten_million_points():
    rng = np.random.default_rng(7)
    points = rng.random((10_000_000, 3), dtype=np.float32)
    points[rng.integers(0, len(points), 1_000_000)] = points[77]
    assert_methods_agree(points, 1500, 9_999_999)


REAL = {"nuscenes_top_34688x5_f32.bin": 5, "kitti_000008_17238x4_f32.bin": 4}


def real_scan(data_dir, name):
    return np.fromfile(data_dir / name, np.float32).reshape(-1, REAL[name])[:, :3]


@pytest.mark.parametrize("name", REAL)
def test_real_scans(sampler, data_dir, name):
    assert_matches_reference(sampler, real_scan(data_dir, name), 1200, 77)


@pytest.mark.parametrize("name", REAL)
def test_methods_agree_on_real_scans_to_the_last_point(data_dir, name):
    scan = real_scan(data_dir, name)
    assert_methods_agree(scan, len(scan), 77)
