"""The features part of a frame on CUDA: the same bits as its parts one by one, and it never overruns its buffers."""

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import (
    BackboneConfig,
    VoxelResBackBone8x,
    gather_features,
    site_centres,
    voxelize_for,
)
from radius_fps_ros.sparse.cuda.feature_pass import FeaturePass

from ..reference import relative_error

gpu = pytest.mark.gpu

RANGE, SIZE = (-8.0, -6.0, -3.0, 8.0, 6.0, 3.2), (0.2, 0.25, 0.2)
LEVELS = ("x_conv4", "x_conv1", "encoded")
FIELDS = ("x", "y", "z", "intensity")


def config(**changes):
    small = {"channels": (16, 16, 24, 32), "blocks": (1, 0, 1, 1), "out_channels": 20}
    size = {"point_cloud_range": RANGE, "voxel_size": SIZE, "max_voxels": 60_000, "max_points_per_voxel": 5}
    return BackboneConfig(**{**size, **small, "fields": FIELDS, **changes})


def network(settings, dtype="float32", backend="cuda"):
    return VoxelResBackBone8x.from_config(settings, dtype=dtype, backend=backend)


def frame(rng, used, capacity, scale=(3.0, 2.5, 0.8)):
    """Points and columns of ``capacity`` rows, of which ``used``, anywhere, may be used."""
    rows = np.sort(rng.permutation(capacity)[:used])
    points, columns = np.full((capacity, 3), np.nan, np.float32), np.full((capacity, 4), np.nan, np.float32)
    points[rows] = rng.standard_normal((used, 3)) * scale
    columns[rows, :3], columns[rows, 3] = points[rows], rng.random(used)
    return points, columns, rows


def with_garbage(rng, rows):
    """Samples with entries behind them that are no rows."""
    garbage = np.concatenate([[-1, np.iinfo(np.int64).min, np.iinfo(np.int64).max], rng.integers(2**31, 2**62, 5)])
    return np.concatenate([rows, garbage]).astype(np.int64)


def parts(net, settings, points, columns, rows, to_device=lambda array: array):
    """The public functions one after the other: records, input tensor and last tensor."""
    tensor = voxelize_for(settings, to_device(points), to_device(columns), backend=net.backend)
    maps = net(tensor)
    at = to_device(points[rows])
    features = gather_features(maps, at, levels=LEVELS)
    arrays = [array.get() if hasattr(array, "get") else array for array in (at, features)]
    return np.concatenate(arrays, axis=1), tensor, maps["encoded"]


class Run:
    """A FeaturePass with its network, run as the pipeline runs it."""

    def __init__(self, settings, dtype="float32"):
        self.settings = settings
        self.network = network(settings, dtype)
        self.work = FeaturePass(self.network, settings, LEVELS)

    def __call__(self, points, columns, samples):
        """Records; prepares where that is needed."""
        import cupy

        arrays = [cupy.asarray(array) for array in (points, columns, samples)]
        records = cupy.full((len(samples), 3 + self.work.channels), np.nan, np.float32)
        for _ in range(2):
            self.work.enqueue(*arrays, records)
            outcome = self.work.read(self.work.status.get())
            if not outcome.overflowed:
                return records.get(), outcome
            self.work.prepare(*arrays[:2])
        raise AssertionError("a prepared frame overflowed again")

    def prepare(self, points, columns):
        import cupy

        self.work.prepare(cupy.asarray(points), cupy.asarray(columns))

    def check(self, points, columns, rows):
        """The same bits as the parts on CUDA give, and zeros for what is no row."""
        import cupy

        samples = with_garbage(np.random.default_rng(len(rows)), rows)
        records, outcome = self(points, columns, samples)
        expected, tensor, last = parts(self.network, self.settings, points, columns, rows, cupy.asarray)
        assert np.array_equal(records[: len(rows)].view(np.int32), expected.view(np.int32))
        assert (records[len(rows) :] == 0).all()
        assert (outcome.voxels, outcome.dropped_voxels) == (len(tensor), tensor.stats["dropped_voxels"])
        found = self.work.last_stage()
        assert np.array_equal(found.indices.get(), last.indices.get())
        assert np.array_equal(found.features.get(), last.features.get())
        assert np.array_equal(site_centres(found).get(), site_centres(last).get())
        return records, outcome


@gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-2)])
def test_records_are_those_of_the_parts_and_of_the_cpu(dtype, tolerance):
    rng = np.random.default_rng(1)
    settings = config()
    run = Run(settings, dtype)
    points, columns, rows = frame(rng, 3000, 5000)
    run.prepare(points, columns)
    records, outcome = run.check(points, columns, rows[::7])
    assert run.work.channels == 32 + 16 + 20
    assert (outcome.overflowed, outcome.recaptures) == (False, 0)
    expected, _, _ = parts(network(settings, backend="cpu"), settings, points, columns, rows[::7])
    assert np.array_equal(records[: len(expected), :3], expected[:, :3])
    assert relative_error(records[: len(expected)], expected) < tolerance


def _in_one_voxel(rng):
    points, columns, rows = frame(rng, 2000, 2500)
    points[rows] = columns[rows, :3] = 0.05
    return points, columns, rows


def _on_borders(rng):
    """Every float32 next to an edge of the range."""
    edges = [
        [value for end in (low, high) for value in (np.nextafter(np.float32(end), np.float32(d)) for d in (-9, end, 9))]
        for low, high in zip(RANGE[:3], RANGE[3:], strict=True)
    ]
    points = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1).reshape(-1, 3).astype(np.float32)
    columns = np.concatenate([points, np.ones((len(points), 1), np.float32)], axis=1)
    return points, columns, np.arange(len(points))


def _outside(rng):
    points, columns, rows = frame(rng, 300, 400)
    return points + np.float32(100), columns, rows


CLOUDS = {
    "one voxel": _in_one_voxel,
    "borders": _on_borders,
    "outside": _outside,
    "no usable row": lambda rng: frame(rng, 0, 700),
    "one usable row": lambda rng: frame(rng, 1, 700),
    "no row": lambda rng: frame(rng, 0, 0),
    "every row usable": lambda rng: frame(rng, 4000, 4000),
}


@gpu
@pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS.keys())
@pytest.mark.parametrize("caps", [{}, {"max_voxels": 40, "max_points_per_voxel": 1}], ids=["", "caps"])
def test_odd_clouds(cloud, caps):
    """Each is the first frame, and then follows another."""
    rng = np.random.default_rng(2)
    points, columns, rows = cloud(rng)
    run = Run(config(**caps))
    run.prepare(points, columns)
    run.check(points, columns, rows)
    other = frame(rng, 2000, 5000)
    run.prepare(*other[:2])
    run.check(*other)
    run.check(points, columns, rows)


@gpu
def test_a_frame_that_does_not_fit_is_told_and_runs_after_prepare():
    """First more input sites than there is room for, then no more input sites but more of the next level."""
    rng = np.random.default_rng(3)
    run = Run(config())
    small = frame(rng, 200, 20_000)
    run.prepare(*small[:2])
    generation = run.work.generation
    assert run.check(*small)[1].recaptures == 0
    large = frame(rng, 12_000, 20_000)
    import cupy

    arrays = [cupy.asarray(array) for array in large]
    records = cupy.empty((len(arrays[2]), 3 + run.work.channels), np.float32)
    run.work.enqueue(*arrays, records)
    outcome = run.work.read(run.work.status.get())
    assert outcome.overflowed
    assert outcome.voxels == len(voxelize_for(run.settings, *large[:2], backend="cpu"))
    run.work.prepare(*arrays[:2])
    assert run.work.generation == generation + 1
    assert run.check(*large)[1].recaptures == 1
    assert run.check(*small)[1].recaptures == 1

    run = Run(config())
    rows = np.arange(1000)
    dense = np.float32(SIZE) * (np.stack([rows % 10, rows // 10 % 10, rows // 100], axis=1) + 0.5)
    columns = np.concatenate([dense, np.ones((1000, 1), np.float32)], axis=1).astype(np.float32)
    run.prepare(dense.astype(np.float32), columns)
    spread = frame(rng, 1000, 1000, (6, 4, 2))
    assert run.check(*spread)[1].recaptures == 1


@gpu
def test_small_and_large_frames_in_turn():
    rng = np.random.default_rng(4)
    run = Run(config(max_voxels=20_000))
    frames = [frame(rng, n, capacity) for n, capacity in ((90, 100), (900_000, 1_000_000), (100, 1_000_000))]
    for points, columns, rows in (*frames, *frames):
        run.prepare(points, columns)
        run.check(points, columns, rows[:500])


@gpu
def test_a_captured_pass_is_replayed_with_other_contents():
    import cupy

    rng = np.random.default_rng(5)
    run = Run(config(), "float16")
    first = frame(rng, 4000, 6000)
    run.prepare(*first[:2])
    points, columns = (cupy.asarray(array) for array in first[:2])
    samples, records = cupy.zeros(256, np.int64), cupy.empty((256, 3 + run.work.channels), np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    used = cupy.get_default_memory_pool().used_bytes()
    with stream:
        stream.begin_capture()
        run.work.enqueue(points, columns, samples, records)
        graph = stream.end_capture()
    assert cupy.get_default_memory_pool().used_bytes() == used
    for count in (4000, 100, 0, 3000):
        other = frame(rng, count, 6000)
        rows = np.resize(other[2], min(count, 200))
        wanted = np.full(256, -1, np.int64)
        wanted[: len(rows)] = rows
        for target, source in ((points, other[0]), (columns, other[1]), (samples, wanted)):
            target.set(source)
        with stream:
            graph.launch(stream)
            stream.synchronize()
            outcome = run.work.read(run.work.status.get())
        expected, tensor, _ = parts(run.network, run.settings, other[0], other[1], rows, cupy.asarray)
        assert (outcome.overflowed, outcome.voxels) == (False, len(tensor))
        assert np.array_equal(records.get()[: len(rows)].view(np.int32), expected.view(np.int32))
        assert (records.get()[len(rows) :] == 0).all()


@gpu
def test_features_that_are_not_finite_are_refused_and_the_next_frame_runs():
    rng = np.random.default_rng(6)
    run = Run(config())
    points, columns, rows = frame(rng, 1000, 1500)
    run.prepare(points, columns)
    inside = voxelize_for(run.settings, points, columns, backend="cpu").stats
    inside = inside["points"] - inside["invalid_points"] - inside["out_of_range_points"]
    for value, message in (
        (np.nan, f"features hold NaN or infinite values in 1 of the {inside} points inside the range"),
        (-np.inf, "features hold NaN or infinite values in 1 of"),
    ):
        bad = columns.copy()
        bad[rows[np.abs(points[rows]).max(axis=1) < 2][3], 3] = value
        with pytest.raises(InputError, match=message):
            run(points, bad, rows)
        run.check(points, columns, rows)
    points[rows[:5]] = 0.05
    huge = columns.copy()
    huge[rows[:5], 3] = 3e38
    with pytest.raises(InputError, match="the tensor's features hold 1 NaN or infinite values"):
        run(points, huge, rows)


@gpu
def test_what_was_not_prepared_is_refused():
    rng = np.random.default_rng(7)
    run = Run(config())
    points, columns, rows = frame(rng, 100, 200)
    with pytest.raises(InputError, match="prepare must come before enqueue"):
        run(points, columns, rows)
    run.prepare(points, columns)
    with pytest.raises(InputError, match="prepared for at most 200 points, not 201"):
        run(*frame(rng, 100, 201))


@gpu
def test_levels_and_fields_are_checked():
    with pytest.raises(InputError, match=r"levels must name at least one of x_conv1, .*, encoded, not \['x_conv9'\]"):
        FeaturePass(network(config()), config(), ["x_conv9"])
    with pytest.raises(InputError, match="levels must name at least one of"):
        FeaturePass(network(config()), config(), [])
    with pytest.raises(InputError, match="at most 8 levels can be gathered at a time, not 9"):
        FeaturePass(network(config()), config(), ["encoded"] * 9)
    with pytest.raises(InputError, match="the configuration has 2 fields and the network reads 4"):
        FeaturePass(network(config()), config(fields=("x", "y")), LEVELS)


def test_a_network_on_the_cpu_is_refused():
    with pytest.raises(InputError, match="the network must be on CUDA, but its backend is cpu"):
        FeaturePass(network(config(), backend="cpu"), config(), LEVELS)
