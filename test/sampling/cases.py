"""Clouds and assertions that every method of every backend is held to (``from sampling.cases import ...``)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from radius_fps_ros.sampling.reference import reference_sampling


@dataclass(frozen=True)
class Case:
    make: Callable[[np.random.Generator], np.ndarray]
    n_samples: int
    start: int = 0

    def points(self) -> np.ndarray:
        return self.make(np.random.default_rng(7))


def _lidar(rng: np.random.Generator, beams: int, columns: int) -> np.ndarray:
    """A spinning scanner in a street: ground rings, two walls, range noise, some returns recorded twice."""
    elevation = np.deg2rad(np.linspace(-24.8, 2.0, beams))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, columns, endpoint=False)[None, :]
    with np.errstate(divide="ignore"):
        ground = np.where(elevation < 0, 1.73 / -np.sin(elevation), np.inf)
        wall = 8.0 / np.maximum(np.abs(np.sin(azimuth)), 1e-6) / np.cos(elevation)
    distance = np.minimum(np.minimum(ground, wall), 90.0)
    distance = distance + rng.normal(0, 0.02, distance.shape)
    flat = distance * np.cos(elevation)
    points = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation)], axis=-1)
    points = points.reshape(-1, 3).astype(np.float32)
    again = rng.integers(0, len(points), len(points) // 20)
    points[again] = points[(again * 7) % len(points)]
    return points


def lidar_like(rng: np.random.Generator, n_points: int) -> np.ndarray:
    """``n_points`` of a 32-beam street scan, duplicates included."""
    columns = -(-n_points // 32)
    return _lidar(rng, 32, columns)[:n_points]


def _uniform(n: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.random((n, 3)).astype(np.float32)


def _lattice(side: int, step: float) -> Callable[[np.random.Generator], np.ndarray]:
    def make(rng: np.random.Generator) -> np.ndarray:
        axis = (np.arange(side) - side // 2) * np.float32(step)
        grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3).astype(np.float32)
        return grid[rng.permutation(len(grid))]

    return make


def _duplicates(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, 10, (150, 3)).astype(np.float32)[rng.integers(0, 150, 2000)]


def _collinear(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(0, 30, (1500, 1)) * np.array([[0.3, -0.5, 0.8]])).astype(np.float32)


def _coplanar(rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(0, 20, (2000, 3)).astype(np.float32)
    points[:, 2] = 1.5
    return points


def _non_finite(rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(0, 10, (2000, 3)).astype(np.float32)
    rows = rng.choice(np.arange(1, 2000), 600, replace=False)
    points[rows, rng.integers(0, 3, 600)] = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), 600)
    return points


def _denormal(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(0, 1, (800, 3)) * 3e-23).astype(np.float32)  # squared distances around the smallest subnormal


def _subnormal_coordinates(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(0, 1, (300, 3)) * 1e-40).astype(np.float32)


def _huge(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(0, 1, (800, 3)) * 2e19).astype(np.float32)  # some squared distances overflow to infinity


def _beyond_reach(rng: np.random.Generator) -> np.ndarray:
    """Every squared distance overflows: keys stay infinite, as though no sample had been taken."""
    return np.array([[0, 0, 0], [2e19, 0, 0], [0, 2e19, 0], [-2e19, 0, 0]], np.float32)


def _extreme(rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.array([-3.4e38, -1e30, -1.0, 0.0, 1e-30, 1.0, 3.4e38], np.float32), (500, 3))


def _far_away(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(0, 1, (1500, 3)) + np.array([4.5e5, 5.4e6, 100.0])).astype(np.float32)  # UTM: coarse steps


def _origin_centred(rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(0, 1, (1500, 3)).astype(np.float32)
    points[::50] = 0.0
    points[25::50] *= np.float32(1e-6)
    return points


def _poles_and_seam(rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(0, 10, (2000, 3)).astype(np.float32)
    points[:500, :2] *= np.float32(1e-4)  # on the poles
    points[500:600, :2] = 0.0
    points[600:1200, 0] = -np.abs(points[600:1200, 0])  # at azimuth +-pi, both signs of zero
    points[600:1200, 1] *= np.float32(1e-4)
    points[1200:1300, 1] = 0.0
    points[1300:1400, 1] = -0.0
    return points


def _clusters(rng: np.random.Generator) -> np.ndarray:
    centres = rng.uniform(-100, 100, (12, 3))
    spread = 10.0 ** rng.uniform(-3, 1, 12)
    which = rng.integers(0, 12, 3000)
    return (centres[which] + rng.normal(0, 1, (3000, 3)) * spread[which, None]).astype(np.float32)


def _sorted_line(rng: np.random.Generator) -> np.ndarray:
    points = np.zeros((1024, 3), np.float32)
    points[:, 0] = np.arange(1024)  # every halving ties
    return points


CASES: dict[str, Case] = {
    "one point": Case(_uniform(1), 1),
    "two points": Case(_uniform(2), 2, start=1),
    "two equal points": Case(lambda rng: np.ones((2, 3), np.float32), 2),
    "three points": Case(_uniform(3), 3, start=2),
    "all of 257": Case(_uniform(257), 257, start=100),
    "uniform": Case(_uniform(4000), 500, start=17),
    "uniform, one sample": Case(_uniform(3000), 1, start=2999),
    "uniform, two samples": Case(_uniform(3000), 2),
    "all of 2049": Case(_uniform(2049), 2049),
    "duplicates": Case(_duplicates, 400, start=1999),
    "all equal": Case(lambda rng: np.full((1000, 3), 2.5, np.float32), 10, start=3),
    "all at the origin": Case(lambda rng: np.zeros((1000, 3), np.float32), 10),
    "collinear": Case(_collinear, 300),
    "sorted line": Case(_sorted_line, 1024),
    "coplanar": Case(_coplanar, 400),
    "lattice": Case(_lattice(15, 1.0), 900, start=5),
    "lattice to the last point": Case(_lattice(8, 0.25), 512),
    "lattice off the binary grid": Case(_lattice(13, 0.1), 700),
    "non-finite mixed in": Case(_non_finite, 500),
    "one finite point": Case(lambda rng: np.r_[np.full((99, 3), np.nan), np.ones((1, 3))].astype(np.float32), 5, 99),
    "denormal distances": Case(_denormal, 400),
    "subnormal coordinates": Case(_subnormal_coordinates, 50),
    "huge": Case(_huge, 300),
    "extreme": Case(_extreme, 340),
    "beyond each other's reach": Case(_beyond_reach, 4),
    "far from the origin": Case(_far_away, 600),
    "origin-centred": Case(_origin_centred, 400),
    "poles and seam": Case(_poles_and_seam, 500),
    "clusters": Case(_clusters, 600),
    "lidar-like": Case(lambda rng: lidar_like(rng, 6000), 700, start=3000),
}


def random_case(seed: int) -> tuple[np.ndarray, int, int]:
    """A small random cloud of a random kind with its n_samples and finite start: many seeds make a property test."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 700))
    points = rng.normal(0, 10.0 ** rng.uniform(-3, 3), (n, 3)) + rng.choice([0.0, 0.0, 1e3, 1e6])
    kind = rng.integers(0, 6)
    if kind == 1:  # masses of ties
        points = np.round(points / np.ptp(points) * rng.integers(1, 9))
    elif kind == 2:  # duplicates
        points = points[rng.integers(0, n, n)]
    elif kind == 3:  # a line or a plane
        points[:, rng.integers(0, 3)] = 1.0
        points[:, rng.integers(0, 3)] = -2.0
    elif kind == 4:  # one far outlier flattens every voxel grid
        points[rng.integers(0, n)] *= 1e4
    points = points.astype(np.float32)
    if kind == 5:
        points[rng.random(n) < 0.3] = np.nan
    start = int(rng.integers(0, n))
    points[start] = np.where(np.isfinite(points[start]), points[start], np.float32(0))
    return points, int(rng.integers(1, n + 1)), start


def assert_matches_reference(sample: Callable, points: np.ndarray, n_samples: int, start: int) -> None:
    """``sample(points, n_samples, start=...)`` must give the reference's indices and coverage radius exactly."""
    indices, coverage_squared = reference_sampling(points, n_samples, start)
    result = sample(points, n_samples, start=start)
    assert result.indices.dtype == np.int64
    np.testing.assert_array_equal(result.indices, indices)
    assert result.n_distinct == len(indices)
    assert result.coverage_radius == float(np.sqrt(np.float64(coverage_squared)))
