"""Farthest point sampling: the public entry, its checks and the choice of the backend."""

from __future__ import annotations

import operator
import threading
import time
from typing import Any, NoReturn

import numpy as np

from ..device import BackendChoice, array_module, is_cupy_array, select_backend
from ..errors import InputError
from .engine import METHODS, Engine, RawSample
from .result import SamplingResult, SamplingStats

MAX_SAMPLES = 2**31 - 1

ON_DUPLICATES = ("truncate", "pad", "error")

MAX_KEPT_BYTES = 64 << 20
"""`farthest_point_sampling` keeps its workspaces up to this size, about 1.5 million points on the CPU."""


class _Last(threading.local):
    """The sampler of the last call in this Python thread: fresh memory costs as much time as sampling does."""

    def __init__(self) -> None:
        self.samplers: dict[str, Sampler] = {}


_last = _Last()


def farthest_point_sampling(
    points: Any,
    n_samples: int,
    *,
    start: int = 0,
    backend: str = "auto",
    method: str = "auto",
    on_duplicates: str = "truncate",
    threads: int | None = None,
) -> SamplingResult:
    """Sample a cloud by exact farthest point sampling.

    Sample 0 is ``points[start]``; each further sample is the point farthest from all samples so far, the smallest
    index among equals. Distances are float32, ``(dx*dx + dy*dy) + dz*dz`` with every operation rounded, so that all
    methods and backends return the same indices bit for bit (Gonzalez 1985; Eldar et al. 1997).

    Args:
        points: (N, 3) x y z, NumPy or CuPy, any float or integer type; rounded to float32 first. Rows that are then
            not finite are never sampled and do not count for the coverage radius.
        n_samples: how many samples, 1 to 2^31 - 1; ``on_duplicates`` decides where fewer distinct points exist.
        start: row of the first sample; it must be finite.
        backend: ``"auto"`` (CUDA where usable, else CPU), ``"cpu"`` or ``"cuda"``.
        method: ``"radius"`` (spherical voxel pruning), ``"lookahead"`` (exact batches), ``"brute"`` (one full pass a
            sample) or ``"auto"``.
        on_duplicates: what to do when fewer than ``n_samples`` distinct points exist, that is, when every remaining
            squared distance is 0 in float32: ``"truncate"`` returns the distinct ones, ``"pad"`` repeats them in order
            up to ``n_samples``, ``"error"`` raises.
        threads: CPU threads at most; small clouds use fewer, as each needs some 16,000 points to pay. ``radius``
            spreads only its preparation. ``None``: as many as this process may use.

    Returns:
        `SamplingResult`; its ``indices`` are of the same array library as ``points``.

    Raises:
        InputError: an argument cannot be used, or ``on_duplicates="error"`` met too few distinct points.
        BackendError: the backend asked for cannot run here.
    """
    arguments = repr((backend, method, threads))
    sampler = _last.samplers.pop(arguments, None) or Sampler(backend=backend, method=method, threads=threads)
    result = sampler(points, n_samples, start=start, on_duplicates=on_duplicates)
    _last.samplers = {arguments: sampler} if sampler.workspace_bytes <= MAX_KEPT_BYTES else {}
    return result


class Sampler:
    """`farthest_point_sampling` as an object that keeps its workspaces between clouds.

    A second cloud of the same size allocates nothing but its result. One call at a time; give each Python thread its
    own.
    """

    def __init__(self, *, backend: str = "auto", method: str = "auto", threads: int | None = None) -> None:
        """See `farthest_point_sampling` for the arguments and errors."""
        if method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        if threads is not None and _integer(threads, "threads") < 1:
            raise InputError(f"threads must be at least 1, not {threads}")
        self._backend = backend
        self._method = method
        self._threads = threads
        self._engines: dict[str, Engine] = {}
        self._staging = np.empty((0, 3), np.float32)
        self._choice = select_backend(backend)

    @property
    def backend(self) -> BackendChoice:
        """The backend that samples NumPy arrays, and why."""
        return self._choice

    def warm_up(self) -> None:
        """Compile all that later calls need, so that the first cloud is not slowed by it."""
        self._engine(self._choice).warm_up()

    def __call__(
        self, points: Any, n_samples: int, *, start: int = 0, on_duplicates: str = "truncate"
    ) -> SamplingResult:
        """Sample one cloud; see `farthest_point_sampling`."""
        begin = time.perf_counter()
        if on_duplicates not in ON_DUPLICATES:
            raise InputError(f"on_duplicates must be one of {', '.join(ON_DUPLICATES)}, not {on_duplicates!r}")
        points = points if is_cupy_array(points) else _as_array(points)
        _check_points(points)
        choice = select_backend(self._backend, points)
        if choice.name == "cpu" and is_cupy_array(points):
            raise InputError(f"points is a CuPy array but only the CPU can run here: {choice.reason}")
        count = checked_count(n_samples)
        row = _integer(start, "start")
        if not 0 <= row < len(points):
            raise InputError(f"start must be a row of points, 0 to {len(points) - 1}, not {row}")
        points = self._float32(points)

        raw = self._engine(choice).run(points, min(count, len(points)), row)

        if len(raw.indices) == 0:
            _refuse_start(points, row)
        indices = _fill(raw, count, on_duplicates)
        return SamplingResult(
            indices=indices,
            coverage_radius=float(np.sqrt(np.float64(raw.coverage_squared))),
            n_distinct=len(raw.indices),
            stats=SamplingStats(
                backend=choice.name,
                backend_reason=choice.reason,
                method=raw.method,
                rounds=raw.rounds,
                voxels=raw.voxels,
                skip_rate=raw.skip_rate,
                milliseconds=(time.perf_counter() - begin) * 1e3,
                threads=raw.threads,
            ),
        )

    @property
    def workspace_bytes(self) -> int:
        """Bytes held between calls, on the CPU and on the device together."""
        return self._staging.nbytes + sum(engine.workspace_bytes for engine in self._engines.values())

    def _engine(self, choice: BackendChoice) -> Engine:
        if choice.name not in self._engines:
            self._engines[choice.name] = _make_engine(choice.name, self._method, self._threads)
        return self._engines[choice.name]

    def _float32(self, points: Any) -> Any:
        """``points`` as C-contiguous float32, copied only where needed, on the CPU into the kept staging array."""
        if is_cupy_array(points):
            return array_module(points).ascontiguousarray(points, dtype=np.float32)
        if points.dtype == np.float32 and points.flags.c_contiguous and points.flags.aligned:
            return points
        if len(self._staging) < len(points):
            self._staging = np.empty((len(points), 3), np.float32)
        staged = self._staging[: len(points)]
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32: becomes infinite, hence never sampled
            np.copyto(staged, points, casting="unsafe")
        return staged


def _make_engine(backend: str, method: str, threads: int | None) -> Engine:
    # Imported here so that neither Numba nor CuPy is loaded before it is used.
    if backend == "cuda":
        from .cuda import CudaEngine

        engine: Engine = CudaEngine(method, threads)
    else:
        from .cpu import CpuEngine

        engine = CpuEngine(method, threads)
    return engine


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be an integer, not {value!r}") from None


def _as_array(points: Any) -> np.ndarray:
    try:
        return np.asarray(points)
    except (ValueError, TypeError) as error:
        raise InputError(f"points must be an (N, 3) array: {error}") from error


def _check_points(points: Any) -> None:
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(f"points must have shape (N, 3), not {points.shape}")
    if points.dtype.kind not in "fiu":
        raise InputError(f"points must be floats or integers, not {points.dtype}")
    if len(points) == 0:
        raise InputError("points is empty; at least one point is needed")


def checked_count(n_samples: Any) -> int:
    """``n_samples`` as an integer; InputError when it cannot be a number of samples."""
    count = _integer(n_samples, "n_samples")
    if count < 1:
        raise InputError(f"n_samples must be at least 1, not {count}")
    if count > MAX_SAMPLES:
        raise InputError(f"n_samples must be at most {MAX_SAMPLES:,}, not {count:,}")
    return count


def _refuse_start(points: Any, row: int) -> NoReturn:
    finite = array_module(points).isfinite(points).all(axis=1)
    if not bool(finite.any()):
        raise InputError(f"none of the {len(points)} points is finite in float32")
    raise InputError(f"points[{row}] is not finite, so sampling cannot start there; start={int(finite.argmax())} could")


def _fill(raw: RawSample, count: int, on_duplicates: str) -> Any:
    distinct = len(raw.indices)
    if distinct == count or on_duplicates == "truncate":
        return raw.indices
    if on_duplicates == "error":
        raise InputError(f"only {distinct} distinct points exist, fewer than n_samples={count}")
    xp = array_module(raw.indices)
    try:
        padded = xp.empty(count, np.int64)
    except MemoryError:
        raise InputError(f"n_samples={count:,} padded indices do not fit into memory") from None
    padded[:distinct] = raw.indices
    filled = distinct
    while filled < count:  # whole repetitions, twice as many each time
        more = min(filled, count - filled)
        padded[filled : filled + more] = padded[:more]
        filled += more
    return padded
