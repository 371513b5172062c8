"""Build of the ament_python package; colcon and pip both read it."""

import re
from glob import glob
from pathlib import Path

from setuptools import find_packages, setup

NAME = "radius_fps_ros"
ROOT = Path(__file__).resolve().parent  # colcon build --symlink-install runs a link to this file elsewhere
# The one place of the version; package.xml and interfaces/package.xml repeat it, and a test holds them equal.
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / NAME / "__init__.py").read_text(), re.MULTILINE).group(1)

setup(
    name=NAME,
    version=VERSION,
    description="Exact farthest point sampling, sparse voxel features and certified Hausdorff distances for ROS 2",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    author="The radius_fps_ros maintainers",
    keywords="ros2 lidar point-cloud farthest-point-sampling sparse-convolution hausdorff-distance cuda",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed", "**/*.cu", "**/*.cuh", "**/*.xml", "**/*.yaml"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", glob("launch/*.launch.py")),
        (f"share/{NAME}/config", glob("config/*")),
        (f"share/{NAME}/rviz", glob("rviz/*.rviz")),
    ],
    zip_safe=False,
    # Upper bounds stand where a next major release is known or announced to break.
    install_requires=[
        "click>=8.1,<9",
        "matplotlib>=3.7,<4",
        "numba>=0.60",
        "numpy>=1.26,<3",
        "plyfile>=1.0,<2",
        "pyyaml>=6,<7",
        "pypcd4>=1.1,<2",
        "rich>=13,<16",
        "rosbags>=0.11.9,<0.12",
        "safetensors>=0.4,<1",
        "trimesh>=4.4,<6",
    ],
    extras_require={
        "cuda12": ["cupy-cuda12x>=13.3,<15", "nvidia-cuda-nvrtc-cu12>=12.4,<13"],  # CuPy's wheels bring no NVRTC
        "cuda13": ["cupy-cuda13x>=13.6,<15", "nvidia-cuda-nvrtc>=13,<14"],
    },
    entry_points={
        "console_scripts": [
            "radius-fps = radius_fps_ros.cli:main",
            "perception_node = radius_fps_ros.nodes.programs:perception_node",
            "hausdorff_node = radius_fps_ros.nodes.programs:hausdorff_node",
            "replay_node = radius_fps_ros.nodes.programs:replay_node",
        ],
    },
)
