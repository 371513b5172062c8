"""A whole network on CUDA: captured once, replayed for every frame."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..network import FeatureMaps, LayerSpec, not_finite_message
from ..tensor import SparseTensor
from .kernels import aligned
from .plan import Plan
from .rulebook import NOT_FINITE, sort_sites
from .workspace import Workspace

_HEADROOM = 1.25  # capacity over the sites of the frame that it was measured on
_GRANULE = 1024


class CudaBackbone:
    """Runs a chain of layers on CuPy tensors.

    Buffers have fixed capacities, measured on the first frame with some headroom. A frame that does not fit is noticed
    by a count on the device after the pass; its results are thrown away, the pass is captured anew with larger
    capacities, and the frame runs again (``stats["recaptures"]`` counts this).
    """

    def __init__(self, layers: Sequence[LayerSpec], *, dtype: str, algo: str = "auto") -> None:
        """Put the weights on the current device in the type of the pass.

        Raises:
            InputError: an indice_key names two different rulebooks, or ``algo`` cannot run here.
        """
        self._plan = Plan(layers, dtype, algo)
        self._workspace: Workspace | None = None
        self._recaptures = 0
        self._lock = threading.Lock()  # one workspace: one frame at a time

    def __call__(self, tensor: SparseTensor, *, copy: bool = True) -> FeatureMaps:
        """All tensors that the layers name as outputs.

        The arrays of one result share one allocation; ``copy=False`` returns views of the workspace instead, valid
        until the next call.

        Raises:
            InputError: features that are not finite, a site that occurs twice, or a shape too small for the strides.
        """
        with self._lock:
            return self._run(tensor, copy)

    def _run(self, tensor: SparseTensor, copy: bool) -> FeatureMaps:
        import cupy

        indices, features, order = aligned(tensor.indices), aligned(tensor.features), None
        overflowed = False
        while True:
            workspace = self._fitting_workspace(tensor, indices, overflowed)
            faults, required, results = workspace.run(indices, features, copy=copy)
            if faults & NOT_FINITE:
                raise InputError(not_finite_message(int((~cupy.isfinite(features)).sum())))
            if faults:
                source = sort_sites(tensor.indices, tensor.spatial_shape)  # raises when a site occurs twice
                indices, order = source.sites, source.order
                features = aligned(tensor.features[order])
                continue
            overflowed = any(need > has for need, has in zip(required, workspace.capacities, strict=True))
            if not overflowed:
                break
        return self._maps(tensor, workspace, required, results, order)

    def _fitting_workspace(self, tensor: SparseTensor, indices: Any, overflowed: bool) -> Workspace:
        """The workspace at hand, or a larger one when this frame is known not to fit."""
        known = self._workspace
        same_space = known is not None and (known.shape, known.batch_size) == (tensor.spatial_shape, tensor.batch_size)
        if known is not None and same_space and not overflowed and len(indices) <= known.capacities[0]:
            return known
        self._plan.tilings(tensor.spatial_shape, tensor.batch_size)  # refuses a space that is too large
        source = sort_sites(indices, tensor.spatial_shape)
        sizes = self._plan.measure(source, tensor.spatial_shape, tensor.batch_size)
        capacities = [_GRANULE * max(1, -(-int(_HEADROOM * size) // _GRANULE)) for size in sizes]
        if known is not None and same_space:
            capacities = [max(pair) for pair in zip(capacities, known.capacities, strict=True)]
            self._recaptures += 1
        self._workspace = Workspace(self._plan, tensor.spatial_shape, tensor.batch_size, capacities)
        return self._workspace

    def _maps(
        self, tensor: SparseTensor, workspace: Workspace, sizes: Sequence[int], results: dict[Any, Any], order: Any
    ) -> FeatureMaps:
        import cupy

        plan = self._plan
        tensors = {}
        lattice = plan.lattice(tensor.spatial_shape, tensor.scale, tensor.shift)
        for i, (level, shape, scale, shift) in zip(plan.outputs, lattice, strict=True):
            layer, n = plan.layers[i], sizes[level]
            features = results["features", i][:n]
            if layer.out_channels < plan.widths[i]:
                features = cupy.ascontiguousarray(features[:, : layer.out_channels])
            if level == 0 and order is not None:
                restored = cupy.empty(features.shape, dtype=features.dtype)
                restored[order] = features
                features = restored
            indices = tensor.indices if level == 0 else results["sites", level][:n]
            tensors[str(layer.output)] = tensor.derived(features, indices, shape, scale, shift)
        stats = {
            "algorithm": plan.algorithm,
            "recaptures": self._recaptures,
            "capacities": list(workspace.capacities),
            "workspace_bytes": workspace.nbytes,
            "sites": {name: len(made) for name, made in tensors.items()},
        }
        return FeatureMaps(tensors, stats)
