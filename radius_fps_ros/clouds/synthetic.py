"""Synthetic clouds, deterministic by seed: a spinning LiDAR driving down a street, and a scanned room.

The street is made of vertical prisms (boxes and cylinders) on flat ground. A ray meets a prism where its interval of
horizontal distances inside the outline overlaps its interval inside the height range. The first interval depends on the
azimuth alone and the second on the beam alone, so one sweep costs a few operations a ray and not a search.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from ..errors import InputError

LIDAR_DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("time", "<f4")]
)
"""A LiDAR point, packed in 22 bytes as Velodyne's driver does: metres, 0-255, beam, seconds since the sweep began."""

ROOM_DTYPE = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4")])

FRAME_SECONDS = 0.1
EGO_SPEED = 8.0  # m/s along +x
STREET_PERIOD = 512.0  # the street repeats after this many metres, so that a drive never ends
SENSOR_HEIGHT = 1.73
MAX_RANGE = 120.0
MIN_RANGE = 1.0
RANGE_NOISE = 0.02  # standard deviation, metres
DROP_OUT = 0.04  # share of returns lost at random, whatever the range
LEAF_FREE_PATH = 1.2  # metres a ray flies through a tree's crown on average before it meets a leaf

Array32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Prism:
    """A vertical box (half length x half width, turned by yaw) or, with a radius, a cylinder; heights above ground."""

    x: float
    y: float
    low: float
    high: float
    half_length: float = 0.0
    half_width: float = 0.0
    yaw: float = 0.0
    radius: float = 0.0
    reflectivity: float = 0.3
    speed: float = 0.0
    leaves: bool = False

    @property
    def reach(self) -> float:
        return self.radius or math.hypot(self.half_length, self.half_width)

    def chord(self, dx: Array32, dy: float, cos: Array32, sin: Array32) -> tuple[Array32, Array32]:
        """Horizontal distances at which rays (cos, sin) enter and leave the outline, whose centre lies at (dx, dy)."""
        if self.radius:
            along = dx * cos + dy * sin
            across = dx * sin - dy * cos
            half = np.sqrt(np.maximum(self.radius**2 - across**2, 0))
            return np.where(np.abs(across) < self.radius, along - half, np.inf), along + half
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / (cos * c + sin * s)
            centre, half = (dx * c + dy * s) * inverse, np.abs(self.half_length * inverse)
            enter, leave = centre - half, centre + half
            inverse = 1 / (sin * c - cos * s)
            centre, half = (dy * c - dx * s) * inverse, np.abs(self.half_width * inverse)
            return np.fmax(enter, centre - half), np.fmin(leave, centre + half)


def _car(rng: np.random.Generator, x: float, y: float, speed: float = 0.0) -> list[_Prism]:
    """A car, or now and then a van: body and cabin."""
    reflectivity = float(rng.uniform(0.1, 0.8))
    yaw = 0.0 if speed else float(rng.normal(0, 0.03))
    if rng.random() < 0.15:
        return [
            _Prism(x, y, 0.3, 2.3, 2.6, 0.98, yaw, reflectivity=reflectivity, speed=speed),
        ]
    length = float(rng.uniform(1.9, 2.4))
    return [
        _Prism(x, y, 0.25, 0.85, length, 0.9, yaw, reflectivity=reflectivity, speed=speed),
        _Prism(x - 0.2, y, 0.85, 1.45, length * 0.55, 0.8, yaw, reflectivity=0.15, speed=speed),
    ]


def _tree(rng: np.random.Generator, x: float, y: float) -> list[_Prism]:
    bottom, top, radius = rng.uniform(2.0, 2.8), rng.uniform(5.5, 8.0), rng.uniform(1.3, 2.3)
    heights = np.linspace(bottom, top, 4)
    crown = [
        _Prism(x, y, float(low), float(high), radius=float(radius * share), reflectivity=0.25, leaves=True)
        for low, high, share in zip(heights[:-1], heights[1:], (0.75, 1.0, 0.6), strict=True)
    ]
    return [_Prism(x, y, 0, float(bottom), radius=float(rng.uniform(0.1, 0.25)), reflectivity=0.2), *crown]


def _street(rng: np.random.Generator) -> list[_Prism]:
    """One period of a street along x: buildings, kerbs, parked and moving cars, poles, trees, people."""
    things = [
        _Prism(0, side * 20, 0, 0.13, 1e4, 14.0, reflectivity=0.35)  # the pavements, with their kerbs at |y| = 6
        for side in (-1, 1)
    ]
    for side in (-1, 1):
        x = 0.0
        while x < STREET_PERIOD - 8:
            width, front = rng.uniform(9, 26), rng.uniform(10, 13)
            width = min(width, STREET_PERIOD - x)
            depth, height = rng.uniform(8, 14), rng.uniform(5, 18)
            things.append(
                _Prism(
                    x + width / 2, side * (front + depth / 2), 0, height, width / 2, depth / 2,
                    reflectivity=rng.uniform(0.2, 0.6),
                )
            )  # fmt: skip
            x += width + (rng.uniform(3, 9) if rng.random() < 0.4 else 0.0)
        for x in np.arange(3, STREET_PERIOD - 3, 6.5).tolist():
            if rng.random() < 0.6:
                things += _car(rng, x + rng.uniform(-0.5, 0.5), side * (4.9 + rng.normal(0, 0.08)))
        for x in np.arange(8 + 6 * side, STREET_PERIOD - 8, 24).tolist():
            things.append(_Prism(x, side * 6.6, 0, 6.5, radius=0.09, reflectivity=0.5))
            if rng.random() < 0.7:
                things += _tree(rng, x + rng.uniform(8, 15), side * rng.uniform(7.2, 8.2))
            if rng.random() < 0.4:
                speed = float(rng.choice([-1.3, 1.3]))
                things.append(
                    _Prism(x + 5, side * rng.uniform(7.5, 9.5), 0.1, 1.75, radius=0.25, reflectivity=0.4, speed=speed)
                )
    for x in np.arange(24, STREET_PERIOD, 48).tolist():
        things += _car(rng, x + rng.uniform(-12, 12), 1.8, speed=-9.0)
    things += _car(rng, 16.0, -1.8, speed=EGO_SPEED)  # the car that the ego vehicle follows
    return things


def _integer(value: object, name: str) -> int:
    if isinstance(value, SupportsIndex):
        return operator.index(value)
    raise InputError(f"{name} is {value!r}; allowed are integers")


class StreetScene:
    """A spinning LiDAR on a vehicle that drives down a street; ``frame(k)`` is sweep ``k`` at 10 Hz.

    Points are given in the sensor's frame at the moment each was measured (x forward, y left, z up, metres), in the
    order of measurement (by azimuth, then by beam), with range noise and without the rays that came back empty. The
    same arguments give the same points.

    Args:
        seed: decides the street and all noise.
        beams: lasers stacked from -24.3 to +2 degrees, the upper half denser as in an HDL-64E; ``ring`` counts them
            from below.
        azimuth_steps: shots of each laser a turn. 64 x 2048 gives about 120,000 points.

    Raises:
        InputError: beams outside 2..1024, azimuth_steps outside 16..65536, a negative seed, or not an integer.
    """

    def __init__(self, seed: int = 0, beams: int = 64, azimuth_steps: int = 2048) -> None:
        seed, beams = _integer(seed, "seed"), _integer(beams, "beams")
        azimuth_steps = _integer(azimuth_steps, "azimuth_steps")
        if not 2 <= beams <= 1024:
            raise InputError(f"beams is {beams}; allowed are 2 to 1024")
        if not 16 <= azimuth_steps <= 65536:
            raise InputError(f"azimuth_steps is {azimuth_steps}; allowed are 16 to 65536")
        if seed < 0:
            raise InputError(f"seed is {seed}; allowed are 0 and above")
        self.seed = seed
        self.beams = beams
        self.azimuth_steps = azimuth_steps
        self._things = _street(np.random.default_rng(seed))
        elevation = np.interp(np.linspace(0, 1, beams), [0, 0.5, 1], [-24.33, -8.6, 2.0])
        elevation = np.deg2rad(elevation).astype(np.float32)
        # A beam of exactly zero slope would divide by zero, and no real one is that level.
        self._slope: Array32 = np.where(np.abs(elevation) < 1e-5, np.float32(1e-5), np.tan(elevation))
        self._cos_elevation: Array32 = np.cos(elevation)
        turn = np.arange(azimuth_steps) / azimuth_steps
        azimuth = np.pi - 2 * np.pi * turn  # clockwise from straight behind, so that the seam lies there
        self._cos = np.cos(azimuth).astype(np.float32)
        self._sin = np.sin(azimuth).astype(np.float32)
        self._time = (turn * FRAME_SECONDS).astype(np.float32)

    def frame(self, k: int) -> npt.NDArray[np.void]:
        """Return sweep ``k`` (0, 1, 2, ...) as (N,) records of LIDAR_DTYPE.

        Raises:
            InputError: ``k`` is negative or not an integer.
        """
        k = _integer(k, "k")
        if k < 0:
            raise InputError(f"k is {k}; allowed are 0 and above")
        rng = np.random.Generator(np.random.SFC64([self.seed, k]))
        distance, reflectivity = self._cast(k * FRAME_SECONDS, rng)

        # An echo grows weaker with the square of the range and on ground that is hit at a grazing angle.
        strength = reflectivity * np.float32(255) / (1 + (distance / 40) ** 2)
        reach = np.float32(MAX_RANGE) * np.sqrt(reflectivity / np.float32(0.5))
        kept = (rng.random(distance.shape, np.float32) >= DROP_OUT) & (distance < reach) & (distance > MIN_RANGE)
        column, beam = np.nonzero(kept)

        noisy = distance[kept] + RANGE_NOISE * rng.standard_normal(column.size, np.float32)
        horizontal = noisy * self._cos_elevation[beam]
        records = np.empty(column.size, LIDAR_DTYPE)
        records["x"] = horizontal * self._cos[column]
        records["y"] = horizontal * self._sin[column]
        records["z"] = horizontal * self._slope[beam]
        records["intensity"] = np.clip(np.rint(strength[kept] * rng.uniform(0.8, 1.2, column.size)), 1, 255)
        records["ring"] = beam
        records["time"] = self._time[column]
        return records

    def _cast(self, start: float, rng: np.random.Generator) -> tuple[Array32, Array32]:
        """Return each ray's distance (infinite: none) and the reflectivity it met, both (azimuth_steps, beams)."""
        slope = self._slope
        road = np.where(slope < 0, SENSOR_HEIGHT / -slope, np.float32(np.inf)).astype(np.float32)
        nearest = np.tile(road, (self.azimuth_steps, 1))
        # Asphalt is dark, and the more grazing the ray the darker.
        grazing = (0.3 * np.sqrt(np.abs(slope) / np.float32(0.4))).astype(np.float32)
        reflectivity = np.tile(grazing, (self.azimuth_steps, 1))
        travelled = (np.float32(EGO_SPEED) * self._time).astype(np.float32)
        for thing in self._things:
            ahead = thing.x + (thing.speed - EGO_SPEED) * start
            ahead = (ahead + STREET_PERIOD / 2) % STREET_PERIOD - STREET_PERIOD / 2
            aside = thing.y + 1.8  # the ego vehicle drives at y = -1.8, on the right
            columns = self._columns(ahead, aside, thing.reach)
            if columns.size == 0:
                continue
            dx = np.float32(ahead) + np.float32(thing.speed) * self._time[columns] - travelled[columns]
            enter, leave = thing.chord(dx, aside, self._cos[columns], self._sin[columns])
            met = (leave > 0) & (enter < leave) & (enter < MAX_RANGE)
            columns, enter, leave = columns[met], np.maximum(enter[met], 0), leave[met]
            if columns.size == 0:
                continue
            low, high = (thing.low - SENSOR_HEIGHT) / slope, (thing.high - SENSOR_HEIGHT) / slope
            first = np.maximum(enter[:, None], np.minimum(low, high).astype(np.float32))
            last = np.minimum(leave[:, None], np.maximum(low, high).astype(np.float32))
            if thing.leaves:
                first += LEAF_FREE_PATH * rng.standard_exponential(first.shape, np.float32)
            old = nearest[columns]
            hit = (first <= last) & (first < old)
            nearest[columns] = np.where(hit, first, old)
            reflectivity[columns] = np.where(hit, np.float32(thing.reflectivity), reflectivity[columns])
        return nearest / self._cos_elevation, reflectivity

    def _columns(self, ahead: float, aside: float, reach: float) -> npt.NDArray[np.intp]:
        """Return the azimuth steps that can meet a thing whose outline lies within ``reach`` of (ahead, aside)."""
        reach += EGO_SPEED * 3 * FRAME_SECONDS  # both may move while the sensor turns
        away = math.hypot(ahead, aside)
        if away - reach > MAX_RANGE:
            return np.empty(0, np.intp)
        steps = self.azimuth_steps
        if away <= reach:
            return np.arange(steps)
        half = np.arcsin(reach / away) / (2 * np.pi) * steps
        middle = (np.pi - np.arctan2(aside, ahead)) / (2 * np.pi) * steps
        columns = np.arange(int(np.floor(middle - half)), int(np.ceil(middle + half)) + 1)
        return columns[:steps] % steps


def street_scan(n_points: int, seed: int = 0) -> npt.NDArray[np.void]:
    """Return one sweep of exactly ``n_points`` points (LIDAR_DTYPE): 64 beams, or 128 above 262,144 points.

    Raises:
        InputError: ``n_points`` is outside 1..4,000,000, the seed is negative, or either is not an integer.
    """
    n_points = _integer(n_points, "n_points")
    if not 1 <= n_points <= 4_000_000:
        raise InputError(f"n_points is {n_points}; allowed are 1 to 4000000")
    beams = 64 if n_points <= 262_144 else 128
    coarse = StreetScene(seed, beams, 256).frame(0).size / 256
    steps = max(16, int(np.ceil(n_points / coarse * 1.02)))
    sweep = StreetScene(seed, beams, steps).frame(0)
    while sweep.size < n_points:
        steps += max(1, steps // 50)
        sweep = StreetScene(seed, beams, steps).frame(0)
    # What is too much goes evenly from the whole turn: no wedge is cut out.
    return sweep[np.linspace(0, sweep.size - 1, n_points).astype(np.intp)]


def room_scan(n_points: int, seed: int = 0) -> npt.NDArray[np.void]:
    """Return ``n_points`` points (ROOM_DTYPE) on the surfaces of a furnished room of about 8 x 6 x 3 m.

    Points are spread evenly by area over floor, ceiling, walls and furniture, with 3 mm of noise, in random order: the
    density of an indoor scan put together from many views.

    Raises:
        InputError: ``n_points`` is outside 1..20,000,000, the seed is negative, or either is not an integer.
    """
    n_points, seed = _integer(n_points, "n_points"), _integer(seed, "seed")
    if not 1 <= n_points <= 20_000_000:
        raise InputError(f"n_points is {n_points}; allowed are 1 to 20000000")
    if seed < 0:
        raise InputError(f"seed is {seed}; allowed are 0 and above")
    rng = np.random.default_rng(seed)
    size = np.array([rng.uniform(7, 9), rng.uniform(5, 7), rng.uniform(2.6, 3.2)])
    corners = [np.zeros(3)]
    extents = [size]
    for _ in range(12):
        extent = rng.uniform([0.4, 0.4, 0.4], [1.8, 0.9, 1.9])
        corners.append(np.append(rng.uniform([0, 0], size[:2] - extent[:2]), 0.0))
        extents.append(extent)
    corner, extent = np.array(corners), np.array(extents)

    # Six faces a box: the axis that a face is normal to, and its side. A piece of furniture shows no underside.
    box, axis, side = (grid.ravel() for grid in np.meshgrid(range(len(corner)), range(3), range(2), indexing="ij"))
    area = np.prod(extent, axis=1)[box] / extent[box, axis]
    area[(box > 0) & (axis == 2) & (side == 0)] = 0
    face = rng.choice(box.size, n_points, p=area / area.sum())
    within = rng.random((n_points, 3))
    within[np.arange(n_points), axis[face]] = side[face]
    xyz = corner[box[face]] + within * extent[box[face]] + rng.normal(0, 0.003, (n_points, 3))
    records = np.empty(n_points, ROOM_DTYPE)
    records["x"], records["y"], records["z"] = xyz.T
    shade = rng.uniform(20, 230, len(corner))[box[face]] + rng.normal(0, 8, n_points)
    records["intensity"] = np.clip(np.rint(shade), 1, 255)
    return records
