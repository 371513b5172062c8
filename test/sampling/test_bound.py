"""The pruning bound is never above a distance, in float32 itself, and the pieces it stands on."""

import numpy as np
import pytest
from numba import njit

from radius_fps_ros.sampling.cpu import order
from radius_fps_ros.sampling.cpu.arithmetic import as_bits, as_float, bound_bits, distance_bits
from radius_fps_ros.sampling.cpu.workspace import Workspace


@njit(error_model="numpy")
def _worst(low, high, inside, queries):
    """Count bounds above the distance to a point of the box, and bounds that reach it."""
    above = 0
    equal = 0
    for i in range(len(low)):
        q = queries[i]
        bound = bound_bits(low[i, 0], high[i, 0], low[i, 1], high[i, 1], low[i, 2], high[i, 2], q[0], q[1], q[2])
        for j in range(inside.shape[1]):
            p = inside[i, j]
            distance = distance_bits(p[0] - q[0], p[1] - q[1], p[2] - q[2])
            above += bound > distance
            equal += bound == distance
    return above, equal


def _clouds(seed):
    """Voxels of 8 points and a query each, from ordinary to absurd magnitudes, many queries on or next to the box."""
    rng = np.random.default_rng(seed)
    n = 40_000
    with np.errstate(over="ignore"):
        scale = 10.0 ** rng.choice([-42, -30, -22, -3, 0, 2, 6, 18, 19.2, 38], (n, 1, 1))
        offset = scale * rng.choice([0.0, 1.0, 1e3, 1e7], (n, 1, 1)) * rng.choice([-1, 1], (n, 1, 3))
        points = (rng.normal(0, 1, (n, 8, 3)) * scale + offset).astype(np.float32)
        queries = (rng.normal(0, 1, (n, 3)) * scale[:, 0] * rng.choice([0.3, 1, 3, 1e4], (n, 1)) + offset[:, 0]).astype(
            np.float32
        )
    largest = np.finfo(np.float32).max
    points, queries = (np.clip(a, -largest, largest) for a in (points, queries))
    low, high = points.min(axis=1), points.max(axis=1)
    edge = rng.integers(0, 6, (n, 3))  # a coordinate of the query on a face, or one ulp beside it
    queries = np.where(edge == 0, low, np.where(edge == 1, high, queries))
    queries = np.where(
        edge == 2, np.nextafter(low, -largest), np.where(edge == 3, np.nextafter(high, largest), queries)
    )
    return low, high, points, queries


def test_the_bound_is_never_above_a_distance_in_millions_of_cases():
    pairs = reached = 0
    for seed in range(12):
        low, high, points, queries = _clouds(seed)
        above, equal = _worst(low, high, points, queries)
        assert above == 0
        pairs += points.shape[0] * points.shape[1]
        reached += equal
    assert pairs > 3_000_000
    assert reached > 1000  # the bound is tight, not merely small


def test_a_bound_one_ulp_larger_would_be_caught():
    low, high, points, queries = _clouds(0)
    wider = np.nextafter(high, -np.finfo(np.float32).max)  # a box that misses its outermost point by one ulp
    assert _worst(np.minimum(low, wider), wider, points, queries)[0] > 0


def test_bits_keep_the_order_of_numbers_that_are_not_negative():
    values = np.array([0.0, 1e-45, 1e-38, 0.5, 1.0, 3.4e38, np.inf], np.float32)
    bits = [as_bits(v) for v in values]
    assert bits == sorted(bits)
    assert [as_float(b) for b in bits] == values.tolist()


GRIDS = [order.CartesianGrid.of, lambda points: order.SphericalGrid.of(points, max(256, len(points) // 32))]


@pytest.mark.parametrize("grid_of", GRIDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_sorting_by_cell_is_a_stable_permutation_with_bad_rows_last(grid_of, threads):
    rng = np.random.default_rng(8)
    points = (rng.normal(0, 1, (5000, 3)) * [30, 30, 2]).astype(np.float32)
    points[rng.random(5000) < 0.2, 1] = np.nan
    points[17] = np.inf
    points.flags.writeable = False  # as the engine passes them
    keyed, n = order.sort_by_cell(points, grid_of(points), Workspace(), threads)
    rows = (keyed & np.uint64(order.ROW_MASK)).astype(np.int64)
    assert sorted(rows) == list(range(5000))
    finite = np.isfinite(points).all(axis=1)
    assert n == finite.sum()
    assert finite[rows[:n]].all()
    assert (np.diff(keyed[:n].astype(np.int64)) > 0).all()  # by code, then by row


@pytest.mark.parametrize("grid_of", GRIDS)
@pytest.mark.parametrize(
    "points",
    [
        np.zeros((4, 3)),
        np.full((4, 3), np.nan),
        np.array([[3.4e38, -3.4e38, 3.4e38], [-3.4e38, 3.4e38, -3.4e38]]),
        np.array([[1e-45, 0, 0], [0, 1e-45, 0]]),
        np.c_[np.arange(100.0), np.zeros((100, 2))],
    ],
)
def test_degenerate_clouds_have_a_grid(grid_of, points):
    points = points.astype(np.float32)
    points.flags.writeable = False
    _, n = order.sort_by_cell(points, grid_of(points), Workspace(), 1)
    assert n == np.isfinite(points).all(axis=1).sum()


def test_the_spherical_grid_holds_at_most_the_cells_asked_for_and_most_of_them_on_a_ball():
    rng = np.random.default_rng(1)
    ball = rng.normal(0, 1, (20_000, 3)).astype(np.float32)
    cells = order.SphericalGrid.of(ball, 600).cells
    assert 300 < np.prod(cells) <= 600
    assert (cells > 1).all()
    flat = ball * np.float32([1, 1, 0])
    assert np.prod(order.SphericalGrid.of(flat, 600).cells) <= 600
