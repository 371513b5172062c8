"""Every CPU method against the reference, bit for bit."""

import functools
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from radius_fps_ros.sampling import Sampler
from radius_fps_ros.sampling.cpu import brute, lookahead, order, parallel, radius
from radius_fps_ros.sampling.cpu.team import run_team
from sampling.cases import CASES, assert_matches_reference, lidar_like, random_case

METHODS = ["radius", "lookahead", "brute", "auto"]


@pytest.fixture(scope="module", params=METHODS)
def sampler(request):
    return Sampler(backend="cpu", method=request.param)


@pytest.mark.parametrize("name", CASES)
def test_named_clouds(sampler, name):
    case = CASES[name]
    assert_matches_reference(sampler, case.points(), case.n_samples, case.start)


def test_nothing_of_an_earlier_cloud_is_read(sampler):
    rng = np.random.default_rng(6)
    sampler(rng.random((5000, 3)).astype(np.float32), 500)
    case = CASES["beyond each other's reach"]
    assert_matches_reference(sampler, case.points(), case.n_samples, case.start)


def test_random_clouds(sampler):
    for seed in range(250):
        points, n_samples, start = random_case(seed)
        assert_matches_reference(sampler, points, n_samples, start)


@pytest.mark.parametrize("method", ["radius", "lookahead", "brute"])
def test_a_lidar_scan_shared_by_several_threads(method):
    points = lidar_like(np.random.default_rng(1), 310_000)
    points[::97] = np.nan
    three = Sampler(backend="cpu", method=method, threads=3)
    assert three(points, 200, start=1).stats.threads == 3
    assert_matches_reference(three, points, 200, 1)


@pytest.mark.parametrize("method", ["lookahead", "brute"])
def test_threads_change_no_index(method):
    rng = np.random.default_rng(7)
    lattice = np.stack(np.meshgrid(*[np.arange(40.0)] * 3), axis=-1).reshape(-1, 3).astype(np.float32)
    scan = lidar_like(rng, 70_000)
    out_of_range = (scan * np.float32(1e30)).astype(np.float32)  # every distance between two points is infinite
    for points in (scan, lattice, out_of_range):
        alone = Sampler(backend="cpu", method=method, threads=1)(points, 2500)
        for threads in (2, 5):
            shared = Sampler(backend="cpu", method=method, threads=threads)
            for _ in range(3):
                result = shared(points, 2500)
                np.testing.assert_array_equal(result.indices, alone.indices)
                assert result.coverage_radius == alone.coverage_radius
                assert result.stats.threads > 1


def test_more_ties_than_candidates():
    """Half of a cloud lies on a sphere around the start: all those points tie, exactly, with rows in random order."""
    rng = np.random.default_rng(8)
    shell = np.array([[3, 4, 0], [0, 3, 4], [4, 0, 3], [5, 0, 0]], np.float32)
    turns = [np.roll(row, k) for row in shell for k in range(3)]
    corners = np.unique(
        [row * signs for row in turns for signs in np.array(np.meshgrid(*[[-1, 1]] * 3)).T.reshape(-1, 3)], axis=0
    )
    points = np.concatenate([np.zeros((1, 3)), np.repeat(corners, 1500, axis=0), rng.normal(0, 1, (20_000, 3))])
    points[1:] = rng.permutation(points[1:])
    for threads in (1, 2):
        sampler = Sampler(backend="cpu", method="lookahead", threads=threads)
        assert_matches_reference(sampler, points.astype(np.float32), 600, 0)


def test_helpers_that_never_begin_are_not_waited_for():
    points = lidar_like(np.random.default_rng(9), 40_000)
    release = threading.Event()
    blocked = [parallel.submit(1, release.wait) for _ in range(3)]
    try:
        assert_matches_reference(Sampler(backend="cpu", method="lookahead", threads=2), points, 300, 0)
    finally:
        release.set()
    assert all(future.result() for future in blocked)


def test_chunks_that_nobody_begins_are_done_by_the_caller():
    release = threading.Event()
    blocked = parallel.submit(1, release.wait)
    hits = np.zeros(10, np.int64)

    def kernel(k, begin, end):
        hits[begin:end] += k + 1

    try:
        parallel.run_chunks(kernel, parallel.split(10, 2))
        assert hits.tolist() == [1] * 5 + [2] * 5
    finally:
        release.set()
    assert blocked.result()


def test_a_cancelled_job_keeps_no_array_in_the_queue():
    release = threading.Event()
    blocked = parallel.submit(1, release.wait)
    array = np.zeros(3)
    alive = weakref.ref(array)
    waiting = parallel.submit(1, np.sum, array)
    try:
        assert waiting.cancel()
        del array
        assert alive() is None
    finally:
        release.set()
    assert blocked.result()


def test_without_a_further_thread_one_does_the_work(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    points = lidar_like(np.random.default_rng(10), 210_000)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.MonkeyPatch.context() as fresh:
        fresh.setattr(parallel, "_pool", functools.cache(ThreadPoolExecutor))
        assert_matches_reference(Sampler(backend="cpu", method="lookahead", threads=2), points, 50, 0)


def test_sampling_while_the_interpreter_ends():
    code = """
import atexit, threading
import numpy as np
from radius_fps_ros.sampling import Sampler

points = np.random.default_rng(0).random((210_000, 3)).astype(np.float32)
sampler = Sampler(backend="cpu", method="lookahead", threads=2)
expected = sampler(points, 50).indices
main_thread = threading.main_thread()

def sample():
    main_thread.join()
    print((sampler(points, 50).indices == expected).all())

threading.Thread(target=sample).start()
atexit.register(lambda: print((sampler(points, 50).indices == expected).all()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (result.stdout.split(), result.stderr, result.returncode) == (["True", "True"], "", 0)


def test_samplers_in_several_python_threads_share_the_helpers():
    clouds = [lidar_like(np.random.default_rng(seed), 50_000) for seed in range(4)]
    expected = [Sampler(backend="cpu", threads=1)(points, 800).indices for points in clouds]

    def sample(k):
        sampler = Sampler(backend="cpu", threads=2)
        return [sampler(clouds[(k + i) % 4], 800).indices for i in range(4)]

    with ThreadPoolExecutor(4) as pool:
        for k, answers in enumerate(pool.map(sample, range(4))):
            for i, indices in enumerate(answers):
                np.testing.assert_array_equal(indices, expected[(k + i) % 4])


def test_a_helper_that_fails_is_heard():
    begun = threading.Event()

    def lead(team):
        begun.wait(60)
        parallel.submit(1, int).result()  # the one helper thread has come to its next job

    def help_lead(team, k):
        begun.set()
        raise ValueError("helper")

    with pytest.raises(ValueError, match="helper"):
        run_team(lead, help_lead, 2)


def test_helpers_end_when_the_call_is_interrupted_before_the_run_begins(monkeypatch):
    submitted = []

    def submit(*args):
        if submitted:
            raise KeyboardInterrupt
        submitted.append(parallel.submit(*args))
        return submitted[0]

    def help_lead(team, k):
        while team[0] == 0:
            time.sleep(0.001)

    monkeypatch.setattr("radius_fps_ros.sampling.cpu.team.submit", submit)
    with pytest.raises(KeyboardInterrupt):
        run_team(lambda team: None, help_lead, 3)
    if not submitted[0].cancelled():
        submitted[0].result(60)


def test_masses_of_duplicates_are_spent_by_few_rounds():
    """A hundred places with two thousand points each, in order of rows: the best candidates would all be one place."""
    places = np.stack(np.meshgrid(np.arange(5), np.arange(5), np.arange(4)), axis=-1).reshape(-1, 3)
    points = np.repeat(places, 2000, axis=0).astype(np.float32)
    sampler = Sampler(backend="cpu", method="lookahead", threads=1)
    assert_matches_reference(sampler, points, 150, 777)
    assert sampler(points, 150, start=777).stats.rounds < 40


def test_a_million_points():
    rng = np.random.default_rng(5)
    points = rng.random((1_000_000, 3)).astype(np.float32)
    points[rng.integers(0, len(points), 100_000)] = points[3]
    assert_matches_reference(Sampler(backend="cpu", method="lookahead"), points, 60, 3)


def test_methods_agree_where_the_reference_is_too_slow():
    points = lidar_like(np.random.default_rng(2), 50_000)
    results = [Sampler(backend="cpu", method=method)(points, 3000, start=9) for method in METHODS]
    for result in results[1:]:
        np.testing.assert_array_equal(result.indices, results[0].indices)
        assert result.coverage_radius == results[0].coverage_radius


@pytest.mark.parametrize("method", ["radius", "lookahead"])
def test_an_outlier_does_not_undo_the_pruning(method):
    points = lidar_like(np.random.default_rng(4), 20_000)
    sampler = Sampler(backend="cpu", method=method)
    clean = sampler(points, 500).stats.skip_rate
    points[123] = (1e6, -1e6, 1e6)
    assert sampler(points, 500).stats.skip_rate > clean - 0.05 > 0.8


def test_auto_takes_brute_where_sorting_would_not_pay():
    sampler = Sampler(backend="cpu")
    points = lidar_like(np.random.default_rng(6), 20_000)
    assert sampler(points[:1000], 100).stats.method == "brute"
    assert sampler(points, 16).stats.method == "brute"
    assert sampler(points, 500).stats.method == "lookahead"


def test_no_cloud_makes_a_warmed_up_sampler_compile_again():
    modules = (brute, radius, lookahead, order)
    kernels = [value for module in modules for value in vars(module).values() if hasattr(value, "nopython_signatures")]
    cached = [kernel for kernel in kernels if kernel.targetoptions.get("nogil")]
    assert len(cached) >= 9
    for method in ("brute", "radius", "lookahead"):
        Sampler(backend="cpu", method=method, threads=2).warm_up()
    before = {kernel.py_func.__qualname__: kernel.signatures for kernel in cached}
    scan = lidar_like(np.random.default_rng(8), 40_000)
    read_only = np.frombuffer(scan.tobytes(), np.float32).reshape(-1, 3)
    unaligned = np.frombuffer(b"x" + scan.tobytes(), np.float32, offset=1).reshape(-1, 3)
    for method in ("brute", "radius", "lookahead"):
        sampler = Sampler(backend="cpu", method=method, threads=2)
        for points in (scan, read_only, unaligned, scan[::2], scan.astype(np.float64), scan.astype(">f4")):
            sampler(points, np.int32(40), start=np.int16(3))
    assert {kernel.py_func.__qualname__: kernel.signatures for kernel in cached} == before
    assert all(len(signatures) == 1 for signatures in before.values())


def test_real_scans(data_dir):
    scan = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", np.float32).reshape(-1, 5)[:, :3]
    for method in METHODS:
        assert_matches_reference(Sampler(backend="cpu", method=method), scan, 1200, 77)
