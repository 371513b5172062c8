"""The CPU backend."""

from __future__ import annotations

import numpy as np

from ...device import usable_cores
from ..engine import RawSample
from .brute import sample_brute
from .lookahead import POINTS_PER_THREAD, sample_lookahead
from .radius import sample_radius
from .workspace import Workspace

# Measured crossover: below either, sorting the points costs more than pruning saves.
BRUTE_DISTANCES = 1 << 20
BRUTE_SAMPLES = 32


class CpuEngine:
    """Samples NumPy clouds with Numba kernels; see `radius_fps_ros.sampling.engine.Engine`."""

    def __init__(self, method: str = "auto", threads: int | None = None) -> None:
        self._method = method
        self._threads = threads or usable_cores()
        self._workspace = Workspace()

    def run(self, points: np.ndarray, n_samples: int, start: int) -> RawSample:
        """See `Engine.run`."""
        method = self._method
        if method == "auto":
            few = n_samples <= BRUTE_SAMPLES or len(points) * n_samples <= BRUTE_DISTANCES
            method = "brute" if few else "lookahead"
        if not np.isfinite(points[start]).all():
            return RawSample(np.empty(0, np.int64), 0.0, method, rounds=0, voxels=0, skip_rate=0.0, threads=0)
        return self._sample(method, points, n_samples, start)

    def warm_up(self) -> None:
        """Compile, or load from Numba's cache on disk, every kernel that `run` may need."""
        points = np.resize(np.eye(3, dtype=np.float32), (2 * POINTS_PER_THREAD, 3))  # enough for two threads
        for method in ("brute", "lookahead") if self._method == "auto" else (self._method,):
            self._sample(method, points, 3, 0)

    def _sample(self, method: str, points: np.ndarray, n_samples: int, start: int) -> RawSample:
        points = points.view()
        points.flags.writeable = False  # Numba would compile once more for the first cloud that is read-only
        if method == "brute":
            return sample_brute(points, n_samples, start, self._workspace, self._threads)
        if method == "radius":
            return sample_radius(points, n_samples, start, self._workspace, self._threads)
        return sample_lookahead(points, n_samples, start, self._workspace, self._threads)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspaces held between calls."""
        return self._workspace.nbytes
