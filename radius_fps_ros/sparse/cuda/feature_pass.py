"""Features of a frame's samples on CUDA without a wait: voxelize, backbone, gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..backbone import VoxelResBackBone8x
from ..config import BackboneConfig
from ..network import not_finite_message
from ..tensor import SparseTensor
from ..voxel_grid import VoxelGrid
from .interpolate import MAX_LEVELS, Level, SampleGather
from .plan import Plan
from .rulebook import SiteList
from .voxelize import COUNTERS, Voxelizer, read_counters
from .workspace import Workspace, fitting_capacities, status_words


@dataclass(frozen=True)
class FeatureOutcome:
    """What the status of a pass says.

    Attributes:
        overflowed: the frame has more sites than the buffers hold and its records are of no use; `FeaturePass.prepare`
            makes room.
        voxels, dropped_voxels: active input sites, and those beyond the cap.
        recaptures: how often the buffers had to grow so far.
    """

    overflowed: bool
    voxels: int
    dropped_voxels: int
    recaptures: int


class FeaturePass:
    """Queues the features part of a frame on the current stream; a capture of the stream can take it in.

    All sizes stay on the device. `prepare` makes buffers for a frame and waits; `enqueue`, or its three parts in a row,
    neither waits nor allocates. What is queued leaves `status`, which `read` makes sense of on the host. One frame at a
    time, all on one stream or on streams that wait for one another.

    Attributes:
        channels: features a sample, of all levels.
        status: (S,) int32 on the device, the same array always.
        generation: how often `prepare` replaced buffers; graphs captured before the last time must not run again.
    """

    def __init__(self, network: VoxelResBackBone8x, config: BackboneConfig, levels: Sequence[str]) -> None:
        """``levels`` as in `gather_features`.

        Raises:
            InputError: an unknown level or too many, a network that is not on CUDA or reads another number of channels
                than ``config`` has fields, or a range of too many voxels.
        """
        import cupy

        if network.backend != "cuda":
            raise InputError(f"the network must be on CUDA, but its backend is {network.backend}")
        if len(config.fields) != network.in_channels:
            raise InputError(
                f"the configuration has {len(config.fields)} fields and the network reads {network.in_channels}"
            )
        self._plan: Plan = network.runner.plan
        self._config, self._grid = config, VoxelGrid.make(config.point_cloud_range, config.voxel_size)
        shape = self._grid.spatial_shape
        self._plan.tilings(shape, 1)  # refuses a space that is too large
        lattice = self._plan.lattice(shape, (1, 1, 1), (0.0, 0.0, 0.0))
        # Layer, level of sites, spatial shape, scale and shift by name.
        outputs = zip(self._plan.outputs, lattice, strict=True)
        self._outputs = {str(self._plan.layers[i].output): (i, *place) for i, place in outputs}
        unknown = [level for level in levels if level not in self._outputs]
        if unknown or not levels:
            raise InputError(f"levels must name at least one of {', '.join(self._outputs)}, not {list(levels)}")
        if len(levels) > MAX_LEVELS:
            raise InputError(f"at most {MAX_LEVELS} levels can be gathered at a time, not {len(levels)}")
        self._levels = tuple(levels)
        self.channels = sum(self._plan.layers[self._outputs[name][0]].out_channels for name in levels)
        words = status_words(self._plan)
        self.status = cupy.zeros(words + len(COUNTERS), dtype=np.int32)
        self._pass_status, self._counters = self.status[:words], self.status[words:]
        self.generation = 0
        self._recaptures = 0
        self._capacities: tuple[int, ...] = ()
        self._voxelizer: Voxelizer | None = None
        self._workspace: Workspace | None = None
        self._gather: SampleGather | None = None

    def prepare(self, points: Any, columns: Any) -> None:
        """Make sure that this frame, and any that needs no more, fits; the arguments are those of `enqueue`.

        Call it for the first frame, for a larger N than before, and after an overflow. Waits for the device.
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        stream.synchronize()  # buffers that are replaced may still be in use
        generation = self.generation
        if self._voxelizer is None or len(points) > self._voxelizer.capacity:
            self._voxelizer = None  # gives its memory back first
            self.generation += 1
            caps = self._config.max_voxels, self._config.max_points_per_voxel
            self._voxelizer = Voxelizer(len(points), len(self._config.fields), self._grid, *caps)
        sizes = self._measure(self._voxelizer, points, columns)
        known = self._capacities
        if self._workspace is None or any(size > has for size, has in zip(sizes, known, strict=True)):
            self._recaptures += bool(known)
            self._replace_workspace(fitting_capacities(sizes, known or None))
        if generation != self.generation:
            # A capture cannot load kernels, so all of them run once outside.
            nowhere = cupy.full(1, -1, dtype=np.int64)
            self.enqueue(points, columns, nowhere, cupy.empty((1, 3 + self.channels), dtype=np.float32))
            stream.synchronize()

    def _measure(self, voxelizer: Voxelizer, points: Any, columns: Any) -> list[int]:
        """Number of sites of every level; waits for the device."""
        import cupy

        capacity = min(len(points), self._config.max_voxels)
        count = cupy.zeros(2, dtype=np.int32)
        sites = cupy.empty((capacity, 4), dtype=np.int32), cupy.empty(capacity, dtype=np.int64)
        means = cupy.empty((capacity, self._plan.input_width), dtype=self._plan.dtype)
        counters = cupy.zeros_like(self._counters)
        voxelizer.enqueue(points, columns, SiteList(*sites, capacity, count[:1]), means, count[1:], counters)
        return self._plan.measure(SiteList(*sites, int(count[0])), self._grid.spatial_shape, 1)

    def _replace_workspace(self, capacities: Sequence[int]) -> None:
        self._workspace = self._gather = None  # gives its memory back first
        self.generation += 1
        self._capacities = tuple(capacities)
        workspace = Workspace(self._plan, self._grid.spatial_shape, 1, capacities, self._pass_status)
        levels = []
        for name in self._levels:
            i, level, shape, scale, shift = self._outputs[name]
            channels = self._plan.layers[i].out_channels
            levels.append(Level(workspace.features[i], channels, workspace.sites[level], shape, 1, scale, shift))
        self._workspace, self._gather = workspace, SampleGather(levels, self._grid)

    def enqueue(self, points: Any, columns: Any, samples: Any, records: Any) -> None:
        """Queue the whole pass.

        Args:
            points: (N, 3) float32, contiguous; N at most the largest that `prepare` saw. Rows with NaN are not used.
            columns: (N, F) float32, contiguous: the fields of the configuration; anything in rows that are not used.
            samples: (M,) int64 rows of ``points``; a number that is no row gives a record of zeros.
            records: (M, 3 + channels) float32, written: x, y, z [m] and the features.
        """
        self.enqueue_voxelize(points, columns)
        self.enqueue_backbone()
        self.enqueue_gather(points, samples, records)

    def enqueue_voxelize(self, points: Any, columns: Any) -> None:
        """The first part of `enqueue`."""
        import cupy

        workspace, voxelizer, _ = self._prepared()
        if len(points) > voxelizer.capacity:
            raise InputError(f"the pass was prepared for at most {voxelizer.capacity} points, not {len(points)}")
        self.status.data.memset_async(0, self.status.nbytes, cupy.cuda.get_current_stream())
        required = workspace.required[0]
        voxelizer.enqueue(points, columns, workspace.sites[0], workspace.input, required, self._counters)

    def enqueue_backbone(self) -> None:
        """The second part of `enqueue`."""
        self._prepared()[0].enqueue()

    def enqueue_gather(self, points: Any, samples: Any, records: Any) -> None:
        """The third part of `enqueue`."""
        self._prepared()[2].enqueue(points, samples, records)

    def _prepared(self) -> tuple[Workspace, Voxelizer, SampleGather]:
        if self._workspace is None or self._voxelizer is None or self._gather is None:
            raise InputError("prepare must come before enqueue")
        return self._workspace, self._voxelizer, self._gather

    def read(self, status_on_host: npt.NDArray[np.int32]) -> FeatureOutcome:
        """What ``status`` (S,), copied to the host, says of the last pass.

        Raises:
            InputError: features of points inside the range, or their means, are not finite.
        """
        self._prepared()
        levels, words = self._plan.levels, self._pass_status.size
        required = status_on_host[1 + levels : words]
        counts = read_counters(status_on_host[words:])
        overflowed = any(need > has for need, has in zip(required, self._capacities, strict=True))
        if not overflowed and counts["bad_means"]:
            raise InputError(not_finite_message(counts["bad_means"]))
        return FeatureOutcome(overflowed, int(required[0]), counts["dropped_voxels"], self._recaptures)

    def last_stage(self) -> SparseTensor:
        """The network's last output in the last pass; waits, and holds views that the next pass overwrites."""
        workspace = self._prepared()[0]
        i, level, shape, scale, shift = list(self._outputs.values())[-1]
        sites = workspace.sites[level]
        n = int(sites.count[0])
        features = workspace.features[i][:n, : self._plan.layers[i].out_channels]
        tensor = SparseTensor(features, sites.sites[:n], shape, voxel_grid=self._grid, check=False)
        tensor.scale, tensor.shift = scale, shift
        return tensor
