"""How far float64 rounding can move a computed distance, and rounding outward by it.

All arithmetic happens in a local frame: the target's centre is subtracted from every vertex first. Let ``m`` be the
largest coordinate there, ``u = 2^-53``, and count errors of positions and distances in units of ``sqrt(3) u m``
(``u m`` in each coordinate). Between a value the kernels compute and the exact one lie

===================================================================================================  ============
the shift of A and of B, one rounding each                                                                      2
``k`` levels of edge midpoints, one rounding each                                                               k
edges ``e1, e2`` of a triangle of B instead of its corners (2 each), ``s + t`` over 1 by a rounding (4)         8
``w = p - b0`` (2), ``w - s e1 - t e2`` (4 products and differences of values up to 4 m)                      12
sum of squares and square root: 3 u relative to at most ``2 sqrt(3) m``                                         6
cut points and weights of ``split_bound``: interpolation (5), weights over 1 (4)                               10
``covering_bound`` in place of the last: edges, radius and sums, at most 8 u relative to ``4 sqrt(3) m``       32
pruning of a box by a computed distance: 4 u relative to ``2 sqrt(3) m``                                        8
===================================================================================================  ============

which is below 72 + k for an upper bound. ``certified_distance`` evaluates lower bounds from scalar products of
vectors of length at most ``2 sqrt(3) m``: 3 roundings in the product, 3 in the norm, 2 in the differences, one
division, with pruning and shift below 40 + k. ``(128 + 4 k) u m`` is above ``sqrt(3)`` times either.
Products that underflow lose at most 2^-1074, square roots of their sums less than 2^-500.
"""

from __future__ import annotations

import decimal
import math

UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-500


def error_bound(magnitude: float, depth: int) -> float:
    """Largest error of a distance between coordinates up to ``magnitude`` after ``depth`` halvings."""
    if magnitude == 0.0:
        return 0.0  # both meshes are the same one point: nothing rounds
    return math.nextafter((128 + 4 * depth) * UNIT_ROUNDOFF * magnitude + UNDERFLOW, math.inf)


def round_up(value: float, error: float) -> float:
    """An upper bound of an exact value from a computed one."""
    return math.nextafter(value + error, math.inf) if error > 0.0 else value


def round_down(value: float, error: float) -> float:
    """A lower bound of an exact, non-negative value from a computed one."""
    return max(0.0, math.nextafter(value - error, -math.inf)) if error > 0.0 else value


def printed_below(value: float, digits: int = 17) -> str:
    """The largest number of so many digits that is not above a lower bound, as text: still a lower bound."""
    return _printed(value, digits, decimal.ROUND_FLOOR)


def printed_above(value: float, digits: int = 17) -> str:
    """The smallest number of so many digits that is not below an upper bound, as text: still an upper bound."""
    return _printed(value, digits, decimal.ROUND_CEILING)


def printed_interval(lower: float, upper: float, digits: int = 17) -> str:
    """``[lower, upper]`` as text that contains the interval: rounded to nearest, its ends would prove nothing."""
    return f"[{printed_below(lower, digits)}, {printed_above(upper, digits)}]"


def _printed(value: float, digits: int, rounding: str) -> str:
    exact = decimal.Context(digits, rounding).create_decimal(decimal.Decimal(value))
    return f"{exact.normalize():f}" if 1e-5 <= abs(value) < 1e15 or value == 0.0 else f"{exact.normalize():e}"
