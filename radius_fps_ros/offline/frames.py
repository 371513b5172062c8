"""One recorded cloud to the messages that the perception node would publish for it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from ..clouds import Cloud, encode_cloud
from ..clouds.bags import deserialize_cloud, serialize_cloud
from ..device import BackendChoice, select_backend, usable_cores
from ..errors import InputError
from ..frame_features import FeatureExtractor, FrameFeatures
from ..pipeline import make_pipeline
from ..stages import stage
from .settings import Job

MOST_WORKERS = 16  # beyond that, reading and writing, which hold the interpreter, set the pace


@dataclass
class Answer:
    """What became of one cloud.

    Attributes:
        sampled, features: serialized PointCloud2 messages; ``None`` where there is none.
        refusal: why the cloud could not be used; empty when it could.
        no_features: why it got samples but no features; empty otherwise.
        facts: numbers of the frame for the report.
        milliseconds: by stage, in the order in which they ran; ``total`` is the wall time from bytes to bytes.
    """

    sampled: bytes | None = None
    features: bytes | None = None
    refusal: str = ""
    no_features: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)


class FrameWorker:
    """Answers one cloud at a time; keeps its workspaces between them."""

    def __init__(self, job: Job, backend: str, threads: int | None) -> None:
        """Raises InputError or BackendError when the settings cannot be used."""
        self._settings = job.pipeline
        self._extractor: FeatureExtractor | None = None
        if job.features is not None:
            f = job.features
            self._extractor = FeatureExtractor(
                f.config, weights=f.weights, seed=f.seed, dtype=f.dtype, backend=backend, levels=f.levels
            )
        self._pipeline = make_pipeline(backend=backend, method=job.method, threads=threads, extractor=self._extractor)

    @property
    def weights_source(self) -> str:
        """The checkpoint, or that the weights are random; empty without features."""
        return "" if self._extractor is None else self._extractor.network.weights_source

    def warm_up(self) -> None:
        """Compile everything, so that the first frame is not slowed by it."""
        self._pipeline.warm_up()

    def __call__(self, cdr: bytes) -> Answer:
        """Answer one serialized PointCloud2; a cloud that cannot be used is an answer too.

        Raises:
            BackendError: the device reported a fault.
        """
        answer = Answer()
        begin = time.perf_counter()
        try:
            self._answer(cdr, answer)
        except InputError as error:
            answer.refusal = str(error)
        answer.milliseconds["total"] = (time.perf_counter() - begin) * 1e3
        return answer

    def _answer(self, cdr: bytes, answer: Answer) -> None:
        milliseconds = answer.milliseconds
        with stage(milliseconds, "deserialize"):
            message = deserialize_cloud(cdr)
        result = self._pipeline.process(message, self._settings)
        milliseconds |= result.milliseconds
        with stage(milliseconds, "serialize"):
            answer.sampled = serialize_cloud(result.sampled, message.header)
        answer.facts |= {
            "points_in": result.points_in,
            "points_used": result.points_used,
            "samples": len(result.indices),
            "coverage_radius": result.coverage_radius,
        }
        if result.features is not None:
            try:
                self._answer_features(result.features(), message.header, answer)
            except InputError as error:
                answer.no_features = str(error)

    def _answer_features(self, made: FrameFeatures, header: Any, answer: Answer) -> None:
        answer.milliseconds |= made.milliseconds
        with stage(answer.milliseconds, "serialize_features"):
            answer.features = serialize_cloud(encode_cloud(Cloud.of_records(made.records())), header)
        answer.facts |= {"voxels": made.voxels, "dropped_voxels": made.dropped_voxels}


class FrameWorkers:
    """Workers for as many frames side by side as is worth it."""

    def __init__(self, job: Job) -> None:
        """Compiles everything; raises InputError or BackendError when the settings cannot be used."""
        self.backend: BackendChoice = select_backend(job.backend)
        if job.threads is not None and job.threads < 1:
            raise InputError(f"threads must be at least 1, not {job.threads}")
        first = FrameWorker(job, self.backend.name, 1)
        first.warm_up()
        self.weights_source = first.weights_source
        self.count = self._count(job)
        self._idle: SimpleQueue[FrameWorker] = SimpleQueue()
        for worker in (first, *(FrameWorker(job, self.backend.name, 1) for _ in range(self.count - 1))):
            self._idle.put(worker)

    def _count(self, job: Job) -> int:
        """A frame a core: none waits for another. A GPU serves one frame at a time."""
        if self.backend.name == "cuda":
            return 1
        if job.features is not None:
            import numba

            if numba.threading_layer() == "workqueue":  # aborts the process when two threads use it at once
                return 1
        return min(job.threads or usable_cores(), MOST_WORKERS)

    def __call__(self, cdr: bytes) -> Answer:
        """Answer one serialized PointCloud2 with a free worker; at most ``count`` calls at a time."""
        worker = self._idle.get()
        try:
            return worker(cdr)
        finally:
            self._idle.put(worker)


def kind_of(sentence: str) -> str:
    """The sentence without its numbers: what is wrong, whatever the figures."""
    return re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", sentence)
