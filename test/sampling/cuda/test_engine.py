"""The CUDA engine: array kinds, streams, graphs, memory, errors."""

import numpy as np
import pytest

from radius_fps_ros.errors import BackendError, InputError
from radius_fps_ros.sampling import Sampler, farthest_point_sampling
from radius_fps_ros.sampling.reference import reference_sampling
from sampling.cases import lidar_like

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")

from radius_fps_ros.sampling.cuda import CudaEngine, device_bytes, read_output

POINTS = lidar_like(np.random.default_rng(1), 20_000)
METHODS = ["radius", "lookahead"]
SPIN = """extern "C" __global__ void spin() {
    const long long begin = clock64();
    while (clock64() - begin < 100000000) {}
}"""


@pytest.fixture(scope="module")
def expected():
    return reference_sampling(POINTS, 500, 3)[0]


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*METHODS, "brute"])
def test_the_result_is_of_the_kind_of_the_input(method, expected):
    sampler = Sampler(backend="cuda", method=method)
    on_host = sampler(POINTS, 500, start=3)
    on_device = sampler(cupy.asarray(POINTS), 500, start=3)
    assert isinstance(on_host.indices, np.ndarray)
    assert isinstance(on_device.indices, cupy.ndarray)
    assert on_device.indices.dtype == np.int64
    np.testing.assert_array_equal(on_host.indices, expected)
    np.testing.assert_array_equal(on_device.indices.get(), expected)
    assert on_host.coverage_radius == on_device.coverage_radius


@pytest.mark.gpu
def test_strided_and_other_types_on_the_device(expected):
    wide = cupy.zeros((len(POINTS), 5), np.float32)
    wide[:, :3] = cupy.asarray(POINTS)
    for points in (wide[:, :3], cupy.asarray(POINTS.astype(np.float64)), cupy.asfortranarray(cupy.asarray(POINTS))):
        np.testing.assert_array_equal(farthest_point_sampling(points, 500, start=3).indices.get(), expected)


@pytest.mark.gpu
def test_a_result_survives_the_next_call(expected):
    sampler = Sampler(backend="cuda")
    first = sampler(cupy.asarray(POINTS), 500, start=3).indices
    sampler(cupy.asarray(POINTS[::-1].copy()), 500, start=0)
    np.testing.assert_array_equal(first.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_one_sampler_takes_clouds_of_any_size(method):
    sampler = Sampler(backend="cuda", method=method)
    for n, m in ((5000, 300), (20_000, 20), (33, 33), (12_345, 2000), (1, 1), (20_000, 1000)):
        np.testing.assert_array_equal(sampler(POINTS[:n], m).indices, reference_sampling(POINTS[:n], m)[0])


@pytest.mark.gpu
def test_stats_tell_what_ran():
    result = farthest_point_sampling(cupy.asarray(POINTS), 500, method="radius")
    assert result.stats.backend == "cuda"
    assert result.stats.method == "radius"
    assert result.stats.rounds == 500
    assert 0 < result.stats.voxels < len(POINTS)
    assert 0.5 < result.stats.skip_rate < 1
    assert result.stats.threads == 0
    look = farthest_point_sampling(cupy.asarray(POINTS), 500, method="lookahead")
    assert 0 < look.stats.rounds < 200
    assert 0.5 < look.stats.skip_rate < 1


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*METHODS, "brute"])
def test_too_few_distinct_points(method):
    points = cupy.asarray(POINTS[:10].repeat(50, axis=0))
    distinct = len(np.unique(POINTS[:10], axis=0))
    assert len(farthest_point_sampling(points, 100, method=method).indices) == distinct
    padded = farthest_point_sampling(points, 100, method=method, on_duplicates="pad")
    assert len(padded.indices) == 100
    assert padded.n_distinct == distinct
    with pytest.raises(InputError, match=f"only {distinct} distinct points"):
        farthest_point_sampling(points, 100, method=method, on_duplicates="error")


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*METHODS, "brute"])
def test_work_goes_to_the_current_stream_and_nothing_waits(method, expected):
    engine = CudaEngine(method)
    points = cupy.asarray(POINTS)
    engine.run(points, 500, 3)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        late = cupy.zeros_like(points)
        spin = cupy.RawKernel(SPIN, "spin")
        spin((1,), (1,), ())
        late[...] = points  # behind the spin: only a kernel of the same stream sees it
        output = engine.enqueue(late, 500, 3)
        assert not stream.done
    stream.synchronize()
    np.testing.assert_array_equal(output.indices.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_cuda_graph_replays_it_on_new_points(method, expected):
    engine = CudaEngine(method)
    points = cupy.zeros((len(POINTS), 3), np.float32)
    points[:, 0] = cupy.arange(len(POINTS))
    engine.run(points, 500, 3)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        output = engine.enqueue(points, 500, 3)
        graph = stream.end_capture()
        points.set(POINTS, stream=stream)
        for _ in range(3):
            graph.launch(stream)
        raw = read_output(output, len(POINTS), method)
    np.testing.assert_array_equal(raw.indices.get(), expected)
    assert raw.method == method


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_allocated_after_the_first_cloud_of_a_size(method):
    engine = CudaEngine(method)
    points = cupy.asarray(POINTS)
    engine.enqueue(points, 500, 3)
    held = engine.workspace_bytes
    allocations = []

    class Hook(cupy.cuda.memory_hook.MemoryHook):
        name = "count"

        def malloc_preprocess(self, **kwargs):
            allocations.append(kwargs)

    with Hook():
        for start in range(3):
            engine.enqueue(points, 500, start)
    assert allocations == []
    assert engine.workspace_bytes == held


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*METHODS, "brute"])
@pytest.mark.parametrize(("n", "m"), [(1000, 10), (65_536, 4096), (300_000, 5000)])
def test_the_memory_report_is_what_is_held(method, n, m):
    engine = CudaEngine(method)
    engine.enqueue(cupy.zeros((n, 3), np.float32), m, 0)
    assert engine.workspace_bytes == device_bytes(method, n, m)


@pytest.mark.parametrize(
    ("n_points", "n_samples", "method"),
    [
        (1000, 4, "single_block"),
        (4096, 256, "single_block"),
        (4096, 257, "lookahead"),
        (16_385, 31, "single_block"),
        (16_385, 64, "lookahead"),
        (65_536, 8, "single_block"),
        (65_537, 4, "brute"),
        (65_537, 5, "lookahead"),
        (300_000, 1, "lookahead"),
        (130_000, 4096, "lookahead"),
    ],
)
def test_auto_sorts_only_where_that_pays(n_points, n_samples, method):
    assert CudaEngine().method_for(n_points, n_samples) == method


def test_a_method_asked_for_is_the_one_that_runs():
    assert CudaEngine("radius").method_for(1000, 4) == "radius"


def test_bytes_per_point():
    for method, limit in (("brute", 4.01), ("lookahead", 26), ("radius", 28)):
        more = device_bytes(method, 4_000_000, 1000, multiprocessors=132)
        less = device_bytes(method, 2_000_000, 1000, multiprocessors=132)
        assert 0 < (more - less) / 2_000_000 < limit
    assert device_bytes("lookahead", 65_536, 4096, multiprocessors=132) < 8 << 20


@pytest.mark.gpu
def test_a_fault_of_the_device_is_a_sentence():
    engine = CudaEngine("lookahead")
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    limit = pool.get_limit()
    pool.set_limit(size=pool.total_bytes() + (1 << 20))
    try:
        with pytest.raises(BackendError, match=r"the CUDA device failed while sampling 2000000 points: Out of memory"):
            engine.run(np.zeros((2_000_000, 3), np.float32), 10, 0)
    finally:
        pool.set_limit(size=limit)
    assert len(engine.run(POINTS, 10, 0).indices) == 10
