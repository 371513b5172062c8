"""A whole network on CUDA: captured once, replayed for every frame."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..network import FeatureMaps, LayerSpec, not_finite_message
from ..tensor import SparseTensor
from .captured_pass import CapturedPass
from .kernels import aligned
from .plan import Plan
from .rulebook import NOT_FINITE, sort_sites
from .workspace import Workspace, fitting_capacities


class CudaBackbone:
    """Runs a chain of layers on CuPy tensors.

    Buffers have fixed capacities, measured on the first frame with some headroom. A frame that does not fit is noticed
    by a count on the device after the pass; its results are thrown away, the pass is captured anew with larger
    capacities, and the frame runs again (``stats["recaptures"]`` counts this).

    Attributes:
        plan: what does not depend on the frame.
        captured: the pass for frames of the last space, once there was one.
    """

    def __init__(self, layers: Sequence[LayerSpec], *, dtype: str, algo: str = "auto") -> None:
        """Put the weights on the current device in the type of the pass.

        Raises:
            InputError: an indice_key names two different rulebooks, or ``algo`` cannot run here.
        """
        self.plan = Plan(layers, dtype, algo)
        self.captured: CapturedPass | None = None
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
            captured = self._fitting_pass(tensor, indices, overflowed)
            faults, required, results = captured.run(indices, features, copy=copy)
            if faults & NOT_FINITE:
                raise InputError(not_finite_message(int((~cupy.isfinite(features)).sum())))
            if faults:
                source = sort_sites(tensor.indices, tensor.spatial_shape)  # raises when a site occurs twice
                indices, order = source.sites, source.order
                features = aligned(tensor.features[order])
                continue
            overflowed = any(need > has for need, has in zip(required, captured.workspace.capacities, strict=True))
            if not overflowed:
                break
        return self._maps(tensor, captured.workspace, required, results, order)

    def _fitting_pass(self, tensor: SparseTensor, indices: Any, overflowed: bool) -> CapturedPass:
        """The pass at hand, or a larger one when this frame is known not to fit."""
        captured, known = self.captured, None
        space = (tensor.spatial_shape, tensor.batch_size)
        if captured is not None and (captured.workspace.shape, captured.workspace.batch_size) == space:
            known = captured.workspace.capacities
            if not overflowed and len(indices) <= known[0]:
                return captured
        self.plan.tilings(*space)  # refuses a space that is too large
        sizes = self.plan.measure(sort_sites(indices, tensor.spatial_shape), *space)
        self._recaptures += known is not None
        self.captured = CapturedPass(Workspace(self.plan, *space, fitting_capacities(sizes, known)))
        return self.captured

    def _maps(
        self, tensor: SparseTensor, workspace: Workspace, sizes: Sequence[int], results: dict[Any, Any], order: Any
    ) -> FeatureMaps:
        import cupy

        plan = self.plan
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
