"""Sampling and the network over buffers of one size: queued kernel by kernel first, then replayed as a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cupy

from ..sampling.cuda import CudaEngine
from ..sampling.cuda.engine import Output
from ..sparse.cuda.feature_pass import FeaturePass
from .buffers import FrameBuffers
from .kernels import launch

MOST_GRAPHS = 4  # numbers of samples whose graphs a pass keeps

# Stamps: the device's clock at the beginning, and after each of these. Where they can, kernels that run anyway write
# them: a launch for each takes more of a frame than reading the clock.
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
        self._stamps = {stage: buffers.outbox["stamps"][place:] for place, stage in enumerate((None, *STAGES))}
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
        self._stamp("sample")
        self._queue_network(output, n_samples)
        self._stamp("gather")

    def stamp_of(self, stage: str | None) -> Any:
        """Where a kernel writes the device's clock: of the beginning (``None``), or of the end of a stage."""
        return self._stamps[stage]

    def milliseconds(self) -> dict[str, float]:
        """What each stage took of the device, by the stamps that were downloaded."""
        begin, *ends = self.buffers.inbox["stamps"].tolist()
        spent = {}
        for name, end in zip(STAGES, ends, strict=False):
            if self.network is not None or name not in NETWORK_STAGES:
                spent[name], begin = (end - begin) * 1e-6, end
        return spent

    def _generation(self) -> tuple[int, int]:
        return self._sampler.generation, 0 if self.network is None else self.network.generation

    def _queue(self, n_samples: int) -> Output:
        output = self._sampler.enqueue(self.buffers.points, n_samples, self.buffers.start)
        if self.network is not None:
            self._stamp("sample")
            self._queue_network(output, n_samples)
        return output

    def _queue_network(self, output: Output, n_samples: int) -> None:
        assert self.network is not None
        self.network.enqueue_voxelize(self.buffers.points, self.buffers.columns)
        self._stamp("voxelize")
        self.network.enqueue_backbone()
        self._stamp("backbone")
        records = self.buffers.outbox["features"][:n_samples]
        self.network.enqueue_gather(self.buffers.points, output.indices, records)

    def _stamp(self, stage: str) -> None:
        launch("stamp", 1, self.stamp_of(stage))
