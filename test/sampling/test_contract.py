"""The public entry: arguments, errors, duplicates, stats, reuse."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from radius_fps_ros.errors import BackendError, InputError
from radius_fps_ros.sampling import Sampler, farthest_point_sampling
from radius_fps_ros.sampling.cpu.parallel import run_chunks, split
from radius_fps_ros.sampling.reference import reference_sampling
from sampling.cases import lidar_like

POINTS = np.random.default_rng(0).normal(0, 5, (3000, 3)).astype(np.float32)


def sample(points=POINTS, n_samples=50, **options):
    return farthest_point_sampling(points, n_samples, **{"backend": "cpu", **options})


def test_the_definition_on_a_cloud_small_enough_to_check_by_hand():
    line = np.array([[0, 0, 0], [1, 0, 0], [10, 0, 0], [4, 0, 0]], np.float32)
    result = sample(line, 3, start=1)
    assert result.indices.tolist() == [1, 2, 3]
    assert result.coverage_radius == 1.0
    assert result.n_distinct == 3


def test_a_prefix_is_the_answer_for_fewer_samples():
    full = sample(n_samples=200).indices
    for k in (1, 2, 63, 199):
        np.testing.assert_array_equal(sample(n_samples=k).indices, full[:k])


def test_stats_tell_what_ran():
    stats = sample(method="lookahead", threads=1).stats
    assert (stats.backend, stats.backend_reason, stats.method, stats.threads) == ("cpu", "requested", "lookahead", 1)
    assert stats.voxels == -(-3000 // 64)
    assert 0 < stats.rounds < 50, "several samples a round"
    assert 0 < stats.skip_rate < 1
    assert {type(value) for value in vars(stats).values()} == {str, int, float}
    assert stats.milliseconds > 0
    assert sample(method="brute").stats.skip_rate == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.method = "other"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8, ">f4"])
def test_other_types_are_rounded_to_float32(dtype):
    points = np.abs(POINTS * 3).astype(dtype)
    np.testing.assert_array_equal(sample(points).indices, reference_sampling(points.astype(np.float32), 50)[0])


def test_float64_beyond_float32_is_not_finite():
    points = POINTS.astype(np.float64)
    points[7] = 1e300
    assert 7 not in sample(points, 2999).indices


def test_columns_of_a_wider_array_need_no_copy_by_the_caller():
    wide = np.concatenate([POINTS, POINTS[:, :2]], axis=1)
    np.testing.assert_array_equal(sample(wide[:, :3]).indices, sample().indices)
    np.testing.assert_array_equal(sample(POINTS[::-2]).indices, sample(POINTS[::-2].copy()).indices)


def test_nested_lists_are_points_too():
    assert sample([[0, 0, 0], [1, 2, 2], [0, 0, 1]], 2).indices.tolist() == [0, 1]


def test_the_input_is_left_alone():
    points = POINTS.copy()
    sample(points)
    np.testing.assert_array_equal(points, POINTS)
    points.flags.writeable = False
    sample(points)


DUPLICATES = np.repeat(np.arange(4, dtype=np.float32), 5)[:, None] * np.ones(3, np.float32)


def test_truncate_returns_the_distinct_points():
    result = sample(DUPLICATES, 9)
    assert result.indices.tolist() == [0, 15, 5, 10]
    assert (result.n_distinct, result.coverage_radius) == (4, 0.0)


def test_pad_repeats_the_samples_in_order():
    result = sample(DUPLICATES, 30, on_duplicates="pad")
    assert result.indices.tolist() == ([0, 15, 5, 10] * 8)[:30]
    assert result.n_distinct == 4


def test_pad_to_lengths_around_whole_repetitions():
    for n_samples in (4, 5, 7, 8, 9, 16, 17, 63):
        expected = np.resize([0, 15, 5, 10], n_samples)
        np.testing.assert_array_equal(sample(DUPLICATES, n_samples, on_duplicates="pad").indices, expected)
    assert len(sample(DUPLICATES[:1], 1_000_000, on_duplicates="pad").indices) == 1_000_000


def test_error_says_how_many_distinct_points_exist():
    with pytest.raises(InputError, match="only 4 distinct points exist, fewer than n_samples=9"):
        sample(DUPLICATES, 9, on_duplicates="error")
    assert sample(DUPLICATES, 4, on_duplicates="error").n_distinct == 4


def test_more_samples_than_points_is_a_matter_of_on_duplicates():
    distinct = np.arange(15, dtype=np.float32).reshape(5, 3)
    assert len(sample(distinct, 9).indices) == 5
    padded = sample(distinct, 9, on_duplicates="pad")
    assert (len(padded.indices), padded.n_distinct) == (9, 5)
    with pytest.raises(InputError, match="only 5 distinct points exist, fewer than n_samples=9"):
        sample(distinct, 9, on_duplicates="error")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": np.zeros((0, 3))}, "points is empty"),
        ({"points": np.zeros((5, 4))}, r"shape \(N, 3\), not \(5, 4\)"),
        ({"points": np.zeros(3)}, r"shape \(N, 3\), not \(3,\)"),
        ({"points": np.zeros((5, 3), complex)}, "floats or integers, not complex128"),
        ({"points": np.zeros((5, 3), bool)}, "floats or integers, not bool"),
        ({"points": [["a", "b", "c"]]}, "floats or integers"),
        ({"points": np.full((5, 3), np.nan), "n_samples": 2}, "none of the 5 points is finite"),
        ({"points": np.r_[[[np.inf, 0, 0]], np.ones((4, 3))], "n_samples": 2}, r"points\[0\] is not finite.*start=1"),
        ({"n_samples": 0}, "n_samples must be at least 1, not 0"),
        ({"n_samples": -3}, "n_samples must be at least 1, not -3"),
        ({"n_samples": 2**31}, "n_samples must be at most 2,147,483,647, not 2,147,483,648"),
        ({"n_samples": 10**30, "on_duplicates": "pad"}, "n_samples must be at most 2,147,483,647"),
        ({"n_samples": 2.0}, "n_samples must be an integer, not 2.0"),
        ({"n_samples": None}, "n_samples must be an integer"),
        ({"start": 3000}, "start must be a row of points, 0 to 2999, not 3000"),
        ({"start": -1}, "start must be a row"),
        ({"start": "first"}, "start must be an integer"),
        ({"backend": "gpu"}, "backend must be one of auto, cpu, cuda, not 'gpu'"),
        ({"backend": ["cpu"]}, "backend must be one of"),
        ({"method": "fast"}, "method must be one of auto, radius, lookahead, brute, not 'fast'"),
        ({"on_duplicates": "drop"}, "on_duplicates must be one of truncate, pad, error, not 'drop'"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"threads": 1.0}, "threads must be an integer, not 1.0"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        sample(**arguments)
    assert "\n" not in str(caught.value)


def test_a_ragged_list_gets_one_sentence():
    with pytest.raises(InputError, match=r"points must be an \(N, 3\) array"):
        sample([[0, 0, 0], [1, 2]])


def test_a_missing_gpu_is_said_and_never_passed_over():
    from radius_fps_ros.device import cuda_unavailable_reason

    reason = cuda_unavailable_reason()
    if reason is None:
        pytest.skip("a CUDA device is here")
    with pytest.raises(BackendError, match="cannot run"):
        sample(backend="cuda")
    stats = sample(backend="auto").stats
    assert (stats.backend, stats.backend_reason) == ("cpu", reason)


def test_numpy_integers_are_integers():
    result = sample(n_samples=np.int32(20), start=np.uint8(5), threads=np.int64(1))
    np.testing.assert_array_equal(result.indices, sample(n_samples=20, start=5).indices)


@pytest.mark.parametrize("method", ["radius", "lookahead", "brute"])
def test_a_sampler_keeps_its_workspaces_and_gives_away_its_results(method):
    sampler = Sampler(backend="cpu", method=method)
    first = sampler(POINTS, 100)
    kept = first.indices.copy()
    held = sampler.workspace_bytes
    assert held > 0
    sampler(POINTS[::-1], 100)  # another cloud of the same size, through the staging array
    sampler(POINTS[::-1] * 2, 100)
    np.testing.assert_array_equal(first.indices, kept)
    np.testing.assert_array_equal(sampler(POINTS, 100).indices, kept)
    staging = POINTS.nbytes
    assert sampler.workspace_bytes <= held + staging
    assert sampler(POINTS[:1000], 1000).n_distinct == 1000  # smaller clouds in the larger workspaces


@pytest.mark.parametrize(("method", "bytes_per_point"), [("lookahead", 41), ("radius", 56), ("brute", 18)])
def test_memory_per_point_is_what_the_documentation_states(method, bytes_per_point):
    points = lidar_like(np.random.default_rng(3), 60_000)
    sampler = Sampler(backend="cpu", method=method, threads=1)
    sampler(points, 64)
    assert sampler.workspace_bytes <= bytes_per_point * len(points) + 100_000


def test_the_function_keeps_no_large_workspace():
    from radius_fps_ros.sampling import fps

    sample(n_samples=10, method="lookahead")
    assert len(fps._last.samplers) == 1
    large = np.zeros((2_000_000, 3), np.float32)
    large[:, 0] = np.arange(len(large))
    assert sample(large, 40, method="lookahead").n_distinct == 40
    assert fps._last.samplers == {}


def test_python_threads_may_call_at_once():
    expected = sample(n_samples=300, method="lookahead").indices
    wrong = []

    def work():
        for _ in range(5):
            if not np.array_equal(sample(n_samples=300, method="lookahead").indices, expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_chunks_cover_everything_once():
    assert split(10, 3) == [(0, 3), (3, 6), (6, 10)]
    hits = np.zeros(1001, np.int64)

    def kernel(k, begin, end):
        hits[begin:end] += 1

    run_chunks(kernel, split(1001, 4))
    assert (hits == 1).all()


def test_an_error_in_a_chunk_surfaces():
    def kernel(k, begin, end):
        if k == 1:
            raise ValueError("second chunk")

    with pytest.raises(ValueError, match="second chunk"):
        run_chunks(kernel, split(10, 3))


def test_a_forked_child_gets_its_own_threads():
    run_chunks(lambda k, begin, end: None, split(10, 2))
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # waiting for threads that only the parent has would never end
        code = 1
        try:
            run_chunks(lambda k, begin, end: None, split(10, 2))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_importing_loads_neither_numba_nor_cupy():
    code = "import sys, radius_fps_ros.sampling; print([m for m in ('numba', 'cupy', 'rclpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
