"""VoxelResBackBone8x: against spconv, against its own layers one by one, determinism, and what it refuses."""

import hashlib

import numpy as np
import pytest
from safetensors.numpy import save_file

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import SparseConv3d, SparseTensor, SubMConv3d, VoxelResBackBone8x, voxelize
from radius_fps_ros.sparse.plan import canonical_name, network_steps, random_state
from radius_fps_ros.sparse.weights import fold_batch_norm

from .golden.fixed import GOLDEN, LEVELS, SHAPE, fixed_features, fixed_state, unpacked_sites
from .reference import random_sites, relative_error

SMALL = {"channels": (4, 6, 8, 10), "blocks": (1, 2, 0, 1), "out_channels": 12}
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}


def published_steps(in_channels=4):
    return network_steps(in_channels, (16, 32, 64, 128), (2, 2, 2, 2), 128)


def small_steps():
    return network_steps(4, SMALL["channels"], SMALL["blocks"], SMALL["out_channels"])


def state_for(steps):
    return fixed_state({name: array.shape for name, array in random_state(steps, 0).items()})


def small_input(backend, seed=0, count=400, shape=(41, 40, 48)):
    rng = np.random.default_rng(seed)
    indices = random_sites(rng, shape, 2, count)
    return backend.tensor(rng.standard_normal((count, 4)).astype(np.float32), indices, shape, 2)


@pytest.fixture(scope="module")
def golden_weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "golden.safetensors"
    save_file(state_for(published_steps()), path)
    return path


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_equals_spconv_on_a_frame_of_real_size(backend, golden_weights, dtype):
    golden = np.load(GOLDEN)
    sites = unpacked_sites(golden["sites"])
    net = VoxelResBackBone8x(weights=golden_weights, dtype=dtype, backend=backend.name)
    maps = net(backend.tensor(fixed_features(len(sites)), sites, SHAPE))
    assert tuple(maps) == LEVELS
    for name in LEVELS:
        indices, features = backend.to_host(maps[name].indices), backend.to_host(maps[name].features)
        assert features.dtype == dtype
        assert maps[name].spatial_shape == tuple(golden[f"{name}.shape"])
        assert len(indices) == golden[f"{name}.count"]
        assert hashlib.sha256(indices.astype("<i4").tobytes()).hexdigest() == str(golden[f"{name}.digest"])
        rows = golden[f"{name}.rows"]
        assert relative_error(features[rows], golden[f"{name}.features"]) < TOLERANCE[dtype]
        mean = np.abs(features.astype(np.float64)).mean(axis=0)
        assert relative_error(mean, golden[f"{name}.mean_abs"]) < TOLERANCE[dtype]


def test_equals_its_layers_run_one_by_one(backend, tmp_path):
    """Unfolded: convolution, batch norm in float64, residual, ReLU, each on its own."""
    steps = small_steps()
    state = state_for(steps)
    save_file(state, tmp_path / "w.safetensors")
    tensor = small_input(backend)
    maps = VoxelResBackBone8x(weights=tmp_path / "w.safetensors", backend=backend.name, **SMALL)(tensor)
    current, history = tensor, []
    for step in steps:
        weight, bias = state[f"{step.conv}.weight"], state.get(f"{step.conv}.bias")
        if step.geometry.subm:
            layer = SubMConv3d(step.in_channels, step.out_channels, 3, weight=weight, bias=bias)
        else:
            geometry = (step.geometry.kernel_size, step.geometry.stride, step.geometry.padding)
            layer = SparseConv3d(step.in_channels, step.out_channels, *geometry, weight=weight, bias=bias)
        out = layer(current)
        gamma, beta, mean, variance = (
            state[f"{step.norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        values = (backend.to_host(out.features) - mean) / np.sqrt(variance + 1e-3) * gamma + beta
        if step.residual is not None:
            values = values + history[step.residual]
        values = np.maximum(values, 0).astype(np.float32)
        history.append(values)
        current = out.replace_features(backend.to_device(values))
        if step.output:
            assert (backend.to_host(maps[step.output].indices) == backend.to_host(current.indices)).all()
            assert relative_error(backend.to_host(maps[step.output].features), values) < 2e-5
    assert set(maps) == set(LEVELS)


def test_two_runs_give_the_same_bits(backend):
    net = VoxelResBackBone8x(seed=3, backend=backend.name, **SMALL)
    first, second = net(small_input(backend)), net(small_input(backend))
    for name in LEVELS:
        assert (backend.to_host(first[name].indices) == backend.to_host(second[name].indices)).all()
        assert (backend.to_host(first[name].features) == backend.to_host(second[name].features)).all()


@pytest.mark.gpu
def test_both_backends_give_the_same_sites_in_the_same_order():
    from .conftest import CPU

    tensor = small_input(CPU, count=3000)
    on_cpu = VoxelResBackBone8x(backend="cpu", **SMALL)(tensor)
    on_cuda = VoxelResBackBone8x(backend="cuda", **SMALL)(tensor)
    for name in LEVELS:
        assert isinstance(on_cuda[name].features, np.ndarray)
        assert (on_cpu[name].indices == on_cuda[name].indices).all()
        assert relative_error(on_cuda[name].features, on_cpu[name].features) < 1e-4


def test_frames_of_changing_size_do_not_disturb_each_other(backend):
    """Small after large after small: buffers that are kept must neither overflow nor leave old rows behind."""
    net = VoxelResBackBone8x(backend=backend.name, **SMALL)
    counts = [300, 4000, 10, 9000, 300]
    results = [net(small_input(backend, seed=count, count=count)) for count in counts]
    fresh = [VoxelResBackBone8x(backend=backend.name, **SMALL)(small_input(backend, seed=c, count=c)) for c in counts]
    for kept, alone in zip(results, fresh, strict=True):
        for name in LEVELS:
            assert (backend.to_host(kept[name].indices) == backend.to_host(alone[name].indices)).all()
            assert (backend.to_host(kept[name].features) == backend.to_host(alone[name].features)).all()


@pytest.mark.parametrize("count", [0, 1])
def test_no_voxels_and_one_voxel(backend, count):
    maps = VoxelResBackBone8x(backend=backend.name, **SMALL)(small_input(backend, count=count))
    assert [maps[name].features.shape[1] for name in LEVELS] == [4, 6, 8, 10, 12]
    assert (len(maps["x_conv1"]), maps.stats["sites"]["x_conv1"]) == (count, count)
    if count == 0:
        assert not any(maps.stats["sites"].values())


def test_stats_say_what_the_weights_are(backend, golden_weights):
    tensor = small_input(backend)
    random = VoxelResBackBone8x(seed=5, backend=backend.name)
    assert "random" in random.weights_source
    assert "seed 5" in random(tensor).stats["weights"]
    trained = VoxelResBackBone8x(weights=golden_weights, backend=backend.name)
    assert trained(tensor).stats["weights"] == str(golden_weights)
    assert trained(tensor).stats["backend"] == backend.name


def test_random_weights_depend_on_the_seed_alone():
    first, again, other = (VoxelResBackBone8x(seed=seed, backend="cpu", **SMALL).layers for seed in (1, 1, 2))
    assert all((a.weight == b.weight).all() for a, b in zip(first, again, strict=True))
    assert not (first[0].weight == other[0].weight).all()


def test_features_that_are_not_finite_are_refused(backend):
    tensor = small_input(backend)
    features = backend.to_host(tensor.features).copy()
    features[3, 1] = np.nan
    net = VoxelResBackBone8x(backend=backend.name, **SMALL)
    with pytest.raises(InputError, match="hold 1 NaN or infinite values"):
        net(tensor.replace_features(backend.to_device(features)))
    assert len(net(tensor)["x_conv1"]) == len(tensor), "the next good frame must pass"


def test_other_bad_input_is_refused(backend):
    tensor = small_input(backend)
    with pytest.raises(InputError, match="the tensor has 4 channels and the network reads 5"):
        VoxelResBackBone8x(5, backend=backend.name, **SMALL)(tensor)
    flat = backend.tensor(np.ones((1, 4), np.float32), np.zeros((1, 4), np.int32), (5, 40, 48))
    with pytest.raises(InputError, match="does not fit in spatial_shape"):
        VoxelResBackBone8x(backend=backend.name, **SMALL)(flat)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float64"}, "dtype must be one of float32, float16"),
        ({"in_channels": 0}, "in_channels must be at least 1"),
        ({"channels": (1, 2, 3)}, "channels must be 4 integers"),
        ({"blocks": (1, 1, 1, -1)}, "blocks must be 4 integers"),
        ({"backend": "tpu"}, "backend must be one of"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        VoxelResBackBone8x(**arguments)


def weights_without(tmp_path, change):
    state = state_for(small_steps())
    change(state)
    save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("conv2.1.bn1.running_var"), r"missing: conv2\.1\.bn1\.running_var\)"),
        (lambda s: s.update(extra=np.zeros(1, np.float32)), r"unexpected: extra\)"),
        (lambda s: s.update({"conv4.0.0.weight": np.zeros((10, 3, 3, 3, 9), np.float32)}),
         r"conv4\.0\.0\.weight has the shape \(10, 3, 3, 3, 9\); expected \(10, 3, 3, 3, 8\)"),
        (lambda s: s.update({"conv1.0.bn1.bias": np.zeros(5, np.float32)}), r"bn1\.bias has the shape \(5,\)"),
        (lambda s: s.update({"conv_out.1.weight": np.full(12, np.nan, np.float32)}), "conv_out.0 with conv_out.1"),
        (lambda s: s.pop("conv_input.0.weight"), r"must hold one backbone with an array named \[prefix\]conv_input"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        VoxelResBackBone8x(weights=weights_without(tmp_path, change), backend="cpu", **SMALL)


@pytest.mark.parametrize("prefix", ["", "backbone_3d.", "module.backbone."])
def test_prefixes_other_parts_and_the_older_layout_are_understood(tmp_path, prefix):
    state = state_for(small_steps())
    plain = VoxelResBackBone8x(weights=weights_without(tmp_path, lambda s: None), backend="cpu", **SMALL)
    renamed = {prefix + name: array for name, array in state.items()}
    renamed[prefix + "conv1.0.bn1.num_batches_tracked"] = np.array(7)
    if prefix:
        renamed["dense_head.weight"] = np.zeros(3, np.float32)
    for name, array in renamed.items():
        if array.ndim == 5:  # spconv 1.x
            renamed[name] = np.ascontiguousarray(array.transpose(1, 2, 3, 4, 0))
    save_file(renamed, tmp_path / "renamed.safetensors")
    other = VoxelResBackBone8x(weights=tmp_path / "renamed.safetensors", backend="cpu", **SMALL)
    for a, b in zip(plain.layers, other.layers, strict=True):
        assert (a.weight == b.weight).all()
        assert (a.bias == b.bias).all()


def test_det3d_names_are_translated():
    pairs = {
        "conv_input.0.weight": "conv_input.0.weight",
        "conv1.1.conv2.bias": "conv1.1.conv2.bias",
        "conv2.0.weight": "conv2.0.0.weight",
        "conv3.1.running_var": "conv3.0.1.running_var",
        "conv4.3.bn1.weight": "conv4.1.bn1.weight",
        "conv4.4.conv2.weight": "conv4.2.conv2.weight",
        "extra_conv.0.weight": "conv_out.0.weight",
        "extra_conv.1.bias": "conv_out.1.bias",
    }
    assert {name: canonical_name(name) for name in pairs} == pairs


def test_folding_equals_batch_norm():
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((3, 4, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    gamma, beta, mean = rng.standard_normal((3, 5)).astype(np.float32)
    variance = rng.uniform(0, 2, 5).astype(np.float32)
    folded, shift = fold_batch_norm(weight, bias, gamma, beta, mean, variance, 1e-3)
    x = rng.standard_normal(4)
    for k in range(3):
        expected = (x @ weight[k] + bias - mean) / np.sqrt(variance + 1e-3) * gamma + beta
        assert np.allclose(x @ folded[k] + shift, expected, rtol=1e-5, atol=1e-6)


def test_a_real_frame(backend, data_dir):
    points = np.fromfile(data_dir / "nuscenes_top_34688x5_f32.bin", np.float32).reshape(-1, 5)
    tensor = voxelize(
        backend.to_device(np.ascontiguousarray(points[:, :3])),
        backend.to_device(np.ascontiguousarray(points[:, :4])),
        point_cloud_range=(-54, -54, -5, 54, 54, 3),
        voxel_size=(0.075, 0.075, 0.2),
        backend=backend.name,
    )
    maps = VoxelResBackBone8x(backend=backend.name)(tensor)
    assert list(maps.stats["sites"].values()) == [17509, 29374, 21571, 11174, 9204]
    assert isinstance(maps["encoded"], SparseTensor)
    assert np.isfinite(backend.to_host(maps["encoded"].features)).all()
