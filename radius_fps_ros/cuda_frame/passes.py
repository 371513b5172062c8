"""Sampling and the network over buffers of one size: queued kernel by kernel first, then replayed as a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np

from ..sampling.cuda import CudaEngine
from ..sampling.cuda.engine import Output
from ..sparse.cuda.feature_pass import FeaturePass
from .buffers import FrameBuffers
from .kernels import launch

MOST_GRAPHS = 4  # numbers of samples whose graphs a pass keeps

# Stamps: the device's clock at the beginning, and after each of these.
NETWORK_STAGES = ("voxelize", "backbone", "gather")
STAGES = ("decode", "sample", *NETWORK_STAGES, "pack")


@dataclass(frozen=True)
class _Recorded:
    """What was queued for a number of samples, and the graph of it once it was captured."""

    generation: tuple[int, int]
    output: Output
    graph: Any = None


class FramePass:
    """See the module.

    Attributes:
        buffers: what it works on.
        network: the network's part; ``None`` without features.
    """

    def __init__(self, buffers: FrameBuffers, sampler: CudaEngine, network: FeaturePass | None) -> None:
        self.buffers, self.network = buffers, network
        self._sampler = sampler
        self._recorded: dict[int, _Recorded] = {}
        self._prepared = network is None

    def run(self, n_samples: int) -> Output:
        """Queue everything for decoded buffers on the current stream; where the sampler's answer will be.

        The host waits only with the first frame, whose sizes the network's buffers are measured on.
        """
        stream = cupy.cuda.get_current_stream()
        if self.network is not None and not self._prepared:
            self.network.prepare(self.buffers.points, self.buffers.columns)
            self._prepared = True
        known = self._recorded.get(n_samples)
        if known is None or known.generation != self._generation():
            output = self._queue(n_samples)
            # Only graphs whose buffers are still in place are kept.
            current = {n: r for n, r in self._recorded.items() if r.generation == self._generation()}
            self._recorded = dict(list(current.items())[1 - MOST_GRAPHS :])
            self._recorded[n_samples] = _Recorded(self._generation(), output)
            return output
        if known.graph is None:
            stream.begin_capture()
            try:
                self._queue(n_samples)
            finally:
                graph = stream.end_capture()
            known = self._recorded[n_samples] = replace(known, graph=graph)
        known.graph.launch(stream)
        return known.output

    def repeat_network(self, output: Output, n_samples: int) -> None:
        """Queue the network's part again, for the same frame, after it told that its buffers were too small."""
        assert self.network is not None
        self.network.prepare(self.buffers.points, self.buffers.columns)
        self._queue_network(output, n_samples)

    def stamp(self, stage: str | None) -> None:
        """Queue a time stamp: of the beginning, or of the end of a stage."""
        place = 0 if stage is None else 1 + STAGES.index(stage)
        launch("stamp", 1, self.buffers.outbox["stamps"][place:])

    def milliseconds(self) -> dict[str, float]:
        """What each stage took of the device, by the stamps that were downloaded."""
        stamps = self.buffers.inbox["stamps"].astype(np.int64)
        spent, last = {}, stamps[0]
        for place, name in enumerate(STAGES, 1):
            if self.network is not None or name not in NETWORK_STAGES:
                spent[name] = float(stamps[place] - last) * 1e-6
                last = stamps[place]
        return spent

    def _generation(self) -> tuple[int, int]:
        return self._sampler.generation, 0 if self.network is None else self.network.generation

    def _queue(self, n_samples: int) -> Output:
        output = self._sampler.enqueue(self.buffers.points, n_samples, self.buffers.start)
        self.stamp("sample")
        if self.network is not None:
            self._queue_network(output, n_samples)
        return output

    def _queue_network(self, output: Output, n_samples: int) -> None:
        assert self.network is not None
        self.network.enqueue_voxelize(self.buffers.points, self.buffers.columns)
        self.stamp("voxelize")
        self.network.enqueue_backbone()
        self.stamp("backbone")
        records = self.buffers.outbox["features"][:n_samples]
        self.network.enqueue_gather(self.buffers.points, output.indices, records)
        self.stamp("gather")
