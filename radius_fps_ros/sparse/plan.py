"""VoxelResBackBone8x as a list of convolutions with the names of the published checkpoints.

The network is the residual backbone of SECOND (Yan et al., 2018) as CenterPoint (Yin et al., CVPR 2021) uses it; names
and shapes are those of OpenPCDet's ``VoxelResBackBone8x``. Det3D's ``SpMiddleResNetFHD`` has the same layers under
other names, which ``canonical_name`` translates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .geometry import ConvGeometry
from .network import LayerSpec
from .weights import fold_batch_norm, kernel_layout, random_weight

BATCH_NORM_EPSILON = 1e-3
_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class _Step:
    """One convolution with its batch norm; see ``LayerSpec`` for what is not named here."""

    conv: str
    norm: str
    geometry: ConvGeometry
    indice_key: str
    in_channels: int
    out_channels: int
    has_bias: bool
    residual: int | None
    output: str | None

    def names(self) -> list[str]:
        """Names of this step's arrays in the state dict."""
        return [f"{self.conv}.weight", *([f"{self.conv}.bias"] if self.has_bias else [])] + [
            f"{self.norm}.{part}" for part in _NORM
        ]


def network_steps(
    in_channels: int, channels: Sequence[int], blocks: Sequence[int], out_channels: int
) -> tuple[_Step, ...]:
    """The convolutions in the order in which they run."""
    subm = ConvGeometry.make(3, subm=True)
    steps: list[_Step] = []

    def add(
        conv: str,
        norm: str,
        geometry: ConvGeometry,
        key: str,
        width: int,
        has_bias: bool = False,
        residual: int | None = None,
        output: str | None = None,
    ) -> None:
        depth = steps[-1].out_channels if steps else in_channels
        steps.append(_Step(conv, norm, geometry, key, depth, width, has_bias, residual, output))

    for level in range(1, 5):
        name, width, count = f"conv{level}", channels[level - 1], blocks[level - 1]
        finished = f"x_{name}"
        alone = finished if count == 0 else None
        if level == 1:
            add("conv_input.0", "conv_input.1", subm, "res1", width, output=alone)
        else:
            # The last stage does not pad z, so that 41 layers end as 2.
            padding = (0, 1, 1) if level == 4 else (1, 1, 1)
            down = ConvGeometry.make(3, 2, padding)
            add(f"{name}.0.0", f"{name}.0.1", down, f"spconv{level}", width, output=alone)
        for block in range(count):
            prefix = f"{name}.{block + (level > 1)}"
            source = len(steps) - 1
            add(f"{prefix}.conv1", f"{prefix}.bn1", subm, f"res{level}", width, True)
            last = finished if block == count - 1 else None
            add(f"{prefix}.conv2", f"{prefix}.bn2", subm, f"res{level}", width, True, source, last)
    out = ConvGeometry.make((3, 1, 1), (2, 1, 1))
    add("conv_out.0", "conv_out.1", out, "spconv_down2", out_channels, output="encoded")
    return tuple(steps)


def random_state(steps: Sequence[_Step], seed: int) -> dict[str, NDArray[np.float32]]:
    """A state dict of seeded He-normal weights in spconv 2.x layout; batch norm does nothing in it."""
    generator = np.random.default_rng(seed)
    state: dict[str, NDArray[np.float32]] = {}
    for step in steps:
        drawn = random_weight(generator, step.geometry.volume, step.in_channels, step.out_channels)
        shape = (step.out_channels, *step.geometry.kernel_size, step.in_channels)
        state[f"{step.conv}.weight"] = np.ascontiguousarray(drawn.transpose(2, 0, 1)).reshape(shape)
        if step.has_bias:
            state[f"{step.conv}.bias"] = np.zeros(step.out_channels, np.float32)
        for part in _NORM:
            fill = 1.0 if part in ("weight", "running_var") else 0.0
            state[f"{step.norm}.{part}"] = np.full(step.out_channels, fill, np.float32)
    return state


def canonical_name(name: str) -> str:
    """The name used here for an array that Det3D's ``SpMiddleResNetFHD`` calls ``name``."""
    name = re.sub(r"^extra_conv\.", "conv_out.", name)
    name = re.sub(rf"^conv([234])\.([01])\.(?=({'|'.join(_NORM)}|num_batches_tracked)$)", r"conv\1.0.\2.", name)
    # Blocks follow the strided convolution, its batch norm and its ReLU, which Det3D counts one by one.
    return re.sub(r"^conv([234])\.(\d+)\.(?=conv|bn)", lambda match: f"conv{match[1]}.{int(match[2]) - 2}.", name)


def backbone_state(state: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The backbone's part of a checkpoint: names without the model's prefix, in this module's spelling.

    Raises:
        InputError: the checkpoint has no such backbone, or more than one.
    """
    anchor = "conv_input.0.weight"
    prefixes = [name.removesuffix(anchor) for name in state if name.endswith(anchor)]
    if len(prefixes) != 1:
        found = ", ".join(list(state)[:4]) or "nothing"
        raise InputError(
            f"{origin} must hold one backbone with an array named [prefix]{anchor}, but holds {len(prefixes)} "
            f"(it begins with {found})"
        )
    prefix = prefixes[0]
    own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    if any(name.startswith("extra_conv.") for name in own):
        own = {canonical_name(name): value for name, value in own.items()}
    return {name: value for name, value in own.items() if not name.endswith("num_batches_tracked")}


def fold_layers(steps: Sequence[_Step], state: Mapping[str, Any], origin: str) -> tuple[LayerSpec, ...]:
    """Layers with batch norm folded in.

    Raises:
        InputError: names are missing or unexpected, or an array has another shape; the message lists them.
    """
    wanted = [name for step in steps for name in step.names()]
    missing = [name for name in wanted if name not in state]
    unexpected = sorted(set(state) - set(wanted))
    if missing or unexpected:
        faults = [f"missing: {', '.join(missing)}"] if missing else []
        faults += [f"unexpected: {', '.join(unexpected)}"] if unexpected else []
        raise InputError(f"{origin} does not fit this network ({'; '.join(faults)})")
    layers = []
    for step in steps:
        vectors = [f"{step.conv}.bias"] if step.has_bias else []
        for name in [*vectors, *(f"{step.norm}.{part}" for part in _NORM)]:
            if state[name].shape != (step.out_channels,):
                raise InputError(f"{origin}: {name} has the shape {state[name].shape}; expected ({step.out_channels},)")
        name = f"{step.conv}.weight"
        weight = kernel_layout(f"{origin}: {name}", state[name], step.geometry, step.in_channels, step.out_channels)
        norm = [state[f"{step.norm}.{part}"] for part in _NORM]
        bias = state[f"{step.conv}.bias"] if step.has_bias else None
        weight, bias = fold_batch_norm(weight, bias, norm[0], norm[1], norm[2], norm[3], BATCH_NORM_EPSILON)
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise InputError(f"{origin}: {step.conv} with {step.norm} holds values that are not finite")
        layers.append(
            LayerSpec(step.conv, weight, bias, step.geometry, step.indice_key, True, step.residual, step.output)
        )
    return tuple(layers)
