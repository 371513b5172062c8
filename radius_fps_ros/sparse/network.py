"""The description of a network that backends run: a flat chain of folded layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import ConvGeometry
from .tensor import SparseTensor, compose_lattice


@dataclass(frozen=True, eq=False)
class LayerSpec:
    """One convolution with batch norm folded in: ``relu(conv(x) + bias + residual)``.

    Layer ``i`` reads what layer ``i - 1`` wrote; layer 0 reads the network's input.

    Attributes:
        name: name of the convolution in the state dict, for messages.
        weight: (K, C_in, C_out) float32.
        bias: (C_out,) float32.
        geometry: the convolution's shape.
        indice_key: layers with the same key share one rulebook.
        relu: clamp at zero at the end.
        residual: index of the layer whose output is added before the ReLU, or ``None``.
        output: the name under which the network returns this layer's output, or ``None``.
    """

    name: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    geometry: ConvGeometry
    indice_key: str
    relu: bool = True
    residual: int | None = None
    output: str | None = None

    @property
    def in_channels(self) -> int:
        """Channels this layer reads."""
        return int(self.weight.shape[1])

    @property
    def out_channels(self) -> int:
        """Channels this layer writes."""
        return int(self.weight.shape[2])


def not_finite_message(count: int) -> str:
    """The sentence for a network input that is not finite."""
    return f"the tensor's features hold {count} NaN or infinite values; only finite features are allowed"


class FeatureMaps(dict[str, SparseTensor]):
    """What a network returns: tensors by name (``x_conv1`` ...), and ``stats`` of the pass."""

    def __init__(self, tensors: Mapping[str, SparseTensor], stats: dict[str, Any]) -> None:
        super().__init__(tensors)
        self.stats = stats


def make_feature_maps(
    tensor: SparseTensor,
    layers: Sequence[LayerSpec],
    outputs: Mapping[str, tuple[Any, Any]],
    stats: dict[str, Any],
) -> FeatureMaps:
    """Give a backend's ``outputs`` (features, indices by name) their shapes and places in the input's lattice.

    ``stats`` gains ``sites``: the number of active sites by output name.
    """
    shape, scale, shift = tensor.spatial_shape, tensor.scale, tensor.shift
    tensors = {}
    for layer in layers:
        shape = layer.geometry.output_shape(shape)
        scale, shift = compose_lattice(scale, shift, layer.geometry)
        if layer.output is not None:
            features, indices = outputs[layer.output]
            tensors[layer.output] = tensor.derived(features, indices, shape, scale, shift)
    return FeatureMaps(tensors, {**stats, "sites": {name: len(made) for name, made in tensors.items()}})
