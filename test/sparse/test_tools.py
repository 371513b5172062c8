"""Tools for people who debug networks: summary, picture, rulebook check."""

import dataclasses

import numpy as np
import pytest
from matplotlib import image

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import VoxelResBackBone8x, build_rulebook, check_rulebook, draw_sites, summary, voxelize

from .cases import BATCH, GEOMETRIES, SHAPE, SITES


def built(backend, name, sites="random"):
    geometry = GEOMETRIES[name]
    parts = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, geometry.subm)
    return build_rulebook(backend.to_device(SITES[sites]()), SHAPE, BATCH, *parts)


@pytest.mark.parametrize("sites", ["random", "full", "empty"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_check_passes_right_rulebooks(backend, name, sites):
    assert check_rulebook(built(backend, name, sites)) == []


def test_the_check_finds_what_is_wrong(backend):
    right = built(backend, "k3_s2_p1")
    neighbours, out = backend.to_host(right.neighbours).copy(), backend.to_host(right.out_indices)

    def faults(**changes):
        moved = {name: backend.to_device(np.ascontiguousarray(array)) for name, array in changes.items()}
        return " ".join(check_rulebook(dataclasses.replace(right, **moved)))

    lost = neighbours.copy()
    lost[tuple(np.argwhere(lost >= 0)[5])] = -1
    assert "1 output sites differ from dense convolution" in faults(neighbours=lost)
    assert "1 sites that dense convolution reaches are missing" in faults(
        neighbours=neighbours[:, 1:], out_indices=out[1:]
    )
    assert "not sorted" in faults(neighbours=neighbours[:, ::-1], out_indices=out[::-1])
    twice = [0, *range(len(out))]
    assert "an output site occurs twice" in faults(neighbours=neighbours[:, twice], out_indices=out[twice])


def test_the_check_refuses_volumes_that_do_not_fit():
    rulebook = build_rulebook(np.zeros((1, 4), np.int32), (1000, 1000, 1000), 1, 3, subm=True)
    with pytest.raises(InputError, match="check a smaller crop"):
        check_rulebook(rulebook)


def small_maps(backend):
    points = (np.random.default_rng(0).standard_normal((500, 3)) * [4, 4, 1]).astype(np.float32)
    tensor = voxelize(
        backend.to_device(points),
        backend.to_device(points),
        point_cloud_range=(-10, -10, -5, 10, 10, 5),
        voxel_size=(0.5, 0.5, 0.25),
        backend=backend.name,
    )
    net = VoxelResBackBone8x(3, backend=backend.name, channels=(4, 4, 4, 4), blocks=(1, 1, 1, 1), out_channels=4)
    return tensor, net(tensor)


def test_summary_tells_of_every_level(backend):
    tensor, maps = small_maps(backend)
    lines = summary(maps).splitlines()
    assert [line.split()[0] for line in lines] == ["name", "x_conv1", "x_conv2", "x_conv3", "x_conv4", "encoded"]
    assert str(len(maps["x_conv3"])) in lines[3]
    assert "41 x 40 x 40" in summary(tensor)
    assert "0..0" not in summary(tensor)
    empty = backend.tensor(np.empty((0, 2), np.float32), np.empty((0, 4), np.int32), (4, 4, 4))
    assert "0.000%" in summary(empty)


def test_picture_shows_every_level(backend, tmp_path):
    _, maps = small_maps(backend)
    draw_sites(maps, tmp_path / "sites.png")
    picture = image.imread(tmp_path / "sites.png")
    assert picture.shape[0] > 500
    assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 20
    with pytest.raises(InputError, match="sample must be below the batch size 1"):
        draw_sites(maps, tmp_path / "sites.png", sample=1)
    with pytest.raises(InputError, match="cannot write the picture"):
        draw_sites(maps, tmp_path / "none" / "sites.png")
    with pytest.raises(InputError, match="no tensor to draw"):
        draw_sites({}, tmp_path / "sites.png")
