"""Convolutions against dense convolution in float64."""

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import SparseBasicBlock, SparseConv3d, SparseInverseConv3d, SparseTensor, SubMConv3d

from .cases import BATCH, GEOMETRIES, SHAPE, SITES
from .reference import dense_convolution, reference_rulebook, relative_error

TOLERANCE = {"float32": 1e-5, "float16": 5e-3}


def drawn(seed, *shape, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layer_for(geometry, depth, width, **keywords):
    weight = drawn(5, geometry.volume, depth, width) / np.float32(np.sqrt(depth))
    if geometry.subm:
        layer = SubMConv3d(depth, width, geometry.kernel_size, dilation=geometry.dilation, weight=weight, **keywords)
    else:
        shape = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
        layer = SparseConv3d(depth, width, *shape, weight=weight, **keywords)
    assert layer.geometry == geometry
    return layer, weight


def assert_equals_dense(backend, out, features, indices, weight, geometry, tolerance, finish=lambda v: v):
    dense = dense_convolution(features.astype(np.float64), indices, SHAPE, BATCH, weight, geometry)
    sites = backend.to_host(out.indices)
    if geometry.subm:  # an even kernel makes the dense output one larger
        assert (sites == indices).all()
    else:
        assert out.spatial_shape == dense.shape[1:4]
        elsewhere = dense.copy()
        elsewhere[tuple(sites.T)] = 0
        assert not elsewhere.any(), "dense convolution reaches a site that is missing"
    found = backend.to_host(out.features)
    assert found.dtype == features.dtype
    assert relative_error(found, finish(dense[tuple(sites.T)])) < tolerance


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_equals_dense_convolution(backend, name, sites):
    geometry, indices = GEOMETRIES[name], SITES[sites]()
    features = drawn(1, len(indices), 16)
    layer, weight = layer_for(geometry, 16, 32)
    out = layer(backend.tensor(features, indices, SHAPE, BATCH))
    assert_equals_dense(backend, out, features, indices, weight, geometry, TOLERANCE["float32"])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("algo", ["auto", "native", "implicit_gemm"])
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (4, 16), (5, 7), (32, 32), (3, 130), (64, 128)])
def test_every_width_and_algorithm(backend, depth, width, algo, dtype):
    indices = SITES["random"]()
    features = drawn(2, len(indices), depth, dtype=dtype)
    for name in ("subm_k3", "k3_s2_p1"):
        layer, weight = layer_for(GEOMETRIES[name], depth, width, algo=algo)
        out = layer(backend.tensor(features, indices, SHAPE, BATCH))
        assert_equals_dense(backend, out, features, indices, weight, GEOMETRIES[name], TOLERANCE[dtype])


@pytest.mark.parametrize("algo", ["native", "implicit_gemm"])
@pytest.mark.parametrize("name", ["subm_k3", "k3_s2_p1"])
def test_bias_residual_and_relu_are_fused_in_that_order(backend, name, algo):
    geometry, indices = GEOMETRIES[name], SITES["random"]()
    features, bias = drawn(3, len(indices), 16), drawn(4, 24)
    layer, weight = layer_for(geometry, 16, 24, bias=bias, relu=True, algo=algo)
    tensor = backend.tensor(features, indices, SHAPE, BATCH)
    count = len(tensor.rulebook(geometry, None).out_indices)
    residual = drawn(6, count, 24)
    out = layer(tensor, backend.to_device(residual))
    assert_equals_dense(
        backend, out, features, indices, weight, geometry, 1e-5, lambda dense: np.maximum(dense + bias + residual, 0)
    )


def test_residual_block_is_its_two_convolutions(backend):
    indices = SITES["random"]()
    tensor = backend.tensor(drawn(1, len(indices), 8), indices, SHAPE, BATCH)
    weights, biases = (drawn(2, 27, 8, 8), drawn(3, 27, 8, 8)), (drawn(4, 8), drawn(5, 8))
    out = SparseBasicBlock(8, indice_key="block", weights=weights, biases=biases)(tensor)
    assert list(tensor.rulebooks) == ["block"]
    first = SubMConv3d(8, 8, 3, weight=weights[0], bias=biases[0])(tensor)
    first = first.replace_features(first.features.clip(0, None))
    second = SubMConv3d(8, 8, 3, weight=weights[1], bias=biases[1])(first)
    expected = np.maximum(backend.to_host(second.features) + backend.to_host(tensor.features), 0)
    assert relative_error(backend.to_host(out.features), expected.astype(np.float64)) < 1e-5


@pytest.mark.parametrize("name", ["k3_s2_p1", "k3_s3", "k232_s123_d112", "k311_s211"])
def test_inverse_convolution_restores_the_sites(backend, name):
    geometry, indices = GEOMETRIES[name], SITES["random"]()
    forward, _ = layer_for(geometry, 8, 12, indice_key="down")
    tensor = backend.tensor(drawn(1, len(indices), 8), indices, SHAPE, BATCH)
    low = forward(tensor)
    weight = drawn(7, geometry.volume, 12, 20)
    back = SparseInverseConv3d(12, 20, geometry.kernel_size, indice_key="down", weight=weight)(low)
    _, pairs = reference_rulebook(indices, SHAPE, geometry)
    values = backend.to_host(low.features).astype(np.float64)
    expected = np.zeros((len(indices), 20))
    for k, rows in enumerate(pairs):
        for source, target in rows:
            expected[source] += values[target] @ weight[k]
    assert back.indices is tensor.indices
    assert (back.spatial_shape, back.scale, back.shift) == (tensor.spatial_shape, tensor.scale, tensor.shift)
    assert relative_error(backend.to_host(back.features), expected) < 1e-5


def test_both_spconv_weight_layouts_mean_the_same():
    indices = SITES["random"]()
    tensor = SparseTensor(drawn(1, len(indices), 4), indices, SHAPE, BATCH)
    first = drawn(2, 3, 3, 3, 4, 6)  # spconv 1.x: kz, ky, kx, C_in, C_out
    second = np.ascontiguousarray(first.transpose(4, 0, 1, 2, 3))  # spconv 2.x: C_out, kz, ky, kx, C_in
    flat = first.reshape(27, 4, 6)
    results = [SubMConv3d(4, 6, 3, weight=weight)(tensor).features for weight in (first, second, flat)]
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


def test_one_indice_key_builds_one_rulebook(backend, monkeypatch):
    builds = []
    build = backend.module.build_rulebook
    monkeypatch.setattr(backend.module, "build_rulebook", lambda *a, **k: builds.append(1) or build(*a, **k))
    indices = SITES["random"]()
    tensor = backend.tensor(drawn(1, len(indices), 4), indices, SHAPE, BATCH)
    for _ in range(3):
        tensor = SubMConv3d(4, 4, 3, indice_key="a")(tensor)
    assert len(builds) == 1
    SubMConv3d(4, 4, 3, indice_key="b")(tensor)
    SubMConv3d(4, 4, 3)(tensor)
    assert len(builds) == 3


def test_an_indice_key_keeps_its_geometry_and_sites(backend):
    indices = SITES["random"]()
    tensor = backend.tensor(drawn(1, len(indices), 4), indices, SHAPE, BATCH)
    SubMConv3d(4, 4, 3, indice_key="a")(tensor)
    with pytest.raises(InputError, match="'a' already belongs to ConvGeometry"):
        SubMConv3d(4, 4, 5, indice_key="a")(tensor)
    low = SparseConv3d(4, 4, 3, 2, 1, indice_key="down")(tensor)
    with pytest.raises(InputError, match="'a' already belongs to other active sites"):
        SubMConv3d(4, 4, 3, indice_key="a")(low)


def test_an_inverse_needs_its_forward_layer(backend):
    indices = SITES["random"]()
    tensor = backend.tensor(drawn(1, len(indices), 4), indices, SHAPE, BATCH)
    low = SparseConv3d(4, 4, 3, 2, 1, indice_key="down")(tensor)
    with pytest.raises(InputError, match="no convolution used indice_key 'up' yet"):
        SparseInverseConv3d(4, 4, 3, indice_key="up")(low)
    with pytest.raises(InputError, match="belongs to kernel_size"):
        SparseInverseConv3d(4, 4, 2, indice_key="down")(low)
    with pytest.raises(InputError, match="are not those that the layer"):
        SparseInverseConv3d(4, 4, 3, indice_key="down")(tensor)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SubMConv3d(0, 4, 3), "channels must be at least 1"),
        (lambda: SubMConv3d(4, 4, 3, algo="winograd"), "algo must be one of"),
        (lambda: SubMConv3d(4, 4, 3, bias=np.zeros(5)), "bias must have the shape"),
        (lambda: SubMConv3d(4, 4, 3, weight=np.zeros((3, 3, 3, 4, 5))), r"has the shape \(3, 3, 3, 4, 5\); expected"),
        (lambda: SparseTensor(drawn(1, 3, 4), SITES["one"](), SHAPE, BATCH), "3 rows and indices 1"),
        (lambda: SparseTensor(np.zeros((1, 4)), SITES["one"](), SHAPE, BATCH), "float32 or float16"),
        (lambda: SparseTensor(drawn(1, 1, 4), SITES["one"](), (6, 7), BATCH), "spatial_shape must be"),
        (lambda: SparseTensor(drawn(1, 1, 4), SITES["one"](), SHAPE, 0), "batch_size must be at least 1"),
    ],
)
def test_malformed_layers_and_tensors_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_features_that_do_not_fit_the_layer_are_refused(backend):
    tensor = backend.tensor(drawn(1, 1, 4), SITES["one"](), SHAPE, BATCH)
    with pytest.raises(InputError, match="the tensor has 4 channels and the layer reads 5"):
        SubMConv3d(5, 4, 3)(tensor)
    with pytest.raises(InputError, match="residual has 3 channels"):
        SubMConv3d(4, 4, 3)(tensor, backend.to_device(drawn(1, 1, 3)))
