"""The synthetic clouds: the same every time, and shaped like what they stand for."""

import numpy as np
import pytest

from radius_fps_ros.clouds.synthetic import EGO_SPEED, LIDAR_DTYPE, SENSOR_HEIGHT, StreetScene, room_scan, street_scan
from radius_fps_ros.errors import InputError


def test_same_seed_and_frame_give_the_same_bytes():
    first, second = StreetScene(seed=3), StreetScene(seed=3)
    second.frame(0)  # what was asked before must not matter
    assert first.frame(7).tobytes() == second.frame(7).tobytes()


def test_seed_and_frame_change_the_cloud():
    scene = StreetScene(seed=0, azimuth_steps=256)
    assert scene.frame(0).tobytes() != scene.frame(1).tobytes()
    assert scene.frame(0).tobytes() != StreetScene(seed=1, azimuth_steps=256).frame(0).tobytes()


def test_default_frame_looks_like_a_64_beam_street_scan():
    frame = StreetScene().frame(0)
    assert frame.dtype == LIDAR_DTYPE
    assert 110_000 < frame.size < 64 * 2048
    assert np.array_equal(np.unique(frame["ring"]), np.arange(64))
    assert (np.diff(frame["time"]) >= 0).all()
    assert 0 <= frame["time"].min() < frame["time"].max() < 0.1
    for name in ("x", "y", "z", "intensity"):
        assert np.isfinite(frame[name]).all()
    assert 1 <= frame["intensity"].min() < frame["intensity"].max() <= 255
    # Dense near, thin far, and nothing below the road by more than the noise.
    distance = np.hypot(frame["x"], frame["y"])
    assert (distance < 10).mean() > 0.4
    assert (distance > 50).mean() > 0.005
    assert frame["z"].min() > -SENSOR_HEIGHT - 0.2
    assert (np.abs(frame["z"] + SENSOR_HEIGHT) < 0.1).mean() > 0.2
    assert (frame["z"] > 0).mean() > 0.02


def test_points_lie_on_their_beam():
    frame = StreetScene(azimuth_steps=512).frame(0)
    elevation = np.arctan2(frame["z"], np.hypot(frame["x"], frame["y"]).astype(np.float64))
    for ring in (0, 17, 63):
        assert np.ptp(elevation[frame["ring"] == ring]) < 1e-5


def test_the_vehicle_moves_along_the_street():
    """House fronts measured beside the vehicle in one frame are found again, further back, in a later one."""
    scene = StreetScene(seed=0)

    def house_edges(k):
        frame = scene.frame(k)
        front = frame[(np.abs(frame["y"]) > 8) & (frame["z"] > -0.5) & (np.abs(frame["x"]) < 40)]
        return np.histogram2d(
            front["x"] + EGO_SPEED * 0.1 * k, front["y"], bins=[160, 80], range=[[-30, 50], [-20, 20]]
        )

    there, moved = house_edges(0)[0] > 2, house_edges(10)[0] > 2
    assert (there & moved).sum() > 0.5 * there.sum()
    unmoved = np.roll(moved, -16, axis=0)  # the same frame taken as if the vehicle had stood still
    assert (there & unmoved).sum() < (there & moved).sum()


def test_the_street_never_ends():
    scene = StreetScene(seed=0, azimuth_steps=256)
    assert scene.frame(100_000).size > 0.8 * scene.frame(0).size


@pytest.mark.parametrize("count", [1, 49_497, 120_000, 130_815, 900_000])
def test_street_scan_gives_the_count_asked_for(count):
    scan = street_scan(count)
    assert scan.size == count
    assert scan.dtype == LIDAR_DTYPE


def test_room_scan_fills_a_room():
    room = room_scan(50_000, seed=1)
    assert room.size == 50_000
    assert room.tobytes() == room_scan(50_000, seed=1).tobytes()
    for name, least, most in (("x", 7, 9), ("y", 5, 7), ("z", 2.6, 3.2)):
        assert least - 0.1 < np.ptp(room[name]) < most + 0.1
    floor = np.abs(room["z"]) < 0.02
    assert 0.1 < floor.mean() < 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: StreetScene(beams=1),
        lambda: StreetScene(azimuth_steps=3),
        lambda: StreetScene(seed=-1),
        lambda: StreetScene(azimuth_steps=32).frame(-1),
        lambda: street_scan(0),
        lambda: street_scan(10**9),
        lambda: room_scan(0),
        lambda: room_scan(10, seed=-1),
        lambda: room_scan(10, seed=0.5),
    ],
)
def test_arguments_out_of_range_are_refused(make):
    with pytest.raises(InputError, match="allowed are"):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: StreetScene(1.5), "seed is 1.5; allowed are integers"),
        (lambda: StreetScene(beams="many"), "beams is 'many'; allowed are integers"),
        (lambda: StreetScene(azimuth_steps=64.0), "azimuth_steps is 64.0; allowed are integers"),
        (lambda: StreetScene(azimuth_steps=32).frame(1.5), "k is 1.5; allowed are integers"),
        (lambda: StreetScene(azimuth_steps=32).frame(-1), "k is -1; allowed are 0 and above"),
        (lambda: street_scan(1000.5), "n_points is 1000.5; allowed are integers"),
        (lambda: street_scan(1000, seed=None), "seed is None; allowed are integers"),
    ],
)
def test_a_refusal_names_the_argument(make, sentence):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == sentence


def test_numpy_integers_are_integers():
    scene = StreetScene(np.int64(3), np.int32(8), np.uint16(32))
    assert scene.frame(np.int8(1)).tobytes() == StreetScene(3, 8, 32).frame(1).tobytes()
