"""Sort a cloud so that points near in space lie near in memory: codes of grid cells, then a radix sort of the codes.

The grids only decide how tight the voxels are, never which samples are chosen: bounds come from the points themselves.
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from .kernel import kernel
from .parallel import run_chunks, split
from .workspace import Workspace

CURVE_BITS = 7  # a side of the Cartesian grid has 2^7 cells; finer ones tighten the voxels by less than they cost
DIGIT_BITS = 11  # two digits of 11 bits hold every code, and 2,048 write positions still lie in the L2 cache
NOT_FINITE = 1 << (2 * DIGIT_BITS - 1)  # above every cell's code: such rows come last
ROW_MASK = 0xFFFFFFFF
CODE_SHIFT = 32

_SAMPLE = 256


@dataclass(frozen=True)
class CartesianGrid:
    """A cube of 2^7 cells a side; points beyond it count to its outermost cells."""

    low: np.ndarray
    scale: np.float32

    @staticmethod
    def of(points: np.ndarray) -> CartesianGrid:
        """The cube around the bulk of ``points`` (N, 3) float32."""
        low, high = _bulk_range(_finite_sample(points))
        return CartesianGrid(_float32(low), _scale(float((high - low).max()), 1 << CURVE_BITS))

    def encode(self, points: np.ndarray, keyed: np.ndarray, skipped: np.ndarray, chunks: list[tuple[int, int]]) -> None:
        """Write each row's code and number to ``keyed`` and the count of rows that are not finite to ``skipped``."""
        run_chunks(_encode_cartesian, chunks, points.reshape(-1), *self.low, self.scale, keyed, skipped)


@dataclass(frozen=True)
class SphericalGrid:
    """Cells of equal steps in range, sine of elevation and azimuth around ``centre`` (RadiusFPS, section on voxels).

    The azimuth is measured along the unit diamond |x| + |y| = 1 in place of the circle: as monotone as the angle, and
    without a call of atan2 for every point.
    """

    centre: np.ndarray
    low: np.ndarray
    scale: np.ndarray
    cells: np.ndarray

    @staticmethod
    def of(points: np.ndarray, max_cells: int) -> SphericalGrid:
        """A grid of at most ``max_cells`` cells, about as long as wide as high at the median range.

        Its centre is the origin, the sensor of a scan, where the cloud surrounds it, else the box point nearest to it.
        """
        sample = _finite_sample(points).astype(np.float64)
        centre = _float32(np.clip(0.0, *_bulk_range(sample)))
        x, y, z = sample - centre[:, None]
        distance = np.sqrt(x * x + y * y + z * z)
        flat = np.abs(x) + np.abs(y)
        along = y / np.maximum(flat, np.finfo(np.float64).tiny)
        azimuth = np.where(x < 0, np.copysign(2.0, y) - along, along)
        sine = z / np.maximum(distance, np.finfo(np.float64).tiny)
        low, high = _bulk_range(np.stack([distance, sine, azimuth]))
        lengths = (high - low) * np.array([1.0, 1.0, math.pi / 2]) * np.array([1.0, *2 * [float(np.median(distance))]])
        cells = _cells_of_equal_side(lengths, max_cells)
        scale = np.array([_scale(float(e), int(c)) for e, c in zip(high - low, cells, strict=True)])
        return SphericalGrid(centre, _float32(low), scale, cells)

    def encode(self, points: np.ndarray, keyed: np.ndarray, skipped: np.ndarray, chunks: list[tuple[int, int]]) -> None:
        """See `CartesianGrid.encode`."""
        run_chunks(
            _encode_spherical,
            chunks,
            points.reshape(-1),
            *self.centre,
            *self.low,
            *self.scale,
            *self.cells,
            keyed,
            skipped,
        )


def sort_by_cell(
    points: np.ndarray, grid: CartesianGrid | SphericalGrid, workspace: Workspace, threads: int
) -> tuple[np.ndarray, int]:
    """Order the rows of ``points`` (N, 3) float32 by the cells of ``grid``, stable within a cell.

    Returns:
        (N,) uint64, cell code in the upper and row in the lower 32 bits, and how many leading ones are finite.
    """
    n = len(points)
    chunks = split(n, threads)
    keyed = workspace.array("keyed", n, np.uint64)
    moved = workspace.array("moved", n, np.uint64)
    counts = workspace.array("digit counts", threads << DIGIT_BITS, np.int64).reshape(threads, -1)
    skipped = workspace.array("skipped", threads, np.int64)
    grid.encode(points, keyed, skipped, chunks)
    for shift, source, target in ((CODE_SHIFT, keyed, moved), (CODE_SHIFT + DIGIT_BITS, moved, keyed)):
        run_chunks(_count_digits, chunks, source, shift, counts)
        _counts_to_offsets(counts)
        run_chunks(_scatter, chunks, source, shift, counts, target)
    return keyed, n - int(skipped.sum())


def _finite_sample(points: np.ndarray) -> np.ndarray:
    """A few hundred of the finite points, (3, S)."""
    # An odd step: an even one can meet the same beam of a column-wise scan every time.
    sample = points[:: max(1, len(points) // _SAMPLE) | 1].T
    finite = np.isfinite(sample).all(axis=0)
    return sample[:, finite] if finite.any() else np.zeros((3, 1), np.float32)


def _bulk_range(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Range of each row, float64, cut where a few outliers would stretch it many times beyond the bulk."""
    ranked = np.sort(rows, axis=1)
    tenth = (ranked.shape[1] - 1) // 10
    first, low, high, last = (ranked[:, i].astype(np.float64) for i in (0, tenth, -1 - tenth, -1))
    reach = 4 * (high - low).max()
    if reach == 0:
        return first, last
    return np.maximum(first, low - reach), np.minimum(last, high + reach)


def _float32(values: np.ndarray) -> np.ndarray:
    largest = np.finfo(np.float32).max
    return np.clip(values, -largest, largest).astype(np.float32)


def _scale(extent: float, cells: int) -> np.float32:
    """Cells a unit; bounded so that 0 times it stays 0."""
    return np.float32(min(cells / extent, 1e38) if extent > 0 else 0.0)


def _cells_of_equal_side(lengths: np.ndarray, max_cells: int) -> np.ndarray:
    """How many cells each of three lengths gets so that cells are cubes and no more than ``max_cells`` in all."""
    cells = np.ones(3, np.int64)
    order = np.argsort(lengths)  # a length shorter than the side gets one cell and leaves its share to the others
    budget = float(max_cells)
    for rank, axis in enumerate(order):
        rest = lengths[order[rank:]]
        if lengths[axis] > 0:
            side = float(np.prod(rest / rest[-1]) / budget) ** (1 / len(rest)) * rest[-1]
            cells[axis] = max(1, int(lengths[axis] / side))
        budget /= cells[axis]
    return cells


@njit
def _spread(v: np.uint32) -> np.uint32:
    """The low 10 bits moved to every third position."""
    v = (v | (v << np.uint32(16))) & np.uint32(0x030000FF)
    v = (v | (v << np.uint32(8))) & np.uint32(0x0300F00F)
    v = (v | (v << np.uint32(4))) & np.uint32(0x030C30C3)
    return (v | (v << np.uint32(2))) & np.uint32(0x09249249)


@njit
def _cell(offset: np.float32, scale: np.float32, cells: int) -> np.uint32:
    """Cell number, 0 to cells - 1; NaN gives 0. Compared before conversion, which is undefined beyond the integers."""
    t = offset * scale
    t = t if t > np.float32(0) else np.float32(0)
    last = np.float32(cells - 1)
    return np.uint32(np.int32(t if t < last else last))


@njit
def _is_finite(x: np.float32, y: np.float32, z: np.float32) -> bool:
    return ((x - x) + (y - y)) + (z - z) == np.float32(0)


@njit
def _keyed_row(code: np.uint32, row: int) -> np.uint64:
    return (np.uint64(code) << np.uint64(CODE_SHIFT)) | np.uint64(row)


@kernel
def _encode_cartesian(xyz, low_x, low_y, low_z, scale, keyed, skipped, k, begin, end):
    """Morton code of the cell, read as a Gray code (Faloutsos 1988): neighbours on it differ in one coordinate.

    That tightens the voxels nearly as well as a Hilbert curve does, for five shifts.
    """
    bad = 0
    for row in range(begin, end):
        i = np.uintp(3) * np.uintp(row)
        x, y, z = xyz[i], xyz[i + np.uintp(1)], xyz[i + np.uintp(2)]
        code = (
            _spread(_cell(x - low_x, scale, 1 << CURVE_BITS))
            | (_spread(_cell(y - low_y, scale, 1 << CURVE_BITS)) << np.uint32(1))
            | (_spread(_cell(z - low_z, scale, 1 << CURVE_BITS)) << np.uint32(2))
        )
        code ^= code >> np.uint32(1)
        code ^= code >> np.uint32(2)
        code ^= code >> np.uint32(4)
        code ^= code >> np.uint32(8)
        code ^= code >> np.uint32(16)
        finite = _is_finite(x, y, z)
        bad += 0 if finite else 1
        keyed[np.uintp(row)] = _keyed_row(code if finite else np.uint32(NOT_FINITE), row)
    skipped[k] = bad


@kernel
def _encode_spherical(
    xyz,
    centre_x,
    centre_y,
    centre_z,
    low_r,
    low_e,
    low_a,
    scale_r,
    scale_e,
    scale_a,
    n_r,
    n_e,
    n_a,
    keyed,
    skipped,
    k,
    begin,
    end,
):
    tiny = np.float32(1.2e-38)
    bad = 0
    for row in range(begin, end):
        i = np.uintp(3) * np.uintp(row)
        x, y, z = xyz[i] - centre_x, xyz[i + np.uintp(1)] - centre_y, xyz[i + np.uintp(2)] - centre_z
        r = np.sqrt(np.float32((x * x + y * y) + z * z))
        along = y / max(abs(x) + abs(y), tiny)
        azimuth = along if x >= np.float32(0) else (np.float32(2) if y >= np.float32(0) else np.float32(-2)) - along
        sine = z / max(r, tiny)
        code = (_cell(r - low_r, scale_r, n_r) * np.uint32(n_e) + _cell(sine - low_e, scale_e, n_e)) * np.uint32(
            n_a
        ) + _cell(azimuth - low_a, scale_a, n_a)
        finite = _is_finite(xyz[i], xyz[i + np.uintp(1)], xyz[i + np.uintp(2)])
        bad += 0 if finite else 1
        keyed[np.uintp(row)] = _keyed_row(code if finite else np.uint32(NOT_FINITE), row)
    skipped[k] = bad


@kernel
def _count_digits(keyed, shift, counts, k, begin, end):
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    mine = counts[k]
    mine[:] = 0
    for i in range(begin, end):
        mine[np.uintp((keyed[np.uintp(i)] >> np.uint64(shift)) & mask)] += 1


@kernel
def _counts_to_offsets(counts):
    """Where each chunk writes its first item of each digit: digit by digit, in a digit chunk by chunk."""
    total = 0
    for digit in range(counts.shape[1]):
        for k in range(counts.shape[0]):
            here = counts[k, digit]
            counts[k, digit] = total
            total += here


@kernel
def _scatter(source, shift, counts, target, k, begin, end):
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    mine = counts[k]
    for i in range(begin, end):
        item = source[np.uintp(i)]
        digit = np.uintp((item >> np.uint64(shift)) & mask)
        position = mine[digit]
        mine[digit] = position + 1
        target[np.uintp(position)] = item
