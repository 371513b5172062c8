"""The CUDA engine: array kinds, streams, graphs, memory, errors."""

import numpy as np
import pytest

from radius_fps_ros.errors import BackendError, InputError
from radius_fps_ros.sampling import Sampler, farthest_point_sampling
from radius_fps_ros.sampling.reference import reference_sampling
from sampling.cases import lidar_like
from sampling.cuda.devices import CLUSTER

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")

from radius_fps_ros.sampling.cuda import CudaEngine, device_bytes, read_output
from radius_fps_ros.sampling.cuda import engine as engine_module
from radius_fps_ros.sampling.cuda.engine import auto_method
from radius_fps_ros.sampling.cuda.layout import MOST_IN_CLUSTER, shape_for

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
@pytest.mark.parametrize("method", [*METHODS, "brute", "single_block", CLUSTER])
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
@pytest.mark.parametrize("method", [*METHODS, "single_block", CLUSTER])
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
@pytest.mark.parametrize("method", [*METHODS, "single_block", CLUSTER])
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
@pytest.mark.parametrize("method", [*METHODS, "brute", "single_block", CLUSTER])
@pytest.mark.parametrize(("n", "m"), [(1000, 10), (65_536, 4096), (300_000, 5000)])
def test_the_memory_report_is_what_is_held(method, n, m):
    if method == "cluster":
        n = min(n, MOST_IN_CLUSTER)
    engine = CudaEngine(method)
    engine.enqueue(cupy.zeros((n, 3), np.float32), m, 0)
    assert engine.workspace_bytes == device_bytes(method, n, m)


@pytest.mark.parametrize(
    ("n_points", "n_samples", "with_clusters", "without"),
    [
        (1000, 4, "single_block", "single_block"),
        (1024, 1024, "single_block", "single_block"),
        (2048, 1700, "single_block", "single_block"),
        (2048, 1701, "lookahead", "lookahead"),
        (4096, 670, "cluster", "single_block"),
        (4096, 1100, "cluster", "lookahead"),
        (4096, 1101, "lookahead", "lookahead"),
        (16_384, 33, "cluster", "lookahead"),
        (16_385, 411, "lookahead", "lookahead"),
        (65_536, 4, "cluster", "brute"),
        (65_536, 220, "cluster", "lookahead"),
        (65_537, 4, "brute", "brute"),
        (65_537, 5, "lookahead", "lookahead"),
        (300_000, 1, "lookahead", "lookahead"),
        (130_000, 4096, "lookahead", "lookahead"),
    ],
)
def test_auto_takes_what_was_measured_fastest(n_points, n_samples, with_clusters, without):
    assert auto_method(n_points, n_samples, clusters=True) == with_clusters
    assert auto_method(n_points, n_samples, clusters=False) == without


@pytest.mark.gpu
def test_auto_goes_by_the_device():
    clusters = int(cupy.cuda.Device().compute_capability) >= 90
    assert CudaEngine().method_for(30_000, 200) == ("cluster" if clusters else "lookahead")


@pytest.mark.gpu
def test_what_a_cluster_cannot_do_is_a_sentence(monkeypatch):
    with pytest.raises(InputError, match="'cluster' takes at most 65,536 points, not 65,537"):
        CudaEngine("cluster").enqueue(cupy.zeros((65_537, 3), np.float32), 10, 0)
    monkeypatch.setattr(engine_module, "offers_clusters", lambda device: False)
    with pytest.raises(BackendError, match=r"needs thread block clusters .* CUDA device \d+ does not offer"):
        CudaEngine("cluster").enqueue(cupy.zeros((10, 3), np.float32), 10, 0)


@pytest.mark.parametrize(
    ("method", "n_points", "kernel"),
    [
        ("cluster", 1, "cluster_128_4"),
        ("cluster", 4096, "cluster_128_4"),
        ("cluster", 4097, "cluster_128_8"),
        ("cluster", 34_688, "cluster_256_24"),
        ("cluster", 65_536, "cluster_256_32"),
        ("single_block", 1024, "single_block_128_8"),
        ("single_block", 8192, "single_block_512_16"),
        ("single_block", 8193, "single_block_1024"),
    ],
)
def test_the_smallest_shape_that_holds_the_cloud(method, n_points, kernel):
    assert shape_for(method, n_points).kernel == kernel


def test_a_method_asked_for_is_the_one_that_runs():
    assert CudaEngine("radius").method_for(1000, 4) == "radius"


def test_bytes_per_point():
    for method, limit in (("brute", 4.01), ("single_block", 4.01), ("lookahead", 26), ("radius", 28)):
        more = device_bytes(method, 4_000_000, 1000, multiprocessors=132)
        less = device_bytes(method, 2_000_000, 1000, multiprocessors=132)
        assert 0 < (more - less) / 2_000_000 < limit
    assert device_bytes("lookahead", 65_536, 4096, multiprocessors=132) < 8 << 20
    assert device_bytes("cluster", 65_536, 4096, multiprocessors=132) == 8 * 4096 + 24


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
