"""The CUDA pipeline gives what the host's gives, byte for byte, whatever the message; and keeps its memory."""

import contextlib
import dataclasses
import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "clouds"))
from cloud_messages import CODES, PointCloud2, PointField, xyz_fields, xyzi_message

from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.device import BackendChoice
from radius_fps_ros.errors import BackendError, InputError
from radius_fps_ros.faults import free_device_memory, is_out_of_memory
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.frame_features import FeatureExtractor
from radius_fps_ros.pipeline import FramePipeline
from radius_fps_ros.sparse import load_config

cupy = pytest.importorskip("cupy", reason="the CUDA backend needs CuPy")

from radius_fps_ros.cuda_frame import CudaFramePipeline

pytestmark = pytest.mark.gpu

CHOICE = BackendChoice("cuda", "requested")
LIGHT = load_config(Path(__file__).parents[2] / "config" / "backbone_light.yaml")


@pytest.fixture(scope="module")
def sampling():
    return CudaFramePipeline(CHOICE), FramePipeline(backend="cpu")


@pytest.fixture(scope="module")
def featured():
    """The two ways to features on CUDA: the frame's own, and stage after stage through the host."""
    extractor = FeatureExtractor(LIGHT, seed=3, backend="cuda", levels=("x_conv2", "x_conv4"))
    return CudaFramePipeline(CHOICE, extractor=extractor), FramePipeline(backend="cpu", extractor=extractor)


def random_message(seed):
    """A cloud whose layout and contents are drawn: types, order of bytes, padding, rows, numbers that are none."""
    rng = np.random.default_rng(seed)
    datatype = int(rng.choice([7, 7, 7, 8, 1, 2, 3, 4, 5, 6]))
    height, width = (1, int(rng.integers(1, 3000))) if rng.random() < 0.5 else tuple(rng.integers(1, 60, 2).tolist())
    order = ">" if rng.random() < 0.3 else "<"
    names = ["x", "y", "z", "intensity", "ring"]
    types = [datatype] * 3 + [int(t) for t in rng.integers(1, 9, 2)]
    placed, offset = {}, int(rng.integers(0, 5))
    for k in rng.permutation(5):
        placed[names[k]] = (offset, types[k])
        offset += np.dtype(CODES[types[k]]).itemsize + int(rng.integers(0, 4) * (rng.random() < 0.5))
    step = offset + int(rng.integers(0, 4))
    row_step = width * step + int(rng.integers(0, 9) * (height > 1))
    dtype = np.dtype(
        {
            "names": list(placed),
            "formats": [f"{order}{CODES[t]}" for _, t in placed.values()],
            "offsets": [o for o, _ in placed.values()],
            "itemsize": step,
        }
    )
    data = rng.integers(0, 256, height * row_step, dtype=np.uint8)
    for row in range(height):
        records = data[row * row_step :][: width * step].view(dtype)
        for name in names:
            kind = dtype[name]
            if kind.kind == "f":
                values = rng.normal(0, 20, width)
                special = rng.random(width)
                values[special < 0.1] = np.nan
                values[special > 0.97] = np.inf
                values[(special > 0.9) & (special < 0.93)] = 1e-42  # subnormal as float32
                if name in "xyz" and kind.itemsize == 8:
                    values[(special > 0.93) & (special < 0.95)] = 1e300
                if name not in "xyz":
                    values = np.nan_to_num(values, posinf=1.0)
                records[name] = values
            else:
                info = np.iinfo(kind)
                records[name] = rng.integers(info.min, info.max, width, endpoint=True)
    fields = [PointField(name, o, t, int(rng.integers(0, 2))) for name, (o, t) in placed.items()]
    return PointCloud2(height, width, fields, step, row_step, data.tobytes(), order == ">")


SETTINGS = [
    PipelineSettings(1),
    PipelineSettings(100),
    PipelineSettings(5000),
    PipelineSettings(64, range_min=5.0, range_max=30.0),
    PipelineSettings(64, roi_min=(-10.0, -20.1, -5.0), roi_max=(15.3, 9.0, 40.0)),
    PipelineSettings(300, range_min=1e-42, roi_min=(0.0, 1e-42, -1e30)),
]


def outcome(pipeline, message, settings):
    try:
        return pipeline.process(message, settings, features=False)
    except InputError as error:
        return str(error)


def assert_equal(ours, theirs):
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    for member in dataclasses.fields(theirs.sampled):
        assert getattr(ours.sampled, member.name) == getattr(theirs.sampled, member.name), member.name
    assert (ours.points_in, ours.points_used) == (theirs.points_in, theirs.points_used)
    assert ours.coverage_radius == theirs.coverage_radius
    assert ours.stats.backend == "cuda"
    stages = ("load", "upload", "decode", "sample", "pack", "download", "host")
    assert min(ours.milliseconds[name] for name in stages) >= 0
    assert max(ours.milliseconds[name] for name in stages) < 60_000  # no stamp of another time


@pytest.mark.parametrize("seed", range(60))
def test_samples_are_those_of_the_host(sampling, seed):
    ours, theirs = sampling
    message = random_message(seed)
    for settings in SETTINGS:
        assert_equal(outcome(ours, message, settings), outcome(theirs, message, settings))


POINTS = np.random.default_rng(0).normal(0, 9, (40, 4))
NAN = np.full((30, 4), np.nan)
BROKEN = {
    "no points": xyzi_message(POINTS[:0]),
    "no points and no fields": PointCloud2(0, 0, [], 0, 0, b""),
    "no points, no z": PointCloud2(0, 0, xyz_fields()[:2], 8, 0, b""),
    "none finite": xyzi_message(NAN),
    "outside": xyzi_message(POINTS + 1000.0),
    "too short": xyzi_message(POINTS, data=b"1234"),
    "negative": xyzi_message(POINTS, height=-1),
    "no z": xyzi_message(POINTS, fields=xyz_fields()[:2]),
    "two types": xyzi_message(POINTS, fields=[*xyz_fields()[:2], PointField("z", 8, 6)]),
    "vector": xyzi_message(POINTS, fields=[PointField(n, 0, 7, 2) for n in "x"]),
    "row step": xyzi_message(POINTS, height=2, width=20, row_step=8),
    "not bytes": xyzi_message(POINTS, data=None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refusals_are_those_of_the_host(sampling, name):
    ours, theirs = sampling
    settings = PipelineSettings(10, range_max=500.0)
    sentence = outcome(theirs, BROKEN[name], settings)
    assert isinstance(sentence, str)
    assert outcome(ours, BROKEN[name], settings) == sentence
    assert_equal(*(outcome(p, xyzi_message(POINTS), settings) for p in sampling))


def street(points, seed=0, step=0.0):
    records = street_scan(points, seed=seed)
    records["x"] += np.float32(step)
    return encode_cloud(Cloud.of_records(records))


def assert_same_features(ours, theirs):
    ours, theirs = ours.features(), theirs.features()
    np.testing.assert_array_equal(ours.rows, theirs.rows)
    assert np.abs(ours.rows[:, 3:]).max() > 0
    assert (ours.voxels, ours.dropped_voxels) == (theirs.voxels, theirs.dropped_voxels)
    np.testing.assert_array_equal(ours.voxel_records(), theirs.voxel_records())
    assert {"voxelize", "backbone", "gather"} == set(ours.milliseconds)
    assert all(0 < spent < 60_000 for spent in ours.milliseconds.values())
    return ours


def test_features_are_those_of_the_stages_apart(featured):
    """Sizes and settings in turn, each three times: queued, captured, replayed, and captured anew after growth."""
    ours, theirs = featured
    settings = [PipelineSettings(500), PipelineSettings(700, range_min=4.0, range_max=35.0)]
    for k in range(3):
        for points in (3000, 60_000, 100, 3100):
            for each in settings:
                message = street(points, seed=k, step=k)
                a, b = ours.process(message, each), theirs.process(message, each)
                assert_equal(a, b)
                assert a.features_ms > 0
                assert_same_features(a, b)


def test_a_frame_that_outgrows_the_network_is_done_again():
    extractor = FeatureExtractor(LIGHT, seed=3, backend="cuda")
    ours, theirs = CudaFramePipeline(CHOICE, extractor=extractor), FramePipeline(backend="cpu", extractor=extractor)
    near, wide = street(20_000), street(20_000)
    settings = PipelineSettings(300)
    for _ in range(3):  # measured on few voxels
        ours.process(near, PipelineSettings(300, range_max=5.0)).features()
    for message in (wide, near, wide):
        made = assert_same_features(ours.process(message, settings), theirs.process(message, settings))
    assert made.recaptures == 1


def test_what_only_features_need_does_not_cost_the_samples(featured):
    ours, theirs = featured
    settings = PipelineSettings(20)
    lacking = xyzi_message(POINTS, fields=xyz_fields())
    not_finite = POINTS.copy()
    not_finite[7] = (1.0, 2.0, 0.5, np.nan)
    for message, words in ((lacking, "no field intensity"), (xyzi_message(not_finite), "NaN")):
        a, b = ours.process(message, settings), theirs.process(message, settings)
        assert_equal(a, b)
        with pytest.raises(InputError, match=words) as first:
            a.features()
        with pytest.raises(InputError) as second:
            b.features()
        assert str(first.value) == str(second.value)
    assert ours.process(lacking, settings, features=False).features is None
    message = xyzi_message(POINTS)
    assert_same_features(ours.process(message, settings), theirs.process(message, settings))


def test_uploads_may_begin_early_and_be_dropped(sampling):
    ours, theirs = sampling
    messages = [random_message(1000 + k) for k in range(12)]
    settings = PipelineSettings(50)
    waiting = [ours.load(message) for message in messages[:3]]
    for k, message in enumerate(messages):
        upload, *waiting = [*waiting, ours.load(messages[(k + 3) % 12])]
        if k % 3 == 1:
            continue  # dropped
        assert_equal(outcome(ours, upload, settings), outcome(theirs, message, settings))


@pytest.mark.parametrize("dropped", [False, True])
def test_a_refused_message_is_let_go_at_once(sampling, dropped):
    """Not only when the garbage collector comes by: malformed clouds are as large as good ones."""
    ours, _ = sampling
    message = dataclasses.replace(street(1000), data=b"")
    kept = weakref.ref(message)
    gc.disable()
    try:
        upload = ours.load(message)
        if not dropped:
            with contextlib.suppress(InputError):
                ours.process(upload, PipelineSettings(10))
        del upload, message
        assert kept() is None
    finally:
        gc.enable()


def test_frames_of_a_known_size_take_no_memory(featured):
    ours, _ = featured
    pool = cupy.get_default_memory_pool()
    messages = [street(50_000 + 100 * k, seed=k) for k in range(4)]
    settings = PipelineSettings(1024)
    for message in messages * 2:
        ours.process(message, settings).features()
    gc.collect()
    before = pool.used_bytes(), pool.total_bytes()
    for message in messages * 3:
        ours.process(message, settings).features()
    assert (pool.used_bytes(), pool.total_bytes()) == before


def refuse(size):
    raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)


@pytest.mark.parametrize("features", [False, True])
def test_memory_that_runs_out_costs_one_frame(features):
    extractor = FeatureExtractor(LIGHT, seed=3, backend="cuda") if features else None
    ours, theirs = CudaFramePipeline(CHOICE, extractor=extractor), FramePipeline(backend="cpu", extractor=extractor)
    ours.warm_up()
    settings = PipelineSettings(100)
    small, large = street(2000), street(90_000)
    assert_equal(ours.process(small, settings), theirs.process(small, settings))
    cupy.cuda.set_allocator(refuse)
    try:
        with pytest.raises(BackendError, match="the CUDA device failed while working on") as caught:
            ours.process(large, settings)
        assert is_out_of_memory(caught.value)
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    del caught
    free_device_memory(CHOICE)
    for message in (small, large, small):
        a, b = ours.process(message, settings), theirs.process(message, settings)
        assert_equal(a, b)
        if features:
            assert_same_features(a, b)
