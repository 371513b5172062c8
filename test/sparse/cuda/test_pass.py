"""What only the CUDA backend has: fixed capacities, the captured pass, two algorithms, tiles of output sites."""

import itertools

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import ConvGeometry, SparseTensor, VoxelResBackBone8x, build_rulebook
from radius_fps_ros.sparse.network import LayerSpec

from ..reference import random_sites, relative_error

pytestmark = pytest.mark.gpu

SHAPE = (9, 24, 20)
SUBM, DOWN = ConvGeometry.make(3, subm=True), ConvGeometry.make(3, 2, 1)


def layers(rng, first_key="a", second_key="a"):
    """SubM, SubM with a residual, strided, SubM: every kind of layer that a network has."""

    def layer(name, geometry, key, depth, width, **more):
        weight = rng.standard_normal((27, depth, width)).astype(np.float32) / np.float32(np.sqrt(9 * depth))
        return LayerSpec(name, weight, rng.standard_normal(width).astype(np.float32), geometry, key, **more)

    return (
        layer("one", SUBM, first_key, 5, 16),
        layer("two", SUBM, second_key, 16, 16, residual=0, output="fine"),
        layer("three", DOWN, "down", 16, 24),
        layer("four", SUBM, "b", 24, 24, relu=False, output="coarse"),
    )


def frame(rng, count, order="sorted"):
    sites = random_sites(rng, SHAPE, 2, count)
    if order == "sorted":
        sites = sites[np.lexsort(sites.T[::-1])]
    return rng.standard_normal((len(sites), 5)).astype(np.float32), sites


def backbones(specs, dtype="float32", **options):
    from radius_fps_ros.sparse.cpu import CpuBackbone
    from radius_fps_ros.sparse.cuda import CudaBackbone

    return CpuBackbone(specs, dtype=dtype), CudaBackbone(specs, dtype=dtype, **options)


def on_device(features, sites):
    import cupy

    return SparseTensor(cupy.asarray(features), cupy.asarray(sites), SHAPE, 2)


def assert_same(found, expected, tolerance):
    for name, level in expected.items():
        assert np.array_equal(found[name].indices.get(), level.indices), name
        assert found[name].spatial_shape == level.spatial_shape
        assert relative_error(found[name].features.get(), level.features) < tolerance, name


@pytest.mark.parametrize("algo", ["native", "implicit_gemm"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-3)])
def test_frames_that_outgrow_the_capacity_are_captured_anew(algo, dtype, tolerance):
    rng = np.random.default_rng(1)
    cpu, cuda = backbones(layers(rng), dtype, algo=algo)
    captures = []
    for count, order in (
        (30, "sorted"),
        (25, "random"),
        (0, "sorted"),
        (1700, "random"),
        (1500, "sorted"),
        (3500, "sorted"),
    ):
        features, sites = frame(rng, count, order)
        maps = cuda(on_device(features, sites))
        assert_same(maps, cpu(SparseTensor(features, sites, SHAPE, 2)), tolerance)
        assert maps.stats["algorithm"] == algo
        assert all(
            has >= need for has, need in zip(maps.stats["capacities"], maps.stats["sites"].values(), strict=True)
        )
        captures.append(maps.stats["recaptures"])
    assert captures == [0, 0, 0, 1, 1, 2]


def test_a_level_that_outgrows_its_capacity_is_noticed_on_the_device():
    """The second frame's input fits, but spread out it reaches more output sites than a dense block had."""
    rng = np.random.default_rng(2)
    cpu, cuda = backbones(layers(rng))
    block = np.int32(list(itertools.product((0, 1), range(8), range(8), range(8))))
    before = cuda(on_device(rng.standard_normal((len(block), 5)).astype(np.float32), block)).stats
    features, sites = frame(rng, 2000)
    expected = cpu(SparseTensor(features, sites, SHAPE, 2))
    assert len(sites) <= before["capacities"][0]
    assert len(expected["coarse"]) > before["capacities"][1]
    maps = cuda(on_device(features, sites))
    assert maps.stats["recaptures"] == 1
    assert_same(maps, expected, 1e-5)


def test_another_space_is_captured_and_not_counted_as_overflow():
    rng = np.random.default_rng(3)
    cpu, cuda = backbones(layers(rng))
    features, sites = frame(rng, 200)
    cuda(on_device(features, sites))
    import cupy

    larger = SparseTensor(cupy.asarray(features), cupy.asarray(sites), (16, 64, 64), 3)
    maps = cuda(larger)
    assert maps.stats["recaptures"] == 0
    assert_same(maps, cpu(SparseTensor(features, sites, (16, 64, 64), 3)), 1e-5)


def test_results_are_owned_unless_views_are_asked_for():
    rng = np.random.default_rng(4)
    _, cuda = backbones(layers(rng))
    first, second = frame(rng, 300), frame(rng, 300)
    owned = cuda(on_device(*first))
    kept = {name: level.features.get() for name, level in owned.items()}
    views = cuda(on_device(*first), copy=False)
    assert all(np.array_equal(views[name].features.get(), kept[name]) for name in kept)
    cuda(on_device(*second))
    assert all(np.array_equal(owned[name].features.get(), kept[name]) for name in kept)
    assert not np.array_equal(views["fine"].features.get(), kept["fine"])


def test_a_site_that_occurs_twice_is_refused_and_the_next_frame_runs():
    rng = np.random.default_rng(5)
    cpu, cuda = backbones(layers(rng))
    features, sites = frame(rng, 50)
    for order in (np.arange(50), rng.permutation(50)):
        twice = sites.copy()
        twice[7] = twice[8]
        with pytest.raises(InputError, match="same site twice"):
            cuda(on_device(features, twice[order]))
        assert_same(cuda(on_device(features, sites)), cpu(SparseTensor(features, sites, SHAPE, 2)), 1e-5)


def test_one_key_for_two_geometries_is_refused():
    from radius_fps_ros.sparse.cuda import CudaBackbone

    specs = layers(np.random.default_rng(6), "down", "down")
    with pytest.raises(InputError, match="indice_key 'down' already belongs to"):
        CudaBackbone(specs, dtype="float32")


def test_an_algorithm_that_cannot_run_is_refused():
    from radius_fps_ros.sparse.cuda.convolve import choose_algorithm

    with pytest.raises(InputError, match="2197 kernel offsets of 16 channels are too many"):
        choose_algorithm("implicit_gemm", 13**3, 16, 16, "float32")
    assert choose_algorithm("auto", 13**3, 16, 16, "float32") == "native"


@pytest.mark.parametrize("shape", [(2, 2, 600_000), (3, 70, 9_000), (200, 3_000, 5_000), (2**19, 2**19, 2**20)])
def test_wide_and_huge_spaces(shape):
    """Lines cut into several tiles, more tiles than one group, and spaces beyond the tiles."""
    import cupy

    rng = np.random.default_rng(7)
    sites = np.stack([rng.integers(0, 2, 400), *(rng.integers(0, n, 400) for n in shape)], axis=1)
    corners = [[0, 0, 0, 0], [1, *(n - 1 for n in shape)]]
    sites = np.unique(np.concatenate([sites, sites + np.int32([0, 0, 0, 1]), corners]) % [2, *shape], axis=0).astype(
        np.int32
    )
    for geometry in (DOWN, SUBM):
        parts = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, geometry.subm)
        expected = build_rulebook(sites, shape, 2, *parts)
        found = build_rulebook(cupy.asarray(sites), shape, 2, *parts)
        assert np.array_equal(found.out_indices.get(), expected.out_indices)
        assert np.array_equal(found.neighbours.get(), expected.neighbours)


def test_a_network_refuses_a_space_that_is_too_large():
    import cupy

    tensor = SparseTensor(cupy.ones((1, 4), np.float32), cupy.zeros((1, 4), np.int32), (2**14, 2**14, 2**14))
    with pytest.raises(InputError, match=r"at most about 2\*\*38"):
        VoxelResBackBone8x(4, backend="cuda")(tensor)


def test_memory_follows_the_sites():
    """The same sites in a space four times as wide take the same memory but for the counts of the tiles."""
    rng = np.random.default_rng(8)
    features, sites = frame(rng, 800)
    sizes = []
    for shape in (SHAPE, (9, 96, 80)):
        _, cuda = backbones(layers(rng))
        import cupy

        maps = cuda(SparseTensor(cupy.asarray(features), cupy.asarray(sites), shape, 2))
        assert maps.stats["sites"]["fine"] == 800
        sizes.append(maps.stats["workspace_bytes"])
    assert abs(sizes[0] - sizes[1]) < 0.01 * sizes[0]
