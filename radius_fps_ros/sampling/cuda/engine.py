"""The CUDA backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nvrtc

from ...device import is_cupy_array
from ...errors import BackendError, InputError
from ..engine import RawSample
from .kernels import Kernels
from .layout import MOST_IN_CLUSTER, SHAPES, SUMMARY, blocks_for, full_layout, mail_parts
from .methods import METHODS
from .workspace import Workspace

# Most points, most samples and the method that is the fastest up to there, as measured (docs/sampling_cuda.md): the
# first that holds, else look-ahead. The key: whether the device has clusters.
CROSSOVERS = {
    True: (
        (1 << 11, 1700, "single_block"),
        (1 << 12, 1100, "cluster"),
        (1 << 13, 880, "cluster"),
        (1 << 14, 550, "cluster"),
        (1 << 15, 410, "cluster"),
        (1 << 16, 220, "cluster"),
        (1 << 18, 4, "brute"),
    ),
    False: (
        (1 << 11, 1700, "single_block"),
        (1 << 12, 670, "single_block"),
        (1 << 13, 350, "single_block"),
        (1 << 14, 32, "single_block"),
        (1 << 15, 8, "single_block"),
        (1 << 18, 4, "brute"),
    ),
}
AUTO_METHODS = {key: (*dict.fromkeys(method for *_, method in rows), "lookahead") for key, rows in CROSSOVERS.items()}

COOPERATIVE_METHODS = ("radius", "lookahead")  # the pruned ones


@dataclass(frozen=True)
class Output:
    """Where a run leaves its answer on the device.

    Attributes:
        indices: (M,) int64; those past the summary's count are undefined.
        summary: one `SUMMARY` as 64-bit words; its count is 0 when the start could not be used.
    """

    indices: Any
    summary: Any


class CudaEngine:
    """Samples clouds on the current CUDA device; see `radius_fps_ros.sampling.engine.Engine`.

    Work goes to CuPy's current stream. `run` waits for the answer; `enqueue` does not, so that it can be captured in a
    CUDA graph or overlap with copies, and allocates nothing from the second cloud of a size on.

    Args:
        method: one of `radius_fps_ros.sampling.engine.METHODS`, ``"single_block"`` or ``"cluster"``.
        threads: ignored.
    """

    def __init__(self, method: str = "auto", threads: int | None = None) -> None:
        self._method = method
        self._workspace = Workspace()
        self._kernels = Kernels()
        self._device: int | None = None
        self._sizes: tuple[str, int, int, int] | None = None  # of the last call, and its arrays
        self._kept: dict[str, Any] = {}

    def run(self, points: Any, n_samples: int, start: Any) -> RawSample:
        """See `Engine.run`; ``points`` may be NumPy or CuPy, and the indices are of the same kind.

        Raises:
            BackendError: the device reported a fault, or is not the one of the first call.
        """
        with _faults_as_sentences(f"sampling {len(points)} points"):
            output = self.enqueue(cupy.asarray(points), n_samples, start)
            raw = read_output(output, len(points), self.method_for(len(points), n_samples))
            return replace(raw, indices=raw.indices.copy() if is_cupy_array(points) else raw.indices.get())

    def enqueue(self, points: Any, n_samples: int, start: Any) -> Output:
        """Queue the sampling of ``points``, (N, 3) float32 C-contiguous CuPy, on the current stream.

        Args:
            points: rows that are not finite, however many and wherever, are never sampled.
            n_samples: 1 to N.
            start: row of the first sample: an integer, or a (1,) uint32 CuPy array that is read when the kernels run.
                Nothing is sampled when it is no row (2^32 - 1 stands for none) or its row is not finite.

        Returns:
            `Output` in memory of the engine, valid until its next call.

        Raises:
            InputError: ``start`` is of another kind, or the method does not take so many points.
            BackendError: the current device is not the one of the first call, or cannot run the method.
        """
        return self._enqueue(self.method_for(len(points), n_samples), points, n_samples, start)

    def _enqueue(self, method: str, points: Any, n_samples: int, start: Any) -> Output:
        _check_start(start, len(points))
        device = cupy.cuda.Device()
        if self._device not in (None, device.id):
            raise BackendError(f"this sampler works on CUDA device {self._device}, but the current one is {device.id}")
        self._device = device.id
        multiprocessors, cooperative = _traits(device.id)
        if method in COOPERATIVE_METHODS and not cooperative:
            raise BackendError(
                f"method={method!r} needs cooperative launch, which CUDA device {device.id} does not offer"
            )
        if method == "cluster":
            _check_cluster(len(points), device.id)
        blocks = blocks_for(method, len(points), multiprocessors)
        arrays = self._arrays(method, len(points), n_samples, blocks)
        METHODS[method](self._kernels, points, n_samples, start, blocks, arrays)
        return Output(arrays["indices"], arrays["summary"])

    def _arrays(self, method: str, n_points: int, n_samples: int, blocks: int) -> dict[str, Any]:
        """The arrays of a method, and the parts of its mail; kept for the next call of the same sizes."""
        sizes = (method, n_points, n_samples, blocks)
        if sizes != self._sizes:
            self._sizes, self._kept = None, {}  # gives back what is too small before a larger array is made
            self._kept = self._workspace.arrays(full_layout(*sizes))
            end = 0
            for name, words in mail_parts(method, blocks).items():
                begin, end = end, end + words
                self._kept[name] = self._kept["mail"][begin:end]
            self._sizes = sizes
        return self._kept

    def warm_up(self) -> None:
        """Compile, or load from CuPy's cache on disk, every kernel that `run` may need."""
        with _faults_as_sentences("loading the sampling kernels"):
            points = cupy.eye(3, dtype=np.float32)
            clusters = offers_clusters(cupy.cuda.Device().id)
            for method in AUTO_METHODS[clusters] if self._method == "auto" else (self._method,):
                self._enqueue(method, points, 3, 0)
                for shape in SHAPES.get(method, ()):
                    getattr(self._kernels, shape.kernel)
            cupy.cuda.get_current_stream().synchronize()

    def method_for(self, n_points: int, n_samples: int) -> str:
        """What ``auto`` means for a cloud on the current device; any other method means itself."""
        if self._method != "auto":
            return self._method
        return auto_method(n_points, n_samples, clusters=offers_clusters(cupy.cuda.Device().id))

    @property
    def workspace_bytes(self) -> int:
        """Device memory held between calls."""
        return self._workspace.nbytes

    @property
    def generation(self) -> int:
        """Changes when memory of the engine was replaced: a graph captured before then must not be replayed."""
        return self._workspace.generation


@functools.cache
def _traits(device: int) -> tuple[int, bool]:
    """Multiprocessors, and whether the device offers cooperative launch."""
    attributes = cupy.cuda.Device(device).attributes
    return attributes["MultiProcessorCount"], bool(attributes["CooperativeLaunch"])


@functools.cache
def offers_clusters(device: int) -> bool:
    """Whether cluster.cu runs: on compute capability 9.0 or newer, compiled by NVRTC 12.1 or newer."""
    return int(cupy.cuda.Device(device).compute_capability) >= 90 and nvrtc.getVersion() >= (12, 1)


def auto_method(n_points: int, n_samples: int, *, clusters: bool) -> str:
    """The fastest method for a cloud on a device with or without clusters."""
    fitting = (m for points, samples, m in CROSSOVERS[clusters] if n_points <= points and n_samples <= samples)
    return next(fitting, "lookahead")


def _check_cluster(n_points: int, device: int) -> None:
    if n_points > MOST_IN_CLUSTER:
        raise InputError(f"method='cluster' takes at most {MOST_IN_CLUSTER:,} points, not {n_points:,}")
    if not offers_clusters(device):
        raise BackendError(
            "method='cluster' needs thread block clusters (compute capability 9.0, NVRTC 12.1), which CUDA device "
            f"{device} does not offer"
        )


def _check_start(start: Any, n_points: int) -> None:
    if is_cupy_array(start):
        if start.dtype != np.uint32 or start.shape != (1,):
            raise InputError(f"start on the device must be one uint32, shape (1,), not {start.dtype} {start.shape}")
    elif not 0 <= start < n_points:
        raise InputError(f"start must be a row of points, 0 to {n_points - 1}, not {start}")


@contextmanager
def _faults_as_sentences(doing: str) -> Iterator[None]:
    try:
        yield
    except (
        cupy.cuda.runtime.CUDARuntimeError,
        cupy.cuda.driver.CUDADriverError,
        cupy.cuda.memory.OutOfMemoryError,
    ) as error:
        raise BackendError(f"the CUDA device failed while {doing}: {error}") from error


def read_output(output: Output, n_points: int, method: str) -> RawSample:
    """Wait for the current stream and read what `CudaEngine.enqueue` left; the indices stay in the engine's memory."""
    return read_summary(output.summary.get(), output.indices, n_points, method)


def read_summary(words: Any, indices: Any, n_points: int, method: str) -> RawSample:
    """The answer from a summary's words on the host and the indices, wherever they are.

    Args:
        words: (SUMMARY_WORDS,) uint64 NumPy, the summary of `Output`.
        indices: (M,) int64.
        n_points: points that could be sampled.
        method: the one that ran.
    """
    summary = words.view(SUMMARY)[0]
    count = int(summary["count"])
    pruned = method in COOPERATIVE_METHODS
    return RawSample(
        indices=indices[:count],
        coverage_squared=float(summary["coverage"]),
        method=method,
        rounds=int(summary["rounds"]) if pruned else count,
        voxels=int(summary["voxels"]),
        skip_rate=max(0.0, 1.0 - int(summary["updates"]) / (n_points * count)) if pruned and count else 0.0,
        threads=0,
    )
