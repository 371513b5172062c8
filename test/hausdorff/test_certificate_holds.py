"""The interval as a proof: held against exact rational arithmetic, sampling, motion and published values."""

import json

import numpy as np
import pytest

from radius_fps_ros.hausdorff import Status, certify_hausdorff

from . import shapes
from .exact import distance2_to_mesh, distance2_to_triangle, distances_to_mesh, exceeds, rational

TOLERANCE = 1e-4


def soups(seed):
    rng = np.random.default_rng(seed)
    bits = int(rng.integers(1, 9))
    return rng, shapes.random_soup(rng, rng.integers(1, 6), bits=bits), shapes.random_soup(rng, rng.integers(1, 6))


@pytest.mark.parametrize("seed", range(40))
def test_exact_distances_of_random_soups(seed, backend):
    rng, a, b = soups(seed)
    c = certify_hausdorff(a, b, tolerance=TOLERANCE, backend=backend)
    assert c.status is Status.CONVERGED
    # no point of A is farther than the upper bound, exactly
    for point in shapes.sample_points(rng, a, 60):
        # the sample lies on A up to the rounding of its coordinates
        assert not distance2_to_mesh(point, b) > (rational([c.upper])[0] + rational([1e-15])[0]) ** 2
    # the witness is a point of A whose exact distance is at least the lower bound (coordinates are rounded)
    nearest_to_witness = distance2_to_mesh(c.witness_a, b)
    assert not exceeds(c.lower - 1e-15, nearest_to_witness) or c.lower <= 1e-15
    assert distance2_to_mesh(c.witness_a, a) <= 1e-30
    # its nearest point lies on B, at the distance the interval is about
    assert distance2_to_mesh(c.witness_b, b) <= 1e-28
    assert np.linalg.norm(c.witness_a - c.witness_b) == pytest.approx(float(nearest_to_witness) ** 0.5, abs=1e-13)


@pytest.mark.parametrize("seed", range(8))
def test_brackets_a_dense_sampling(seed, backend):
    rng = np.random.default_rng(seed)
    a, b = shapes.sphere(2), shapes.moved(shapes.sphere(1), rng.normal(size=3) * 0.2, shapes.random_rotation(rng), 1.2)
    if seed % 2:
        a, b = b, shapes.joined(a, shapes.random_soup(rng, 5))
    grid = [(i / 12, j / 12) for i in range(13) for j in range(13 - i)]
    corners = a[0][a[1]]
    points = np.array([c[0] + s * (c[1] - c[0]) + t * (c[2] - c[0]) for c in corners for s, t in grid])
    farthest = distances_to_mesh(points, b).max()
    c = certify_hausdorff(a, b, tolerance=1e-7, backend=backend)
    assert farthest <= c.upper + 1e-12
    longest = max(np.linalg.norm(corners[:, i] - corners[:, i - 1], axis=1).max() for i in range(3))
    assert c.lower <= farthest + longest / 12  # no point of a is farther than that from the grid


@pytest.mark.parametrize("offset", [(0, 0, 0), (500000.25, 4300000.5, 120.125), (-1e7, 3e6, 1e5)])
def test_motion_and_world_coordinates_change_only_rounding(offset, backend):
    rng = np.random.default_rng(5)
    a, b = shapes.sphere(3), shapes.moved(shapes.sphere(2), (0.01, 0, 0))
    plain = certify_hausdorff(a, b, tolerance=1e-8, backend=backend)
    rotation = shapes.random_rotation(rng)
    there = certify_hausdorff(
        shapes.moved(a, offset, rotation), shapes.moved(b, offset, rotation), tolerance=1e-8, backend=backend
    )
    assert there.status is Status.CONVERGED
    # moving the data rounds its coordinates to multiples of 2^-29 at worst
    rounding = 4 * np.spacing(np.abs(offset).max() + 2)
    assert there.lower <= plain.upper + rounding
    assert there.upper >= plain.lower - rounding
    # the subtraction of the origin is exact here: the interval is as narrow as at home
    assert there.relative_gap <= 1e-8


def test_millimetres_in_world_coordinates(backend):
    plane = shapes.rectangle(0, 0, 64, 64)
    x, y, z = offset = 500000.0, 4300000.0, 100.0
    c = certify_hausdorff(
        shapes.moved(plane, offset), shapes.moved(plane, (x, y, z + 2.0**-9)), tolerance=1e-12, backend=backend
    )
    assert c.lower <= 2.0**-9 <= c.upper
    assert c.upper - c.lower < 1e-10


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e9, 1e60])
def test_scale_changes_only_rounding(scale, backend):
    a, b = shapes.sphere(2), shapes.moved(shapes.sphere(3), (0.1, 0.2, 0))
    plain = certify_hausdorff(a, b, backend=backend)
    scaled = certify_hausdorff(shapes.moved(a, scale=scale), shapes.moved(b, scale=scale), backend=backend)
    assert scaled.status is Status.CONVERGED
    assert scaled.lower <= plain.upper * scale * (1 + 1e-12)
    assert scaled.upper >= plain.lower * scale * (1 - 1e-12)


def test_order_of_faces_and_corners_does_not_matter(backend):
    rng = np.random.default_rng(3)
    a, b = shapes.sphere(3), shapes.moved(shapes.sphere(2), (0.05, 0.02, 0))
    plain = certify_hausdorff(a, b, backend=backend)
    order, names = rng.permutation(len(a[1])), rng.permutation(len(a[0]))
    faces = np.argsort(names)[a[1]][order][:, [1, 2, 0]]
    shuffled = certify_hausdorff((a[0][names], faces), b, backend=backend)
    assert shuffled.lower <= plain.upper
    assert shuffled.upper >= plain.lower


def test_unused_vertices_do_not_count(backend):
    a, b = shapes.sphere(1), shapes.moved(shapes.sphere(1), (0.5, 0, 0))
    far = np.concatenate([a[0], [[1e6, 0, 0]]]), a[1]
    c, d = certify_hausdorff(a, b, backend=backend), certify_hausdorff(far, b, backend=backend)
    assert (c.lower, c.upper) == (d.lower, d.upper)


def test_same_answer_every_time(backend):
    a, b = shapes.sphere(4), shapes.moved(shapes.sphere(3), (0.01, 0, 0))
    first, second = (certify_hausdorff(a, b, backend=backend) for _ in range(2))
    assert (first.lower, first.upper, first.triangles) == (second.lower, second.upper, second.triangles)
    assert (first.witness_a == second.witness_a).all()


@pytest.mark.parametrize("tolerance", [1e-3, 1e-4, 1e-6])
def test_published_values(data_dir, tolerance, backend):
    pairs = json.loads((data_dir / "meshes" / "reference.json").read_text())
    for pair in pairs:
        a, b = (np.load(data_dir / "meshes" / pair[key]) for key in "AB")
        c = certify_hausdorff((a["V"], a["F"]), (b["V"], b["F"]), tolerance=tolerance, backend=backend)
        assert c.status is Status.CONVERGED, pair["id"]
        published = pair["directed_A_to_B"]
        # theirs is rounded to nearest, ours outward
        assert c.lower <= published["upper"], pair["id"]
        assert c.upper >= published["lower"], pair["id"]


def test_reference_distances():
    rng = np.random.default_rng(2)
    mesh, points = shapes.random_soup(rng, 6), rng.normal(size=(20, 3))
    exactly = [float(distance2_to_mesh(p, mesh)) ** 0.5 for p in points]
    np.testing.assert_allclose(distances_to_mesh(points, mesh), exactly, rtol=1e-12)
    corners = [rational(v) for v in shapes.triangle((0, 0, 0), (4, 0, 0), (0, 4, 0))[0]]
    assert distance2_to_triangle(rational((1, 1, 3)), *corners) == 9
    assert distance2_to_triangle(rational((4, 4, 0)), *corners) == 8
    assert distance2_to_triangle(rational((-3, -4, 0)), *corners) == 25
    assert distance2_to_triangle(rational((2, -5, 0)), *corners) == 25
