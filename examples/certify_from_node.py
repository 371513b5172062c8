import sys
from pathlib import Path

import rclpy
from radius_fps_interfaces.srv import CertifyHausdorff

if len(sys.argv) != 3:
    sys.exit("usage: python certify_from_node.py FULL DECIMATED")
full, decimated = (Path(argument).resolve().as_uri() for argument in sys.argv[1:])
rclpy.init()
node = rclpy.create_node("asker")
client = node.create_client(CertifyHausdorff, "/radius_fps_hausdorff/certify")
if not client.wait_for_service(timeout_sec=30):
    sys.exit("radius_fps_hausdorff does not answer: ros2 launch radius_fps_ros hausdorff.launch.py")
future = client.call_async(CertifyHausdorff.Request(uri_a=full, uri_b=decimated, threshold=0.05, time_limit=60.0))
rclpy.spin_until_future_complete(node, future, timeout_sec=120)
answer = future.result()
if answer is None or answer.status > answer.CANCELLED:
    sys.exit(answer.message if answer else "radius_fps_hausdorff has not answered within two minutes")
print(answer.message, answer.lower, answer.upper)
