"""A whole network on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import InputError
from ..network import FeatureMaps, LayerSpec, make_feature_maps, not_finite_message
from ..tensor import SparseTensor
from .convolve import convolve_packed, pack_weight


class CpuBackbone:
    """Runs a chain of layers on NumPy tensors; sums are float32, float16 only rounds what is returned."""

    def __init__(self, layers: Sequence[LayerSpec], *, dtype: str) -> None:
        self._layers = tuple(layers)
        self._packed = [pack_weight(layer.weight) for layer in self._layers]
        self._dtype = np.dtype(dtype)
        self._read_later = {layer.residual for layer in self._layers}

    def __call__(self, tensor: SparseTensor) -> FeatureMaps:
        """All tensors that the layers name as outputs."""
        features = np.ascontiguousarray(tensor.features, dtype=np.float32)
        if not_finite := int(features.size - np.count_nonzero(np.isfinite(features))):
            raise InputError(not_finite_message(not_finite))
        current = tensor.replace_features(features)
        kept: dict[int, np.ndarray] = {}
        outputs = {}
        for i, layer in enumerate(self._layers):
            rulebook = current.rulebook(layer.geometry, layer.indice_key)
            residual = kept[layer.residual] if layer.residual is not None else None
            features = convolve_packed(
                current.features, self._packed[i], rulebook.neighbours, layer.bias, residual, layer.relu
            )
            current = current.convolved(features, rulebook)
            if i in self._read_later:
                kept[i] = features
            if layer.output is not None:
                outputs[layer.output] = (features.astype(self._dtype, copy=False), current.indices)
        return make_feature_maps(tensor, self._layers, outputs, {})
