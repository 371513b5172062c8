"""Frames of fixed capacity: unusable rows anywhere, the start read on the device, all of it in a CUDA graph."""

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sampling import Sampler
from radius_fps_ros.sampling.reference import reference_sampling
from sampling.cases import lidar_like
from sampling.cuda.devices import CLUSTER

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")

from radius_fps_ros.sampling.cuda import CudaEngine, read_output

CAPACITY = 20_000
SCAN = lidar_like(np.random.default_rng(1), CAPACITY)
METHODS = ["lookahead", "radius", "brute", "single_block", CLUSTER]
NO_ROW = 2**32 - 1
ROWS = np.arange(CAPACITY)
# Rows that a frame may use.
USABLE = {
    "one in ten": np.random.default_rng(2).random(CAPACITY) < 0.1,
    "the first": ROWS < 1500,
    "the last": ROWS >= CAPACITY - 1500,
    "a stretch": (ROWS >= 7000) & (ROWS < 9100),
    "a sector of every ring": ROWS % 625 < 60,
    "all but a few": ROWS % 97 != 0,
    "thirty-three": ROWS % 601 == 5,
    "two": (ROWS == 7) | (ROWS == CAPACITY - 1),
    "one": ROWS == 12_345,
}


def frame(usable):
    """The scan with NaN where a row may not be used, and in one column only in some."""
    points = SCAN.copy()
    points[~usable] = np.nan
    half = ~usable & (ROWS % 3 == 0)
    points[half] = SCAN[half]
    points[half, 1] = np.inf
    return points


def on_device(row):
    return cupy.array([row], np.uint32)


def expected(points, n_samples, start):
    """The reference on the usable rows alone, its indices those of the frame."""
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    indices, coverage_squared = reference_sampling(points[rows], n_samples, int(np.flatnonzero(rows == start)[0]))
    return rows[indices], coverage_squared


def assert_answer(output, method, points, n_samples, start):
    raw = read_output(output, len(points), method)
    indices, coverage_squared = expected(points, n_samples, start)
    np.testing.assert_array_equal(raw.indices.get(), indices)
    assert raw.coverage_squared == coverage_squared


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", USABLE)
def test_unusable_rows_are_as_though_they_were_not_there(method, name):
    points = frame(USABLE[name])
    start = int(np.flatnonzero(USABLE[name])[-1])
    engine = CudaEngine(method)
    for row in (start, on_device(start)):
        assert_answer(engine.enqueue(cupy.asarray(points), 400, row), method, points, 400, start)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("start", [NO_ROW, CAPACITY, 0], ids=["none", "beyond the frame", "a row that is not finite"])
@pytest.mark.parametrize("usable", [USABLE["a stretch"], ROWS < 0], ids=["some usable", "none usable"])
def test_without_a_start_nothing_is_sampled(method, start, usable):
    output = CudaEngine(method).enqueue(cupy.asarray(frame(usable)), 300, on_device(start))
    raw = read_output(output, CAPACITY, method)
    assert (len(raw.indices), raw.coverage_squared, raw.rounds, raw.skip_rate) == (0, 0.0, 0, 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_one_graph_takes_frames_of_any_kind(method):
    n_samples = 100
    engine = CudaEngine(method)
    points, start = cupy.asarray(SCAN), on_device(3)
    read_output(engine.enqueue(points, n_samples, start), CAPACITY, method)  # waits: the other stream would not
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        output = engine.enqueue(points, n_samples, start)
        graph = stream.end_capture()
        for usable in (*USABLE.values(), ROWS < 0, ROWS >= 0):
            rows = np.flatnonzero(usable)
            first = int(rows[0]) if len(rows) else NO_ROW
            now = frame(usable)
            points.set(now, stream=stream)
            start.set(np.array([first], np.uint32), stream=stream)
            graph.launch(stream)
            if len(rows):
                assert_answer(output, method, now, n_samples, first)
            else:
                assert len(read_output(output, CAPACITY, method).indices) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_memory_stays_while_frames_change(method):
    engine = CudaEngine(method)
    points, start = cupy.asarray(SCAN), on_device(0)
    engine.enqueue(points, 300, start)
    held, generation = engine.workspace_bytes, engine.generation
    points[100:] = cupy.nan
    for n, m in ((CAPACITY, 300), (CAPACITY, 20), (500, 300)):
        engine.enqueue(points[:n], m, start)
    assert (engine.workspace_bytes, engine.generation) == (held, generation)
    engine.enqueue(cupy.zeros((CAPACITY + 5000, 3), np.float32), 700, start)
    assert engine.generation > generation


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (lambda: cupy.zeros(1, np.int64), r"one uint32, shape \(1,\), not int64 \(1,\)"),
        (lambda: cupy.zeros(2, np.uint32), r"one uint32, shape \(1,\), not uint32 \(2,\)"),
        (lambda: CAPACITY, "start must be a row of points, 0 to 19999, not 20000"),
        (lambda: -1, "start must be a row of points"),
    ],
)
def test_a_start_of_another_kind_is_refused(start, sentence):
    with pytest.raises(InputError, match=sentence):
        CudaEngine("lookahead").enqueue(cupy.asarray(SCAN), 10, start())


@pytest.mark.gpu
@pytest.mark.parametrize("array", [cupy.asarray, np.asarray], ids=["CuPy", "NumPy"])
@pytest.mark.parametrize("method", ["lookahead", "auto"])
def test_the_public_call_says_what_is_wrong_with_the_start(array, method):
    sampler = Sampler(backend="cuda", method=method)
    points = array(frame(USABLE["a stretch"]))
    with pytest.raises(InputError, match=r"points\[5\] is not finite, so .* start=7000 could"):
        sampler(points, 20, start=5)
    assert len(sampler(points, 20, start=7000).indices) == 20
    with pytest.raises(InputError, match="none of the 3 points is finite in float32"):
        sampler(array(np.full((3, 3), np.nan, np.float32)), 2)
