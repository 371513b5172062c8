"""The VoxelResBackBone8x network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..device import is_cupy_array, select_backend
from ..errors import InputError
from .checkpoints import load_weights
from .config import BackboneConfig
from .network import FeatureMaps
from .plan import backbone_state, fold_layers, network_steps, random_state
from .tensor import SparseTensor

DTYPES = ("float32", "float16")


class VoxelResBackBone8x:
    """Residual sparse-convolution backbone with levels at strides 1, 2, 4 and 8 and an output compressed along z.

    Attributes:
        backend: ``"cpu"`` or ``"cuda"``; ``backend_reason`` says why.
        weights_source: the checkpoint's path, or that the weights are random and their seed.
        layers: the folded layers that the backend runs.
        runner: the backend's form of them, a ``CpuBackbone`` or a ``CudaBackbone``.
    """

    def __init__(
        self,
        in_channels: int = 4,
        weights: str | Path | None = None,
        seed: int = 0,
        dtype: str = "float32",
        backend: str = "auto",
        *,
        channels: Sequence[int] = (16, 32, 64, 128),
        blocks: Sequence[int] = (2, 2, 2, 2),
        out_channels: int = 128,
    ) -> None:
        """Read or draw the weights, fold batch norm and prepare the backend.

        Args:
            in_channels: channels of the voxel features.
            weights: a ``.pth`` or ``.safetensors`` checkpoint (see ``load_weights``); ``None`` draws random ones.
            seed: of the random weights.
            dtype: ``"float32"`` or ``"float16"``, of the features returned (and, on CUDA, of the arithmetic).
            backend: ``"auto" | "cpu" | "cuda"``.
            channels, blocks, out_channels: see ``BackboneConfig``.

        Raises:
            InputError: a parameter is out of range, or the checkpoint does not fit (the message names the arrays).
            BackendError: ``backend="cuda"`` and there is no usable device.
        """
        if in_channels < 1:
            raise InputError(f"in_channels must be at least 1, not {in_channels}")
        if seed < 0:
            raise InputError(f"seed must be at least 0, not {seed}")
        if dtype not in DTYPES:
            raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
        size = BackboneConfig(channels=tuple(channels), blocks=tuple(blocks), out_channels=out_channels)
        steps = network_steps(in_channels, size.channels, size.blocks, size.out_channels)
        if weights is None:
            self.weights_source = f"seeded random weights (seed {seed}), not trained"
            state: dict[str, Any] = dict(random_state(steps, seed))
        else:
            self.weights_source = str(weights)
            state = backbone_state(load_weights(weights), str(weights))
        choice = select_backend(backend)
        self.backend, self.backend_reason = choice.name, choice.reason
        self.in_channels, self.dtype = in_channels, dtype
        self.layers = fold_layers(steps, state, self.weights_source)
        self.runner = _runner(choice.name)(self.layers, dtype=dtype)

    @classmethod
    def from_config(
        cls,
        config: BackboneConfig,
        *,
        weights: str | Path | None = None,
        seed: int = 0,
        dtype: str = "float32",
        backend: str = "auto",
    ) -> VoxelResBackBone8x:
        """The network that ``config`` describes; its input has one channel for each of ``config.fields``.

        The other arguments and the errors are those of `VoxelResBackBone8x`.
        """
        return cls(
            len(config.fields),
            weights,
            seed,
            dtype,
            backend,
            channels=config.channels,
            blocks=config.blocks,
            out_channels=config.out_channels,
        )

    def __call__(self, tensor: SparseTensor) -> FeatureMaps:
        """Tensors ``x_conv1`` ... ``x_conv4`` and ``encoded``, in the array library of ``tensor``.

        ``stats`` of the result: backend, weights, milliseconds, sites by level, and what the backend adds.

        Raises:
            InputError: the tensor has another number of channels, a shape too small for the strides, or features that
                are not finite.
        """
        if tensor.features.shape[1] != self.in_channels:
            raise InputError(
                f"the tensor has {tensor.features.shape[1]} channels and the network reads {self.in_channels}"
            )
        started = time.perf_counter()
        on_device = is_cupy_array(tensor.features)
        select_backend(self.backend, tensor.features)
        if self.backend == "cuda" and not on_device:
            import cupy

            maps: FeatureMaps = self.runner(_moved(tensor, cupy.asarray))
            maps = FeatureMaps({name: _moved(made, cupy.asnumpy) for name, made in maps.items()}, maps.stats)
        else:
            maps = self.runner(tensor)
        maps.stats.update(
            backend=self.backend,
            weights=self.weights_source,
            milliseconds=1e3 * (time.perf_counter() - started),
        )
        return maps


def _runner(backend: str) -> Callable[..., Any]:
    if backend == "cuda":
        from .cuda import CudaBackbone

        return CudaBackbone  # type: ignore[no-any-return]
    from .cpu import CpuBackbone

    return CpuBackbone


def _moved(tensor: SparseTensor, convert: Callable[[Any], Any]) -> SparseTensor:
    """The tensor in the other array library, without rulebooks or grid (they stay where they are)."""
    moved = tensor.derived(
        convert(tensor.features), convert(tensor.indices), tensor.spatial_shape, tensor.scale, tensor.shift
    )
    moved.rulebooks, moved.grid = {}, None
    return moved
