"""Convolution weights: layouts of published checkpoints, batch norm folding, seeded random values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .geometry import ConvGeometry


def kernel_layout(
    name: str, weight: NDArray[Any], geometry: ConvGeometry, in_channels: int, out_channels: int
) -> NDArray[np.float32]:
    """``weight`` as (K, C_in, C_out) float32, whatever library wrote it.

    Known layouts: spconv 1.x (kz, ky, kx, C_in, C_out), spconv 2.x (C_out, kz, ky, kx, C_in) and (K, C_in, C_out).
    The shape tells them apart, except for a (k, ky, kx, C, k)-like coincidence, where 2.x, the current one, is taken.

    Raises:
        InputError: the shape is none of these; the message names the weight and what was expected.
    """
    kernel = geometry.kernel_size
    volume = geometry.volume
    if weight.shape == (out_channels, *kernel, in_channels):
        flat = weight.reshape(out_channels, volume, in_channels).transpose(1, 2, 0)
    elif weight.shape == (*kernel, in_channels, out_channels):
        flat = weight.reshape(volume, in_channels, out_channels)
    elif weight.shape == (volume, in_channels, out_channels):
        flat = weight
    else:
        raise InputError(
            f"{name} has the shape {weight.shape}; expected {(out_channels, *kernel, in_channels)} (spconv 2.x) "
            f"or {(*kernel, in_channels, out_channels)} (spconv 1.x)"
        )
    return np.ascontiguousarray(flat, dtype=np.float32)


def random_weight(
    generator: np.random.Generator, volume: int, in_channels: int, out_channels: int
) -> NDArray[np.float32]:
    """He-normal weights (K, C_in, C_out) for ReLU (He et al., ICCV 2015)."""
    drawn = generator.standard_normal((volume, in_channels, out_channels), dtype=np.float32)
    return np.asarray(drawn * np.float32(np.sqrt(2 / (volume * in_channels))))


def fold_batch_norm(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    gamma: NDArray[Any],
    beta: NDArray[Any],
    mean: NDArray[Any],
    variance: NDArray[Any],
    epsilon: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight and bias of the convolution followed by batch norm in evaluation mode.

    Args:
        weight: (K, C_in, C_out) of the convolution.
        bias: (C_out,) of the convolution, or ``None``.
        gamma, beta, mean, variance: (C_out,) of the batch norm: its weight and bias, and the statistics it learned.
        epsilon: added to the variance.

    Returns:
        (K, C_in, C_out) and (C_out,), float32, computed in float64.
    """
    factor = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    centred = (0.0 if bias is None else bias.astype(np.float64)) - mean.astype(np.float64)
    folded = weight * factor
    return folded.astype(np.float32), (centred * factor + beta.astype(np.float64)).astype(np.float32)
