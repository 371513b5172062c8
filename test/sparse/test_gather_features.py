"""Features at points: trilinear over active sites, against a loop over corners in float64."""

import itertools

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import SparseConv3d, VoxelGrid, gather_features, site_centres, voxelize
from radius_fps_ros.sparse.point_features import check_fields

from .reference import random_sites

SHAPE = (5, 6, 7)
GRID = VoxelGrid.make((-1.4, -1.2, -1.0, 2.1, 1.8, 1.0), (0.5, 0.5, 0.5))


def reference(features, indices, positions, batch_index):
    rows = {tuple(site): row for row, site in enumerate(indices.tolist())}
    out = np.zeros((len(positions), features.shape[1]))
    for m, position in enumerate(positions.astype(np.float64)):
        if not (np.abs(position) < 1e6).all():  # NaN, too
            continue
        base, total = np.floor(position).astype(int), 0.0
        for corner in itertools.product((0, 1), repeat=3):
            site = base + corner
            weight = np.prod(1 - np.abs(position - site))
            row = rows.get((batch_index[m], *site.tolist()))
            if row is not None and weight > 0:
                out[m] += weight * features[row]
                total += weight
        if total > 0:
            out[m] /= total
    return out


@pytest.mark.parametrize("density", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_interpolation_equals_the_definition(backend, density, dtype):
    rng = np.random.default_rng(4)
    indices = random_sites(rng, SHAPE, 2, int(density * 2 * np.prod(SHAPE)))
    features = rng.standard_normal((len(indices), 6)).astype(dtype)
    positions = rng.uniform(-2, np.array(SHAPE) + 1, (500, 3)).astype(np.float32)
    positions[:60] = np.round(positions[:60])  # on sites: corners of weight zero must not count
    positions[60] = np.nan
    positions[61] = 1e30
    batch_index = rng.integers(0, 2, 500).astype(np.int32)
    arrays = [backend.to_device(a) for a in (features, indices)]
    queries = [backend.to_device(a) for a in (positions, batch_index)]
    found = backend.to_host(backend.module.interpolate(*arrays, SHAPE, 2, *queries))
    expected = reference(features.astype(np.float64), indices, positions, batch_index)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 2e-5
    assert ((found == 0).all(axis=1) == (expected == 0).all(axis=1)).all()


def test_points_in_metres_find_their_sites(backend):
    """At the centre of a site a point gets that site's features, on the input and behind a strided convolution."""
    rng = np.random.default_rng(5)
    points = rng.uniform(GRID.minimum, GRID.maximum, (60, 3)).astype(np.float32)
    features = rng.standard_normal((60, 4)).astype(np.float32)
    tensor = voxelize(
        backend.to_device(points),
        backend.to_device(features),
        point_cloud_range=GRID.minimum + GRID.maximum,
        voxel_size=GRID.voxel_size,
        backend=backend.name,
    )
    maps = {"input": tensor}
    maps["down"] = SparseConv3d(4, 8, 3, 2, (0, 1, 1))(tensor)
    maps["lower"] = SparseConv3d(8, 8, (3, 1, 1), (2, 1, 1), (1, 0, 0))(maps["down"])
    for name, level in maps.items():
        centres = site_centres(level)
        found = gather_features({name: level}, centres, levels=[name])
        assert np.abs(backend.to_host(found) - backend.to_host(level.features)).max() < 1e-4
    both = gather_features(maps, backend.to_device(points), levels=["input", "down"])
    assert both.shape == (60, 12)
    assert maps["down"].scale == (2, 2, 2)
    assert maps["down"].shift == (1.0, 0.0, 0.0)
    assert maps["lower"].scale == (4, 2, 2)


def test_receptive_field_centres_in_metres():
    points = np.float32([[0.1, 0.1, 0.1]])
    tensor = voxelize(
        points, points, point_cloud_range=(0, 0, 0, 8, 8, 8), voxel_size=(1, 1, 1), backend="cpu"
    )  # fmt: skip
    assert site_centres(tensor).tolist() == [[0.5, 0.5, 0.5]]
    # Kernel 3, stride 2, padding 1: output 0 reads inputs -1, 0, 1.
    assert site_centres(SparseConv3d(3, 1, 3, 2, 1)(tensor)).tolist() == [[0.5, 0.5, 0.5]]


def test_far_away_is_zero_and_other_samples_do_not_leak(backend):
    points = [np.float32([[0.1, 0.1, 0.1]]), np.float32([[0.1, 0.1, 0.1]])]
    features = [np.float32([[1]]), np.float32([[2]])]
    tensor = voxelize(
        [backend.to_device(p) for p in points],
        [backend.to_device(f) for f in features],
        point_cloud_range=(-8, -8, -8, 8, 8, 8),
        voxel_size=(1, 1, 1),
        backend=backend.name,
    )
    queries = backend.to_device(np.float32([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [5, 5, 5], [1e9, 0, 0]]))
    batch = backend.to_device(np.int32([0, 1, 0, 0]))
    found = gather_features({"a": tensor}, queries, levels=["a"], batch_index=batch)
    assert backend.to_host(found).tolist() == [[1], [2], [0], [0]]


@pytest.mark.filterwarnings("error")
def test_points_whose_site_overflows_float32_are_zero_without_a_warning(backend):
    origin = backend.to_device(np.float32([[0.1, 0.1, 0.1]]))
    tensor = voxelize(
        origin, origin, point_cloud_range=(-8, -8, -8, 8, 8, 8), voxel_size=(0.5, 0.5, 0.5), backend=backend.name
    )
    found = gather_features({"a": tensor}, backend.to_device(np.float32([[3e38, 0, 0], [0, -3e38, 0]])), levels=["a"])
    assert backend.to_host(found).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_bad_requests_are_refused(backend):
    tensor = backend.tensor(np.ones((1, 2), np.float32), np.zeros((1, 4), np.int32), SHAPE)
    points = backend.to_device(np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match="levels must name at least one of a, not"):
        gather_features({"a": tensor}, points, levels=["b"])
    with pytest.raises(InputError, match="levels must name"):
        gather_features({"a": tensor}, points, levels=[])
    with pytest.raises(InputError, match=r"shape \(M, 3\)"):
        gather_features({"a": tensor}, points[0], levels=["a"])
    with pytest.raises(InputError, match="carries no voxel grid"):
        gather_features({"a": tensor}, points, levels=["a"])
    with pytest.raises(InputError, match="batch_index must have the shape"):
        gather_features({"a": tensor}, points, levels=["a"], batch_index=backend.to_device(np.zeros(2, np.int32)))


def test_missing_fields_are_named_on_one_line():
    records = np.dtype([(name, np.float32) for name in ("x", "y", "z", "two\nlines")])
    with pytest.raises(InputError, match="no field intensity, which the network reads") as error:
        check_fields(records, ("x", "y", "z", "intensity"))
    assert "\n" not in str(error.value)
