"""Distances known in closed form: the interval contains them and is as narrow as asked."""

import math

import numpy as np
import pytest

from radius_fps_ros.hausdorff import Status, certify_hausdorff

from . import shapes

UNIT = shapes.triangle((0, 0, 0), (1, 0, 0), (0, 1, 0))
ACUTE = shapes.triangle((0, 0, 0), (4, 0, 0), (1, 3, 0))
OBTUSE = shapes.triangle((0, 0, 0), (10, 0, 0), (4, 1, 0))


def circumradius(mesh):
    a, b, c = mesh[0]
    sides = np.linalg.norm(b - c), np.linalg.norm(c - a), np.linalg.norm(a - b)
    return math.prod(sides) / (2 * np.linalg.norm(np.cross(b - a, c - a)))


def bisector_crossing(mesh):
    """Where the bisector of the longer short side meets the longest side: farthest from the corners."""
    a, b, c = mesh[0]
    crossings = []
    for end, other in ((a, b), (b, a)):
        side, longest = c - end, other - end
        crossings.append(side @ side * np.linalg.norm(longest) / (2 * side @ longest))
    return max(crossings)


CASES = {
    "parallel triangles": (UNIT, shapes.moved(UNIT, (0, 0, 2.5)), 2.5),
    "shifted in its plane": (UNIT, shapes.moved(UNIT, (3, 0, 0)), 3.0),
    "point to point": (shapes.points((1, 2, 3)), shapes.points((4, 6, 3)), 5.0),
    "point to its own place": (shapes.points((1, 2, 3)), shapes.points((1, 2, 3)), 0.0),
    "point to segment": (shapes.points((5, 3, 0)), shapes.segment((0, 0, 0), (10, 0, 0)), 3.0),
    "segment to point": (shapes.segment((0, 0, 0), (10, 0, 0)), shapes.points((5, 12, 0)), 13.0),
    "segment to triangle": (shapes.segment((0.1, 0.1, 1), (0.1, 0.1, 7)), UNIT, 7.0),
    "triangle to two points": (
        shapes.rectangle(-1, -1, 1, 1),
        shapes.points((-1, 0, 0), (1, 0, 0)),
        math.sqrt(2),
    ),
    "between two segments": (
        shapes.segment((0, 0, 0), (0, 10, 0)),
        shapes.joined(shapes.segment((0, 0, 0), (0, 1, 0)), shapes.segment((0, 7, 0), (0, 10, 0))),
        3.0,
    ),
    "acute triangle to its corners": (ACUTE, shapes.points(*ACUTE[0]), circumradius(ACUTE)),
    "obtuse triangle to its corners": (OBTUSE, shapes.points(*OBTUSE[0]), bisector_crossing(OBTUSE)),
    "rectangle to an edge": (shapes.rectangle(0, 0, 4, 3), shapes.segment((0, 0, 0), (4, 0, 0)), 3.0),
    "coplanar overlap": (shapes.rectangle(0, 0, 4, 3), shapes.rectangle(0, 0, 3, 3), 1.0),
    "part of a plane": (shapes.rectangle(1, 1, 2, 2), shapes.rectangle(0, 0, 3, 3), 0.0),
    "tetrahedron moved": (shapes.tetrahedron(), shapes.moved(shapes.tetrahedron(), (0, 0, 10)), 10.0),
    "tetrahedron doubled": (shapes.tetrahedron(2.0), shapes.tetrahedron(1.0), math.sqrt(3)),
    "identical": (shapes.tetrahedron(), shapes.tetrahedron(), 0.0),
    "own subdivision": (shapes.sphere(2), shapes.subdivide(shapes.sphere(2)), 0.0),
    "subdivision to its origin": (shapes.subdivide(shapes.sphere(2)), shapes.sphere(2), 0.0),
    "duplicate faces": (shapes.joined(UNIT, UNIT), shapes.moved(shapes.joined(UNIT, UNIT), (0, 0, 1)), 1.0),
    "concentric spheres": (shapes.sphere(4, 2.0), shapes.points((0, 0, 0)), 2.0),
    # the far corner of the needle decides, however thin it is
    "needle": (shapes.triangle((0, 0, 0), (100, 0, 0), (100, 1e-9, 0)), shapes.segment((0, 0, 1), (90, 0, 1)),
               math.sqrt(101)),
}  # fmt: skip


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("case", CASES)
def test_contains_the_distance(case, tolerance, backend):
    a, b, expected = CASES[case]
    c = certify_hausdorff(a, b, tolerance=tolerance, backend=backend)
    assert c.status is Status.CONVERGED
    # `expected` is rounded itself
    assert c.lower <= expected * (1 + 1e-15)
    assert c.upper >= expected * (1 - 1e-15)
    assert 0 <= c.relative_gap <= tolerance
    assert c.backend == backend


@pytest.mark.parametrize("case", CASES)
def test_symmetric_is_the_larger_direction(case, backend):
    a, b, _ = CASES[case]
    forward, back = certify_hausdorff(a, b, backend=backend), certify_hausdorff(b, a, backend=backend)
    c = certify_hausdorff(a, b, symmetric=True, backend=backend)
    assert c.status is Status.CONVERGED
    assert c.lower <= max(forward.upper, back.upper)
    assert c.upper >= max(forward.lower, back.lower)
    assert c.triangles >= forward.triangles
    if forward.lower > back.upper:
        assert c.direction == "a_to_b"
    if back.lower > forward.upper:
        assert c.direction == "b_to_a"


def test_perturbed_copy_near_zero(backend):
    mesh = shapes.sphere(4)
    noise = np.random.default_rng(1).normal(size=mesh[0].shape) * 1e-7
    c = certify_hausdorff(mesh, (mesh[0] + noise, mesh[1]), tolerance=1e-9, backend=backend)
    assert c.status is Status.CONVERGED
    assert 1e-8 < c.lower <= c.upper < 1e-6


def test_float64_limits_how_far_the_interval_closes(backend):
    c = certify_hausdorff(UNIT, UNIT, tolerance=1e-17, backend=backend)
    assert c.status is Status.PRECISION_LIMIT
    assert c.lower == 0
    assert c.upper < 1e-13


def test_a_speck_against_a_large_mesh(backend):
    """The tolerance is a part of the speck's size, below what the large mesh's coordinates can hold."""
    speck, large = shapes.moved(UNIT, scale=1e-9), shapes.moved(shapes.tetrahedron(), scale=1e6)
    distances = [
        certify_hausdorff(*pair, absolute_tolerance=1.0, backend=backend) for pair in ((speck, large), (large, speck))
    ]
    for symmetric in (False, True):
        c = certify_hausdorff(speck, large, symmetric=symmetric, backend=backend)
        assert c.status is Status.PRECISION_LIMIT
        assert c.upper - c.lower < 1e-6
        assert c.lower <= distances[symmetric].upper
        assert c.upper >= distances[symmetric].lower
