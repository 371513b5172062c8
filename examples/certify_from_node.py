import sys
from pathlib import Path

import rclpy
from radius_fps_interfaces.srv import CertifyHausdorff

full, decimated = (Path(argument).resolve().as_uri() for argument in sys.argv[1:3])
rclpy.init()
node = rclpy.create_node("asker")
client = node.create_client(CertifyHausdorff, "/radius_fps_hausdorff/certify")
client.wait_for_service()
future = client.call_async(CertifyHausdorff.Request(uri_a=full, uri_b=decimated, threshold=0.05))
rclpy.spin_until_future_complete(node, future)
answer = future.result()
print(answer.message, answer.lower, answer.upper)
