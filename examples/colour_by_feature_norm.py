"""Colour the samples by the length of their feature vectors: a cloud for RViz, which colours by `intensity`.

python examples/colour_by_feature_norm.py

Needs ROS 2 and a running perception node with parameter `features`: on. Publishes `/feature_norm`. The topic of the
features is remapped as usual: --ros-args -r /radius_fps_perception/features:=/front/radius_fps_perception/features
"""

from contextlib import suppress

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.nodes.messages import records_message


class FeatureNorm(Node):
    def __init__(self):
        super().__init__("feature_norm")
        self.publisher = self.create_publisher(PointCloud2, "/feature_norm", 5)
        self.create_subscription(PointCloud2, "/radius_fps_perception/features", self.on_features, 5)

    def on_features(self, message):
        cloud = decode_cloud(message)
        coloured = np.zeros(len(cloud), [(name, np.float32) for name in ("x", "y", "z", "intensity")])
        for name in "xyz":
            coloured[name] = cloud.records[name]
        coloured["intensity"] = np.linalg.norm(cloud.records["features"], axis=1)
        self.publisher.publish(records_message(coloured, message.header))


def main():
    rclpy.init()
    with suppress(KeyboardInterrupt, ExternalShutdownException):  # both are an orderly end
        rclpy.spin(FeatureNorm())


if __name__ == "__main__":
    main()
