"""Slow and plain: dense convolution in float64, and a rulebook by dictionary."""

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from radius_fps_ros.sparse import SparseTensor


@dataclass(frozen=True)
class Backend:
    """Moves NumPy arrays to the array library under test and back."""

    name: str
    to_device: Callable[[Any], Any]
    to_host: Callable[[Any], Any]

    @property
    def module(self):
        return importlib.import_module(f"radius_fps_ros.sparse.{self.name}")

    def tensor(self, features, indices, shape, batch_size=1, **keywords):
        return SparseTensor(self.to_device(features), self.to_device(indices), shape, batch_size, **keywords)


CPU = Backend("cpu", lambda array: array, lambda array: array)


def dense_convolution(features, indices, shape, batch_size, weight, geometry):
    """Dense cross-correlation (batch, D', H', W', C_out) in float64 of the scattered features."""
    depth, width = weight.shape[1:]
    volume = np.zeros((batch_size, *shape, depth))
    volume[tuple(indices.T)] = features
    pads = [(p, p) for p in geometry.padding]
    volume = np.pad(volume, [(0, 0), *pads, (0, 0)])
    out_shape = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            shape, geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, strict=True
        )
    ]
    out = np.zeros((batch_size, *out_shape, width))
    taps = itertools.product(*(range(k) for k in geometry.kernel_size))
    for k, tap in enumerate(taps):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, geometry.dilation, out_shape, geometry.stride, strict=True)
        )
        out += volume[(slice(None), *window)] @ weight[k].astype(np.float64)
    return out


def reference_rulebook(indices, shape, geometry):
    """Output sites and, for each offset, the list of (input row, output row) ascending by output row."""
    rows = {tuple(site): row for row, site in enumerate(indices.tolist())}
    taps = list(itertools.product(*(range(k) for k in geometry.kernel_size)))

    def source(out, tap):
        position = [
            o * s - p + t * d
            for o, s, p, t, d in zip(out[1:], geometry.stride, geometry.padding, tap, geometry.dilation, strict=True)
        ]
        return rows.get((out[0], *position))

    if geometry.subm:
        outputs = [tuple(site) for site in indices.tolist()]
    else:
        out_shape = geometry.output_shape(tuple(shape))
        reached = set()
        for batch, *position in rows:
            for tap in taps:
                shifted = [
                    i + p - t * d for i, p, t, d in zip(position, geometry.padding, tap, geometry.dilation, strict=True)
                ]
                out = [v // s for v, s in zip(shifted, geometry.stride, strict=True)]
                exact = all(v == o * s for v, o, s in zip(shifted, out, geometry.stride, strict=True))
                if exact and all(0 <= o < n for o, n in zip(out, out_shape, strict=True)):
                    reached.add((batch, *out))
        outputs = sorted(reached)
    pairs = [
        [(source(out, tap), row) for row, out in enumerate(outputs) if source(out, tap) is not None] for tap in taps
    ]
    return outputs, pairs


def random_sites(rng, shape, batch_size, count):
    """``count`` distinct sites in random order."""
    cells = batch_size * int(np.prod(shape))
    chosen = rng.permutation(cells)[:count]
    return np.stack(np.unravel_index(chosen, (batch_size, *shape)), axis=1).astype(np.int32)


def relative_error(found, expected):
    """Largest difference over the largest magnitude; 0 when both are empty."""
    if expected.size == 0:
        return 0.0
    return float(np.abs(found.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))
