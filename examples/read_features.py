from contextlib import suppress

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2

from radius_fps_ros.clouds import decode_cloud


class Reader(Node):
    def __init__(self):
        super().__init__("reader")
        self.create_subscription(PointCloud2, "/radius_fps_perception/features", self.on_features, 5)

    def on_features(self, message):
        records = decode_cloud(message).records
        print(len(records), "samples with", records["features"].shape[1], "channels")


rclpy.init()
with suppress(KeyboardInterrupt, ExternalShutdownException):
    rclpy.spin(Reader())
