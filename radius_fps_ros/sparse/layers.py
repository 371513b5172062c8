"""Convolution layers for building networks by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import array_module
from ..errors import InputError
from .backends import backend_of
from .geometry import ConvGeometry
from .rulebook import Rulebook
from .tensor import SparseTensor, check_features
from .weights import kernel_layout, random_weight

ALGORITHMS = ("auto", "native", "implicit_gemm")


class _Convolution:
    """Weights and geometry of one layer; subclasses say which rulebook it uses."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        geometry: ConvGeometry,
        indice_key: str | None,
        weight: Any,
        bias: Any,
        relu: bool,
        seed: int,
        algo: str,
    ) -> None:
        if in_channels < 1 or out_channels < 1:
            raise InputError(f"channels must be at least 1, not {in_channels} -> {out_channels}")
        if algo not in ALGORITHMS:
            raise InputError(f"algo must be one of {', '.join(ALGORITHMS)}, not {algo!r}")
        name = type(self).__name__
        self.geometry, self.indice_key, self.relu, self.algo = geometry, indice_key, relu, algo
        self.in_channels, self.out_channels = in_channels, out_channels
        if weight is None:
            self.weight = random_weight(np.random.default_rng(seed), geometry.volume, in_channels, out_channels)
        else:
            self.weight = kernel_layout(f"{name}.weight", np.asarray(weight), geometry, in_channels, out_channels)
        if bias is not None and np.shape(bias) != (out_channels,):
            raise InputError(f"bias must have the shape ({out_channels},), not {np.shape(bias)}")
        self.bias = None if bias is None else np.asarray(bias, dtype=np.float32)
        self._on_device: tuple[Any, Any] | None = None

    def _parameters(self, module: Any) -> tuple[Any, Any]:
        if module is np:
            return self.weight, self.bias
        if self._on_device is None:
            self._on_device = (module.asarray(self.weight), None if self.bias is None else module.asarray(self.bias))
        return self._on_device

    def _run(self, tensor: SparseTensor, rulebook: Rulebook, residual: Any) -> Any:
        features = tensor.features
        if features.shape[1] != self.in_channels:
            raise InputError(f"the tensor has {features.shape[1]} channels and the layer reads {self.in_channels}")
        if residual is not None:
            check_features(residual, rulebook.out_indices)
            if residual.shape[1] != self.out_channels:
                raise InputError(f"residual has {residual.shape[1]} channels and the layer writes {self.out_channels}")
        weight, bias = self._parameters(array_module(features))
        return backend_of(features).convolve(
            features, weight, rulebook, bias=bias, residual=residual, relu=self.relu, algo=self.algo
        )


class SparseConv3d(_Convolution):
    """Regular sparse convolution: an output site exists wherever an active site contributes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        *,
        indice_key: str | None = None,
        weight: Any = None,
        bias: Any = None,
        relu: bool = False,
        seed: int = 0,
        algo: str = "auto",
    ) -> None:
        """Check the parameters and hold the weights.

        Args:
            in_channels, out_channels: channels of the features that the layer reads and writes.
            kernel_size, stride, padding, dilation: one integer, or three in (z, y, x) order.
            indice_key: name under which the tensor keeps the rulebook for later layers; ``None`` builds one a call.
            weight: in the layout of spconv 1.x or 2.x, or (K, C_in, C_out); ``None`` draws one from ``seed``.
            bias: (C_out,), or ``None``.
            relu: whether negative results become 0.
            seed: of random weights.
            algo: ``"auto" | "native" | "implicit_gemm"``: how CUDA multiplies.

        Raises:
            InputError: a parameter is out of range or a weight has another shape.
        """
        geometry = ConvGeometry.make(kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, geometry, indice_key, weight, bias, relu, seed, algo)

    def __call__(self, tensor: SparseTensor, residual: Any = None) -> SparseTensor:
        """Convolve ``tensor``; ``residual`` (N_out, C_out) is added before the ReLU.

        Raises:
            InputError: the channels of ``tensor`` or the shape of ``residual`` do not fit.
        """
        rulebook = tensor.rulebook(self.geometry, self.indice_key)
        return tensor.convolved(self._run(tensor, rulebook, residual), rulebook)


class SubMConv3d(_Convolution):
    """Submanifold sparse convolution: the output sites are the input sites (Graham et al., CVPR 2018)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        *,
        indice_key: str | None = None,
        weight: Any = None,
        bias: Any = None,
        relu: bool = False,
        seed: int = 0,
        algo: str = "auto",
    ) -> None:
        """As `SparseConv3d`; the stride is 1 and the kernel is centred, whatever ``padding`` says."""
        geometry = ConvGeometry.make(kernel_size, stride, padding, dilation, subm=True)
        super().__init__(in_channels, out_channels, geometry, indice_key, weight, bias, relu, seed, algo)

    def __call__(self, tensor: SparseTensor, residual: Any = None) -> SparseTensor:
        """Convolve ``tensor``; ``residual`` (N, C_out) is added before the ReLU. Errors as for `SparseConv3d`."""
        rulebook = tensor.rulebook(self.geometry, self.indice_key)
        return tensor.replace_features(self._run(tensor, rulebook, residual))


class SparseInverseConv3d(_Convolution):
    """Runs the pairs of an earlier convolution backwards and so restores the sites that it read."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        *,
        indice_key: str,
        weight: Any = None,
        bias: Any = None,
        relu: bool = False,
        seed: int = 0,
        algo: str = "auto",
    ) -> None:
        """As `SparseConv3d`; ``indice_key`` names the convolution to undo, and ``kernel_size`` must be that one's."""
        geometry = ConvGeometry.make(kernel_size)
        self._key = indice_key
        super().__init__(in_channels, out_channels, geometry, indice_key, weight, bias, relu, seed, algo)

    def __call__(self, tensor: SparseTensor, residual: Any = None) -> SparseTensor:
        """Convolve ``tensor`` back to the sites of the layer that ``indice_key`` names; ``residual`` is added as there.

        Raises:
            InputError: no layer used that key, it had another kernel size, or the tensor is not what it wrote.
        """
        forward = tensor.rulebooks.get(self._key)
        if forward is None:
            known = ", ".join(map(repr, tensor.rulebooks)) or "none"
            raise InputError(f"no convolution used indice_key {self._key!r} yet (known: {known})")
        if forward.geometry.kernel_size != self.geometry.kernel_size:
            raise InputError(
                f"indice_key {self._key!r} belongs to kernel_size {forward.geometry.kernel_size}, "
                f"not to {self.geometry.kernel_size}"
            )
        if forward.out_indices is not tensor.indices:
            raise InputError(f"the tensor's sites are not those that the layer of indice_key {self._key!r} wrote")
        backward = forward.inverse()
        return tensor.restored(self._run(tensor, backward, residual), forward)


class SparseBasicBlock:
    """Residual block of two submanifold 3x3x3 convolutions: ``relu(conv2(relu(conv1(x))) + x)``.

    Batch norm, where there was one, is folded into the weights and biases (see `fold_batch_norm`).
    """

    def __init__(
        self,
        channels: int,
        *,
        indice_key: str | None = None,
        weights: tuple[Any, Any] = (None, None),
        biases: tuple[Any, Any] = (None, None),
        seed: int = 0,
        algo: str = "auto",
    ) -> None:
        """Two layers of ``channels`` channels.

        Args:
            channels: of the features, in and out.
            indice_key: of the rulebook that both layers share.
            weights, biases: of both layers, each as for `SparseConv3d`.
            seed: of the first layer's random weights; the second takes the next one.
            algo: as for `SparseConv3d`.

        Raises:
            InputError: a parameter is out of range or a weight has another shape.
        """
        self.conv1, self.conv2 = (
            SubMConv3d(
                channels,
                channels,
                3,
                indice_key=indice_key,
                weight=weights[i],
                bias=biases[i],
                relu=True,
                seed=seed + i,
                algo=algo,
            )
            for i in range(2)
        )

    def __call__(self, tensor: SparseTensor) -> SparseTensor:
        """Features of the same sites."""
        return self.conv2(self.conv1(tensor), residual=tensor.features)
