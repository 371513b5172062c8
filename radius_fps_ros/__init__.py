"""Exact farthest point sampling, sparse voxel features and certified Hausdorff distances for ROS 2.

Everything that computes works as a plain Python library: only ``radius_fps_ros.nodes`` imports ROS.
"""

__version__ = "0.1.0"
