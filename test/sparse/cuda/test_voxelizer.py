"""Voxelization with fixed buffers: the bits of the CPU's, whatever is in the buffers, and never more than they hold."""

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import VoxelGrid, voxelize
from radius_fps_ros.sparse.cuda.rulebook import SiteList
from radius_fps_ros.sparse.cuda.voxelize import COUNTERS, Voxelizer, read_counters

gpu = pytest.mark.gpu


def cloud(rng, count, scale, not_finite=0.2, channels=5):
    points = (rng.standard_normal((count, 3)) * scale).astype(np.float32)
    points[rng.random(count) < not_finite] = np.nan
    return points, rng.standard_normal((count, channels)).astype(np.float32)


GRIDS = {
    "one cell": ((-50, -50, -50, 50, 50, 50), (100, 100, 100), 20),
    "published": ((-54, -54, -5, 54, 54, 3), (0.075, 0.075, 0.2), 20),
    "beyond 32 bits": ((-4e3, -4e3, -4e3, 4e3, 4e3, 4e3), (0.01, 0.01, 0.01), 1e3),
}


@gpu
@pytest.mark.parametrize(("extent", "size", "scale"), GRIDS.values(), ids=GRIDS.keys())
@pytest.mark.parametrize(("max_voxels", "max_points"), [(10**9, 10**10), (500, 3)])
@pytest.mark.parametrize("counts", [[70_000], [31], [20_000, 0, 33, 5_000]], ids=str)
def test_bits_of_the_cpu(extent, size, scale, max_voxels, max_points, counts):
    import cupy

    rng = np.random.default_rng(1)
    frames = [cloud(rng, count, scale) for count in counts]
    options = {"point_cloud_range": extent, "voxel_size": size, "max_voxels": max_voxels}
    options["max_points_per_voxel"] = max_points
    expected = voxelize([p for p, _ in frames], [f for _, f in frames], backend="cpu", **options)
    device = [[cupy.asarray(array) for array in pair] for pair in frames]
    for _ in range(2):
        found = voxelize([p for p, _ in device], [f for _, f in device], backend="cuda", **options)
        assert np.array_equal(found.indices.get(), expected.indices)
        assert np.array_equal(found.features.get().view(np.int32), expected.features.view(np.int32))
        assert {**found.stats, "backend": "cpu"} == expected.stats


@gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_does_not_fit_is_told_and_not_written(dtype):
    """One set of buffers, frame after frame: keys, padded channels, and the rows behind the capacity untouched."""
    import cupy

    rng = np.random.default_rng(2)
    grid = VoxelGrid.make((-5, -5, -2, 5, 5, 2), (0.1, 0.2, 0.2))
    voxelizer = Voxelizer(9000, 3, grid, 4000, 4)
    limit, guard = 1500, 100
    sites = cupy.empty((limit + guard, 4), np.int32)
    keys, means = cupy.empty(limit + guard, np.int64), cupy.empty((limit + guard, 8), dtype)
    words = cupy.empty(2 + len(COUNTERS), np.int32)
    for count in (9000, 100, 0, 3000, 8999):
        points, features = cloud(rng, count, 2, channels=3)
        expected = voxelize(
            points,
            features,
            point_cloud_range=grid.minimum + grid.maximum,
            voxel_size=grid.voxel_size,
            max_voxels=4000,
            max_points_per_voxel=4,
            backend="cpu",
        )
        for array in (sites, keys, means):
            array.fill(77)
        words.fill(0)
        target = SiteList(sites[:limit], keys[:limit], limit, words[:1])
        voxelizer.enqueue(cupy.asarray(points), cupy.asarray(features), target, means[:limit], words[1:2], words[2:])
        written, required = (int(word) for word in words[:2])
        assert (written, required) == (min(len(expected), limit), len(expected))
        assert np.array_equal(sites[:written].get(), expected.indices[:written])
        assert np.array_equal(means[:written, :3].get(), expected.features[:written].astype(dtype))
        assert (means[:written, 3:] == 0).all()
        numbers = np.ravel_multi_index(expected.indices[:written].T, (1, *grid.spatial_shape))
        assert np.array_equal(keys[:written].get(), numbers)
        assert all((array[written:] == 77).all() for array in (sites, keys, means))
        counts = read_counters(words[2:].get())
        assert all(counts[name] == expected.stats[name] for name in set(counts) & set(expected.stats))
        assert counts["dropped_voxels"] == expected.stats["dropped_voxels"]


def test_bad_features_are_told_with_their_number():
    values = [3, 2, 10, 4, 0, 0, 0, 0]
    with pytest.raises(InputError, match="NaN or infinite values in 4 of the 10 points inside the range"):
        read_counters(values)
    values[3] = 0
    assert read_counters(values)["invalid_points"] == 3
