"""Configuration files of the backbone."""

from pathlib import Path

import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import BackboneConfig, VoxelResBackBone8x, load_config

CONFIG = Path(__file__).parents[2] / "config"


def test_the_full_configuration_is_the_published_one():
    assert load_config(CONFIG / "backbone_full.yaml") == BackboneConfig()


def test_the_light_configuration_is_a_smaller_network_of_the_same_class():
    config = load_config(CONFIG / "backbone_light.yaml")
    light = VoxelResBackBone8x.from_config(config, backend="cpu")
    full = VoxelResBackBone8x(backend="cpu")
    assert len(light.layers) < len(full.layers)
    assert light.layers[-1].out_channels == config.out_channels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chanels: [1, 2, 3, 4]", "unknown key 'chanels'; known are point_cloud_range"),
        ("channels: 16", "must give channels as a list"),
        ("max_voxels: [1]", "must give max_voxels as one number"),
        ("channels: [16, 32, 64]", "channels must be 4 integers"),
        ("max_voxels: 0", "integers of at least 1"),
        ("max_voxels: many", "integers of at least 1"),
        ("fields: []", "fields must name at least one"),
        ("voxel_size: [0.1, 0.1, none]", "voxel_size must be"),
        ("point_cloud_range: [1, 2]", "point_cloud_range must be"),
        ("- a", "must be a mapping"),
        ("a: [", "cannot read the configuration"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the configuration"):
        load_config(tmp_path / "none.yaml")
