"""A rulebook held against dense convolution, for people who debug networks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device import is_cupy_array
from ..errors import InputError
from .rulebook import Rulebook

MAX_CELLS = 50_000_000


def check_rulebook(rulebook: Rulebook, *, seed: int = 0) -> list[str]:
    """Faults of a rulebook, each in one sentence; an empty list means that it is right.

    Random positive weights and features of one channel, drawn from ``seed``, are convolved in float64, once through the
    pairs and once densely: positive, so that a missing site or pair cannot cancel out.

    Raises:
        InputError: the dense volume would have more than ``MAX_CELLS`` cells; check a smaller crop then.
    """
    inputs, outputs, pairs, counts = (
        _host(array)
        for array in (rulebook.in_indices, rulebook.out_indices, rulebook.indice_pairs, rulebook.indice_num)
    )
    batch_size = 1 + int(max(inputs[:, 0].max(initial=0), outputs[:, 0].max(initial=0)))
    cells = batch_size * prod(
        n + 2 * p for n, p in zip(rulebook.in_spatial_shape, rulebook.geometry.padding, strict=True)
    )
    if cells > MAX_CELLS:
        raise InputError(
            f"the dense volume has {cells} cells, more than {MAX_CELLS}; check a smaller crop of the sites"
        )
    generator = np.random.default_rng(seed)
    features = generator.uniform(0.5, 1.5, len(inputs))
    weight = generator.uniform(0.5, 1.5, rulebook.geometry.volume)
    sparse = np.zeros(len(outputs))
    for k, count in enumerate(counts):
        np.add.at(sparse, pairs[1, k, :count], weight[k] * features[pairs[0, k, :count]])
    dense = _dense(rulebook, inputs, features, weight, batch_size)
    faults = []
    ranks = np.ravel_multi_index(tuple(outputs.T), (batch_size, *rulebook.out_spatial_shape))
    if len(np.unique(ranks)) != len(ranks):
        faults.append("an output site occurs twice")
    if not rulebook.geometry.subm:
        if (np.diff(ranks) <= 0).any():
            faults.append("the output sites are not sorted by (batch, z, y, x)")
        missing = int(np.count_nonzero(dense)) - len(np.unique(ranks[dense.reshape(-1)[ranks] > 0]))
        if missing:
            faults.append(f"{missing} sites that dense convolution reaches are missing from the output")
    expected = dense.reshape(-1)[ranks]
    wrong = np.flatnonzero(np.abs(sparse - expected) > 1e-9 * (1 + expected))
    if len(wrong):
        site = tuple(int(v) for v in outputs[wrong[0]])
        faults.append(
            f"{len(wrong)} output sites differ from dense convolution, first (batch, z, y, x) = {site}: "
            f"{sparse[wrong[0]]:.6g} instead of {expected[wrong[0]]:.6g}"
        )
    return faults


def _dense(
    rulebook: Rulebook, sites: NDArray[Any], features: NDArray[Any], weight: NDArray[Any], batch_size: int
) -> NDArray[np.float64]:
    geometry, shape = rulebook.geometry, rulebook.out_spatial_shape
    margin = geometry.padding
    volume = np.zeros((batch_size, *(n + 2 * p for n, p in zip(rulebook.in_spatial_shape, margin, strict=True))))
    cells = (sites[:, 0], *(sites[:, a + 1] + margin[a] for a in range(3)))
    volume[cells] = features
    out = np.zeros((batch_size, *shape))
    for k, tap in enumerate(geometry.offsets()):
        first = [t * d for t, d in zip(tap, geometry.dilation, strict=True)]
        axes = zip(first, shape, geometry.stride, strict=True)
        window = (slice(None), *(slice(f, f + (n - 1) * s + 1, s) for f, n, s in axes))
        out += weight[k] * volume[window]
    return out


def _host(array: Any) -> Any:
    return array.get() if is_cupy_array(array) else array
