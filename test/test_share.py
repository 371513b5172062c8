"""Where the installed files are found, and the networks that users name."""

import subprocess
import sys
from pathlib import Path

import pytest

import radius_fps_ros
from radius_fps_ros.errors import InputError
from radius_fps_ros.frame_features import named_config
from radius_fps_ros.share import share_file
from radius_fps_ros.sparse import BackboneConfig, load_config

CONFIG = Path(__file__).resolve().parents[1] / "config"


def test_networks_by_name(tmp_path):
    assert named_config("full", "cpu") == named_config("auto", "cuda") == load_config(CONFIG / "backbone_full.yaml")
    assert named_config("light", "cuda") == named_config("auto", "cpu") == load_config(CONFIG / "backbone_light.yaml")
    assert named_config(str(CONFIG / "backbone_light.yaml"), "cpu") == named_config("light", "cpu")
    assert named_config("full", "cpu") == BackboneConfig()
    with pytest.raises(InputError, match=r"none\.yaml"):
        named_config(str(tmp_path / "none.yaml"), "cpu")


@pytest.mark.parametrize("place", ["ament", "beside"])
def test_the_share_folder_is_found_where_it_is_installed(tmp_path, place):
    """A copy of the module in another folder, run without an environment that has the files."""
    package = tmp_path / "site" / "radius_fps_ros"
    package.mkdir(parents=True)
    (package / "share.py").write_text(Path(radius_fps_ros.__file__).with_name("share.py").read_text())
    prefix = tmp_path / ("overlay" if place == "ament" else "site")
    installed = prefix / "share" / "radius_fps_ros" / "config" / "only_here.yaml"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    code = (
        "import share; print(share.share_file('config', 'only_here.yaml'), share.share_file('config', 'nowhere.yaml'))"
    )
    environment = {"PYTHONPATH": str(package)} | ({"AMENT_PREFIX_PATH": str(prefix)} if place == "ament" else {})
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(installed), "None"]


def test_a_file_of_the_checkout_is_found():
    found = share_file("config", "fastdds_shm.xml")
    assert found is not None
    assert found.read_text() == (CONFIG / "fastdds_shm.xml").read_text()
