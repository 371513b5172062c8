"""Voxelization against a dictionary, at the edges of the range, and at its caps."""

import math

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import VoxelGrid, voxelize

RANGE, SIZE = (-4.0, -3.0, -1.0, 4.0, 3.0, 1.0), (0.3, 0.25, 0.2)


def run(backend, points, features, **keywords):
    move = backend.to_device
    if isinstance(points, list):
        points, features = [move(p) for p in points], [move(f) for f in features]
    else:
        points, features = move(points), move(features)
    keywords = {"point_cloud_range": RANGE, "voxel_size": SIZE, "backend": backend.name, **keywords}
    return voxelize(points, features, **keywords)


def cloud(seed, count, scale=(3.0, 2.0, 0.8)):
    rng = np.random.default_rng(seed)
    points = (rng.standard_normal((count, 3)) * scale).astype(np.float32)
    return points, rng.standard_normal((count, 5)).astype(np.float32)


def reference(frames, max_voxels, max_points):
    """Mean features by site, and the counts, in row order and float32."""
    low, high, size = np.float32(RANGE[:3]), np.float32(RANGE[3:]), np.float32(SIZE)
    cells = VoxelGrid.make(RANGE, SIZE).cells
    counts = dict.fromkeys(("invalid", "outside", "dropped", "over_voxels", "over_points"), 0)
    voxels = {}
    for batch, (points, features) in enumerate(frames):
        kept, dropped = {}, set()
        for point, feature in zip(points, features, strict=True):
            if not np.isfinite(point).all():
                counts["invalid"] += 1
                continue
            if (point < low).any() or (point >= high).any():
                counts["outside"] += 1
                continue
            cell = [min(math.floor(v), n - 1) for v, n in zip((point - low) / size, cells, strict=True)]
            site = (batch, cell[2], cell[1], cell[0])
            if site not in kept and len(kept) == max_voxels:
                dropped.add(site)
            if site in dropped:
                counts["over_voxels"] += 1
            elif len(kept.setdefault(site, [])) == max_points:
                counts["over_points"] += 1
            else:
                kept[site].append(feature)
        counts["dropped"] += len(dropped)
        voxels.update(kept)
    means = {}
    for site, values in voxels.items():
        total = np.zeros_like(values[0])
        for value in values:
            total = total + value
        means[site] = total / np.float32(len(values))
    return means, counts


def assert_equals_reference(backend, tensor, frames, max_voxels, max_points):
    means, counts = reference(frames, max_voxels, max_points)
    sites = sorted(means)
    assert backend.to_host(tensor.indices).tolist() == [list(site) for site in sites]
    expected = np.array([means[site] for site in sites], dtype=np.float32).reshape(len(sites), -1)
    assert (backend.to_host(tensor.features).reshape(expected.shape) == expected).all()
    stats = tensor.stats
    assert stats["points"] == sum(len(points) for points, _ in frames)
    assert stats["voxels"] == len(sites)
    found = (
        "invalid_points",
        "out_of_range_points",
        "dropped_voxels",
        "over_voxel_cap_points",
        "over_point_cap_points",
    )
    assert [stats[name] for name in found] == list(counts.values())


@pytest.mark.parametrize(("max_voxels", "max_points"), [(10_000, 1000), (150, 3), (1, 1)])
def test_one_frame(backend, max_voxels, max_points):
    points, features = cloud(1, 3000)
    points[::50] = np.nan
    points[7, 1] = np.inf
    tensor = run(backend, points, features, max_voxels=max_voxels, max_points_per_voxel=max_points)
    assert tensor.spatial_shape == (11, 24, 27)
    assert_equals_reference(backend, tensor, [(points, features)], max_voxels, max_points)


def test_a_batch_is_capped_frame_by_frame(backend):
    frames = [cloud(2, 900), cloud(3, 0), cloud(4, 1200)]
    tensor = run(backend, [p for p, _ in frames], [f for _, f in frames], max_voxels=100, max_points_per_voxel=4)
    assert tensor.batch_size == 3
    assert_equals_reference(backend, tensor, frames, 100, 4)


def test_the_range_is_half_open_and_rounding_stays_inside(backend):
    """Every float32 next to an edge of the range, above and below."""
    edges = []
    for low, high in zip(RANGE[:3], RANGE[3:], strict=True):
        low, high = np.float32(low), np.float32(high)
        near = [low, np.nextafter(low, np.float32(9)), np.nextafter(low, np.float32(-9))]
        edges.append([*near, high, np.nextafter(high, np.float32(-9)), np.nextafter(high, np.float32(9))])
    points = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1).reshape(-1, 3).astype(np.float32)
    features = np.ones((len(points), 2), np.float32)
    tensor = run(backend, points, features, max_points_per_voxel=1000)
    assert_equals_reference(backend, tensor, [(points, features)], 10_000, 1000)
    assert tensor.stats["out_of_range_points"] == len(points) - 3**3  # 3 of the 6 values of each axis are inside
    assert len(tensor) == 8


def test_a_range_whose_voxels_do_not_divide_it_evenly(backend):
    """0.7 = 7 x 0.1 has a float32 quotient above 7 just below the edge; no site may land in an eighth cell."""
    keywords = {"point_cloud_range": (0, 0, 0, 0.7, 0.7, 0.7), "voxel_size": (0.1, 0.1, 0.1)}
    high = np.nextafter(np.float32(0.7), np.float32(0))
    points = np.full((1, 3), high, np.float32)
    tensor = run(backend, points, np.ones((1, 1), np.float32), **keywords)
    assert tensor.spatial_shape == (8, 7, 7)
    assert backend.to_host(tensor.indices).tolist() == [[0, 6, 6, 6]]


def test_published_shapes():
    assert VoxelGrid.make((-54, -54, -5, 54, 54, 3), (0.075, 0.075, 0.2)).spatial_shape == (41, 1440, 1440)
    assert VoxelGrid.make((0, -40, -3, 70.4, 40, 1), (0.05, 0.05, 0.1)).spatial_shape == (41, 1600, 1408)
    assert VoxelGrid.make((-75.2, -75.2, -2, 75.2, 75.2, 4), (0.1, 0.1, 0.15)).spatial_shape == (41, 1504, 1504)
    assert VoxelGrid.make((0, 0, 0, 1, 1, 1), (0.3, 0.3, 0.3)).spatial_shape == (5, 4, 4)


def test_no_points_make_an_empty_tensor(backend):
    tensor = run(backend, np.empty((0, 3), np.float32), np.empty((0, 5), np.float32))
    assert (len(tensor), tensor.features.shape, tensor.stats["voxels"]) == (0, (0, 5), 0)


def test_points_that_are_all_outside_make_an_empty_tensor(backend):
    tensor = run(backend, np.full((9, 3), 100, np.float32), np.ones((9, 2), np.float32))
    assert (len(tensor), tensor.stats["out_of_range_points"]) == (0, 9)


def test_features_that_are_not_finite_are_refused_inside_the_range_only(backend):
    points, features = np.zeros((4, 3), np.float32), np.ones((4, 2), np.float32)
    points[3] = 100
    features[3] = np.nan
    assert len(run(backend, points, features)) == 1
    features[1, 1] = np.nan
    features[2, 0] = np.inf
    with pytest.raises(InputError, match="NaN or infinite values in 2 of the 3 points"):
        run(backend, points, features)


def test_float64_points_are_rounded_once(backend):
    points, features = cloud(5, 400)
    double = run(backend, points.astype(np.float64), features.astype(np.float64))
    assert (backend.to_host(double.indices) == backend.to_host(run(backend, points, features).indices)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": np.zeros((4, 2), np.float32)}, r"points must be a floating-point array of shape \(N, 3\)"),
        ({"points": np.zeros((4, 3), np.int32)}, "points must be a floating-point array"),
        ({"features": np.zeros((3, 2), np.float32)}, "points have 4 rows and features 3"),
        ({"features": np.zeros((4, 0), np.float32)}, "features must be"),
        ({"features": np.zeros(4, np.float32)}, "features must be"),
        ({"points": [np.zeros((4, 3), np.float32)]}, "both be lists"),
        ({"max_voxels": 0}, "max_voxels must be at least 1"),
        ({"max_points_per_voxel": 0}, "max_points_per_voxel must be at least 1"),
        ({"voxel_size": (0.1, 0, 0.1)}, "voxel_size must be three positive lengths"),
        ({"voxel_size": (1e-9, 0.1, 0.1)}, r"at most 2\*\*24"),
        ({"point_cloud_range": (0, 0, 0, 16, 16, 16), "voxel_size": (1e-6, 1e-6, 1e-6)}, r"above 2\*\*62 cells"),
        ({"point_cloud_range": (0, 0, 0, 1, 0, 1)}, "each minimum below its maximum"),
        ({"point_cloud_range": (0, 0, 0, 1, math.inf, 1)}, "each minimum below its maximum"),
        ({"backend": "gpu"}, "backend must be one of"),
    ],
)
def test_bad_input_is_refused(change, message):
    arguments = {"points": np.zeros((4, 3), np.float32), "features": np.zeros((4, 2), np.float32)}
    arguments |= {"point_cloud_range": RANGE, "voxel_size": SIZE, "backend": "cpu", **change}
    with pytest.raises(InputError, match=message):
        voxelize(arguments.pop("points"), arguments.pop("features"), **arguments)
