"""Sparse convolution on the CPU: gather, multiply and add, fused over blocks of output rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from ...device import numba_threads
from ..rulebook import Rulebook
from .kernel import parallel_kernel
from .microkernel import COLUMNS, ROWS, multiply_tile

# Output rows a task owns: their sums stay in the second-level cache while all kernel offsets pass by.
BLOCK = 256


def convolve(
    features: NDArray[Any],
    weight: NDArray[Any],
    rulebook: Rulebook,
    *,
    bias: NDArray[Any] | None = None,
    residual: NDArray[Any] | None = None,
    relu: bool = False,
    algo: str = "auto",
) -> NDArray[Any]:
    """``relu(conv(features) + bias + residual)`` (N_out, C_out) in the type of ``features``, summed in float32.

    There is one algorithm here, so ``algo`` chooses nothing. Each output row is summed by one thread in the order of
    the kernel offsets: the result is the same bits whatever the number of threads.
    """
    width = weight.shape[2]
    single = convolve_packed(
        np.ascontiguousarray(features, dtype=np.float32),
        pack_weight(weight),
        rulebook.neighbours,
        np.zeros(width, np.float32) if bias is None else np.ascontiguousarray(bias, dtype=np.float32),
        None if residual is None else np.ascontiguousarray(residual, dtype=np.float32),
        relu,
    )
    return single.astype(features.dtype, copy=False)


def pack_weight(weight: NDArray[Any]) -> NDArray[np.float32]:
    """Weights (K, C_in, C_out) as (panels, K, C_in, COLUMNS) float32, the last panel padded with zero channels."""
    volume, depth, width = weight.shape
    panels = -(-width // COLUMNS)
    padded = np.zeros((volume, depth, panels * COLUMNS), dtype=np.float32)
    padded[:, :, :width] = weight
    return np.ascontiguousarray(padded.reshape(volume, depth, panels, COLUMNS).transpose(2, 0, 1, 3))


def convolve_packed(
    features: NDArray[np.float32],
    packed: NDArray[np.float32],
    neighbours: NDArray[np.int32],
    bias: NDArray[np.float32],
    residual: NDArray[np.float32] | None,
    relu: bool,
) -> NDArray[np.float32]:
    """``convolve`` with weights that ``pack_weight`` laid out; everything float32 and contiguous."""
    out = np.empty((neighbours.shape[1], len(bias)), dtype=np.float32)
    none = np.empty((0, len(bias)), dtype=np.float32)
    with numba_threads(None):
        _convolve(features, packed, neighbours, bias, none if residual is None else residual, relu, out)
    return out


@parallel_kernel
def _convolve(
    features: NDArray[np.float32],
    packed: NDArray[np.float32],
    neighbours: NDArray[np.int32],
    bias: NDArray[np.float32],
    residual: NDArray[np.float32],
    relu: bool,
    out: NDArray[np.float32],
) -> None:
    panels, volume, depth, _ = packed.shape
    n_out, width = out.shape
    for block in prange((n_out + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        rows = min(BLOCK, n_out - first)
        # One spare row takes what the padding of an incomplete tile computes.
        sums = np.zeros((BLOCK + 1, panels * COLUMNS), dtype=np.float32)
        in_rows = np.empty(BLOCK + ROWS, dtype=np.int32)
        out_rows = np.empty(BLOCK + ROWS, dtype=np.int32)
        for k in range(volume):
            count = 0
            for i in range(rows):
                # Written always and kept only if active: a branch here would be mispredicted at every other site.
                in_rows[count] = neighbours[k, first + i]
                out_rows[count] = i
                count += in_rows[count] >= 0
            if count == 0:
                continue
            for i in range(count, count + ROWS):
                in_rows[i] = in_rows[0]
                out_rows[i] = BLOCK
            for panel in range(panels):
                for i in range(0, count, ROWS):
                    multiply_tile(features, in_rows[i:], packed[panel, k], sums, out_rows[i:], panel * COLUMNS, depth)
        for i in range(rows):
            row = first + i
            for c in range(width):
                value = sums[i, c] + bias[c]
                if residual.shape[0]:
                    value += residual[row, c]
                out[row, c] = max(value, np.float32(0)) if relu else value
