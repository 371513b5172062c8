"""The float32 arithmetic that all CPU kernels share.

Keys and bounds are kept as the int32 bits of float32 numbers that are never negative: their order is the same, and
LLVM vectorises a minimum or maximum of integers where the signs and NaNs of floats would stop it. No kernel uses
fastmath: fused or reordered operations would change indices.
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

INFINITE = 0x7F800000
"""The bits of float32 infinity, the key of a point before the first sample."""

NEVER = -0x40800000
"""The bits of float32 -1, the key of a row that may not be chosen: below every distance."""


@njit
def as_float(bits: int) -> np.float32:
    """The float32 whose bits these are."""
    return np.int32(bits).view(np.float32)


@njit
def as_bits(value: np.float32) -> int:
    """The bits of a float32 as int32."""
    return np.float32(value).view(np.int32)


@njit
def distance_bits(dx: np.float32, dy: np.float32, dz: np.float32) -> int:
    """The squared length of a difference, in the rounding order of the contract."""
    return as_bits((dx * dx + dy * dy) + dz * dz)


@njit
def gap(low: np.float32, high: np.float32, q: np.float32) -> np.float32:
    """How far ``q`` lies outside [low, high], rounded as every difference ``p - q`` with p inside would be."""
    return max(max(low - q, q - high), np.float32(0))


@njit
def bound_bits(
    low_x: np.float32,
    high_x: np.float32,
    low_y: np.float32,
    high_y: np.float32,
    low_z: np.float32,
    high_z: np.float32,
    x: np.float32,
    y: np.float32,
    z: np.float32,
) -> int:
    """A lower bound of the float32 squared distance from (x, y, z) to every point in a box.

    It holds for the rounded numbers themselves, with no margin. For p in [low, high] and q < low the real numbers obey
    p - q >= low - q >= 0. Rounding is monotone, so the rounded differences keep that order; squares, then sums of
    numbers that are not negative keep it in the same way, operation by operation. The case q > high is the mirror
    image, and inside the interval the gap is 0.
    """
    return distance_bits(gap(low_x, high_x, x), gap(low_y, high_y, y), gap(low_z, high_z, z))


@njit
def update_run(blocks: np.ndarray, base: int, width: int, x: np.float32, y: np.float32, z: np.float32) -> int:
    """Lower the keys of ``width`` points by their distances to a sample; returns the largest key left.

    The run is stored at ``base`` as width x, width y, width z, width keys: the constant offsets tell LLVM that reads
    and writes do not overlap, and a literal ``width`` that divides into whole vectors leaves no scalar remainder.
    """
    step = np.uintp(width)
    largest = np.int32(NEVER)
    for lane in range(width):
        i = base + np.uintp(lane)  # unsigned: Numba adds no test for negative indices, which would stop vectorisation
        d = distance_bits(
            as_float(blocks[i]) - x, as_float(blocks[i + step]) - y, as_float(blocks[i + step + step]) - z
        )
        k = min(d, blocks[i + step + step + step])
        blocks[i + step + step + step] = k
        largest = max(largest, k)
    return largest
