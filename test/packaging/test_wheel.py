"""The source archive and the wheel: what they hold, and that a wheel installed where nothing else is works.

The environment it is installed into borrows this one's third-party packages by a path file, so nothing is downloaded.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import trimesh

import radius_fps_ros
from radius_fps_ros.clouds.synthetic import street_scan

pytest.importorskip("build", reason="the package `build` is not installed")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NAME = "radius_fps_ros"
NOT_SOURCES = (".*", "build", "dist", "install", "log", "out", "__pycache__", "*.egg-info")
LIBRARIES = ("sampling", "sparse", "hausdorff", "clouds", "device", "pipeline", "frame_features", "errors")

LOOK = f"""
import importlib, sys
modules = [importlib.import_module(f"{NAME}.{{name}}") for name in {LIBRARIES}]
assert "rclpy" not in sys.modules
from {NAME}.share import share_file
for found in (*(module.__file__ for module in modules), share_file("config", "fastdds_shm.xml"),
              share_file("launch", "perception.launch.py")):
    assert str(found).startswith(sys.prefix), found
print("found")
"""

USER_PROGRAM = """
from radius_fps_ros.hausdorff import Certificate, certify_hausdorff
certificate: Certificate = certify_hausdorff("a.ply", "b.ply", tolerance=1e-6)
narrow: bool = certificate.upper - certificate.lower < 1e-3
"""


class Archives(NamedTuple):
    source: Path
    archive: Path
    wheel: Path

    def files(self, *folders):
        """The names of the files that these folders of the sources hold."""
        found = (file for folder in folders for file in (self.source / folder).rglob("*") if file.is_file())
        return {str(file.relative_to(self.source)) for file in found}


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A copy of the sources, the source archive made of it, and the wheel built from what the archive holds."""
    source, out = tmp_path_factory.mktemp("build") / "source", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Archives(source, archive, wheel)


@pytest.fixture(scope="module")
def run(archives, tmp_path_factory):
    """Run a command of an environment that holds the wheel, in a folder of its own: (exit code, stdout, stderr)."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", "--ignore-installed", archives.wheel], check=True)
    taken = ("PYTHONPATH", "AMENT_PREFIX_PATH", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in taken}

    def run(command, *arguments, **variables):
        done = subprocess.run(
            [venv / "bin" / command, *arguments],
            cwd=folder, env=environment | variables, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    run.folder, run.python = folder, venv / "bin" / "python"
    return run


def test_the_wheel_holds_the_package_and_its_share_folder(archives):
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    share = f"{NAME}-{radius_fps_ros.__version__}.data/data/share"
    expected = archives.files(NAME) | {f"{share}/{NAME}/{name}" for name in archives.files("launch", "config", "rviz")}
    expected |= {f"{share}/ament_index/resource_index/packages/{NAME}", f"{share}/{NAME}/package.xml"}
    assert names == expected
    assert {Path(name).suffix for name in names} >= {".cu", ".cuh", ".yaml", ".typed"}


def test_the_source_archive_is_the_whole_source(archives):
    with tarfile.open(archives.archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    expected = archives.files(NAME, "interfaces", "resource", "launch", "config", "requirements")
    expected |= archives.files("test", "benchmarks", "docs", "examples", "tools")
    expected |= {"setup.py", "setup.cfg", "pyproject.toml", "package.xml", "README.md", "LICENSE", "Makefile"}
    assert expected <= names
    assert not {name for name in names if "__pycache__" in name or name.endswith(".pyc")}


def test_the_metadata(archives):
    with zipfile.ZipFile(archives.wheel) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(wheel.read(path).decode())
    assert metadata["Name"] == NAME
    assert metadata["Version"] == radius_fps_ros.__version__
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata.get_all("Provides-Extra") == ["cuda12", "cuda13"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Project-URL" not in metadata


@pytest.mark.parametrize("manifest", ["package.xml", "interfaces/package.xml"])
def test_the_ros_manifests_have_the_same_version(manifest):
    assert re.findall("<version>(.+)</version>", (ROOT / manifest).read_text()) == [radius_fps_ros.__version__]


def test_everything_is_imported_and_found_in_the_installed_wheel(run):
    assert run("python", "-c", LOOK) == (0, "found\n", "")


def test_the_installed_command_samples_and_certifies(run):
    np.save(run.folder / "street.npy", street_scan(500))
    code, out, err = run("radius-fps", "sample", "street.npy", "--n", "8", "-o", "samples.ply")
    assert (code, err) == (0, "")
    assert "8 samples, coverage radius" in out
    assert (run.folder / "samples.ply").is_file()
    plain = {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}  # compiling would take half a minute
    for name, level in (("fine", 2), ("coarse", 1)):
        trimesh.creation.icosphere(level).export(run.folder / f"{name}.ply")
    code, out, err = run("radius-fps", "certify", "fine.ply", "coarse.ply", "--json", **plain)
    assert (code, err) == (0, "")
    assert json.loads(out)["status"] == "CONVERGED"


def test_the_installed_command_computes_features(run):
    np.save(run.folder / "scan.npy", street_scan(500))
    code, out, err = run("radius-fps", "features", "scan.npy", "-o", "features.npz")
    assert (code, err) == (0, "")
    assert "encoded" in out
    with np.load(run.folder / "features.npz") as features:
        assert features["encoded_features"].shape[1] == 128


def test_a_users_program_is_type_checked_strictly(run):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (run.folder / "user.py").write_text(USER_PROGRAM)
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", run.python, "user.py"]
    done = subprocess.run(check, cwd=run.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stderr
    (run.folder / "user.py").write_text(USER_PROGRAM + "wrong: int = certificate.lower\n")
    done = subprocess.run(check, cwd=run.folder, capture_output=True, text=True)
    assert 'variable has type "int"' in done.stdout
