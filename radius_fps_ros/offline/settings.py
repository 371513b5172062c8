"""What is asked of one run over a bag."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..clouds.bags import Recording
from ..errors import InputError
from ..frame import PipelineSettings
from ..sparse import BackboneConfig

COPY_ALL, COPY_NONE = "all", "none"
STORAGES = ("sqlite3", "mcap")


@dataclass(frozen=True)
class FeatureSettings:
    """The network of the features; the attributes are the arguments of `FeatureExtractor`."""

    config: BackboneConfig
    weights: Path | None = None
    seed: int = 0
    dtype: str = "float32"
    levels: tuple[str, ...] = ("x_conv4",)


@dataclass(frozen=True)
class Job:
    """One run over a bag.

    Attributes:
        bag: the bag that is read, as in `open_bag`.
        out: the folder of the bag that is written; it appears when the run is complete.
        topics: names of the PointCloud2 topics that are processed; empty for all.
        copy: ``("all",)``, ``("none",)``, or names of the topics that are copied.
        storage: ``"sqlite3"`` or ``"mcap"``; ``None`` for that of ``bag``.
        pipeline: what is sampled.
        features: the network, or ``None`` for samples alone.
        backend, method: as in `farthest_point_sampling`.
        threads: CPU threads; ``None`` for all usable cores.
        restart: drop what an earlier run left, and replace an output of such a run.
        save_every: seconds of work after which a part is finished; a kill costs at most that, or a tenth of all work.
    """

    bag: Path
    out: Path
    topics: tuple[str, ...] = ()
    copy: tuple[str, ...] = (COPY_NONE,)
    storage: str | None = None
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    features: FeatureSettings | None = None
    backend: str = "auto"
    method: str = "auto"
    threads: int | None = None
    restart: bool = False
    save_every: float = 10.0

    def words(self) -> dict[str, Any]:
        """The settings that decide what is written, by the names of their options, as JSON holds them."""
        p, f = self.pipeline, self.features
        return {
            "topic": list(self.topics),
            "copy": list(self.copy),
            "n": p.n_samples,
            "range-min": p.range_min,
            "range-max": p.range_max if p.range_max < float("inf") else None,
            "roi-min": None if p.roi_min is None else list(p.roi_min),
            "roi-max": None if p.roi_max is None else list(p.roi_max),
            "method": self.method,
            "features": f is not None,
            "config": None if f is None else _plain(dataclasses.asdict(f.config)),
            "weights": None if f is None or f.weights is None else f"{f.weights.name}, SHA-256 {_digest(f.weights)}",
            "seed": None if f is None else f.seed,
            "dtype": None if f is None else f.dtype,
            "levels": None if f is None else list(f.levels),
        }


def fingerprint(job: Job, bag: Recording, backend: str, storage: str) -> dict[str, Any]:
    """Everything that decides what is written: a run may be continued only while all of it is the same."""
    stats = [(file.name, file.stat()) for file in bag.files]
    return {
        **job.words(),
        "backend": backend,
        "storage": storage,
        "bag": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats},
        "version": __version__,
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"the weights {path} cannot be read: {error.strerror or error}") from error
