"""What a running perception node must do, as checks that process tests and launch tests share."""

import array
import itertools
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Point
from radius_fps_interfaces.msg import FrameStats
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import ListParameters, SetParametersAtomically
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import PointCloud2, PointField
from shape_msgs.msg import Mesh, MeshTriangle

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.hausdorff import certify_hausdorff
from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess
from radius_fps_ros.nodes.stream import StreamFrame
from radius_fps_ros.sampling import farthest_point_sampling


def xyzi_cloud(points, stamp=(1, 2), frame_id="lidar", **changes):
    """An ordinary x y z intensity cloud of (N, 3) points; ``changes`` set members of the message, also wrongly."""
    records = np.zeros((len(points), 4), np.float32)
    records[:, :3] = points
    records[:, 3] = np.arange(len(points))
    message = PointCloud2(height=1, width=len(points), point_step=16, row_step=16 * len(points), is_dense=True)
    message.header.stamp.sec, message.header.stamp.nanosec = stamp
    message.header.frame_id = frame_id
    message.fields = [
        PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1)
        for i, name in enumerate(("x", "y", "z", "intensity"))
    ]
    message.data = array.array("B", records.tobytes())
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def write_bag(path, topics, clouds):
    """An mcap bag with serialized clouds, one every 0.1 s, each on all topics."""
    store = get_typestore(Stores.ROS2_KILTED)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = [writer.add_connection(t, "sensor_msgs/msg/PointCloud2", typestore=store) for t in topics]
        for k, cdr in enumerate(clouds):
            for connection in connections:
                writer.write(connection, 10**9 + k * 10**8, cdr)
    return path


def random_points(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


PATIENCE = 60.0  # s, for what takes milliseconds on an idle machine


def wait_until(condition, timeout=PATIENCE):
    """Poll until ``condition()`` holds; fail after ``timeout`` [s]."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def in_executor(executor, call, *args):
    """``call(*args)`` in the thread of a single-threaded executor, between its callbacks.

    rclpy's executor ends with an error when another thread destroys a publisher, a subscription, an action client or a
    node that it is about to wait for; clients of services it bears.
    """
    task = executor.create_task(call, *args)
    wait_until(task.done)
    return task.result()


def exchange(monitor, messages, timeout=PATIENCE):
    """Publish messages one at a time, each after the answer to the one before; returns the exchanges."""
    first = len(monitor.exchanges)
    for message in messages:
        monitor.publish(StreamFrame("points", 0.0, serialize_message(message)))
        newest = monitor.exchanges[-1]
        wait_until(lambda newest=newest: newest.answered or newest.refused, timeout)
    return monitor.exchanges[first:]


def check_answers(exchanges, n_samples):
    """Header, fields and points are the cloud's own, and the samples are those of the library."""
    for each in exchanges:
        question, answer = deserialize_message(each.cdr, PointCloud2), each.sampled
        assert each.stats.status != FrameStats.REFUSED, each.stats.message
        assert answer.header == question.header == each.stats.header
        assert (answer.fields, answer.point_step) == (question.fields, question.point_step)
        cloud = decode_cloud(question)
        usable = np.flatnonzero(np.isfinite(cloud.xyz).all(axis=1))
        expected = usable[farthest_point_sampling(cloud.xyz[usable], min(n_samples, len(usable))).indices]
        assert answer.width == each.stats.samples == len(expected)
        np.testing.assert_array_equal(decode_cloud(answer).records, cloud.records[expected])


def malformed_clouds():
    """A broken message and the words its refusal must contain."""
    good = random_points(50)
    x_y_only = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xy")]
    overlapping = [PointField(name=n, offset=o, datatype=7, count=1) for n, o in (("x", 0), ("y", 2), ("z", 8))]
    return {
        "zero points": (xyzi_cloud(good[:0]), "no points"),
        "no z": (xyzi_cloud(good, fields=x_y_only), "no field 'z'"),
        "data cut short": (xyzi_cloud(good, data=array.array("B", bytes(100))), "data holds"),
        "point_step too small": (xyzi_cloud(good, point_step=12), "point_step"),
        "fields overlap": (xyzi_cloud(good, fields=overlapping), "overlap"),
        "absurd size": (xyzi_cloud(good, width=2**32 - 1, height=2**32 - 1, row_step=0), "row_step"),
        "absurd width": (xyzi_cloud(good, width=2**32 - 1), "data holds"),
        "all NaN": (xyzi_cloud(np.full((50, 3), np.nan)), "none of the cloud's 50 points is finite"),
        "unknown datatype": (
            xyzi_cloud(
                good, fields=[PointField(name=n, offset=4 * i, datatype=99, count=1) for i, n in enumerate("xyz")]
            ),
            "99",
        ),
    }


def wait_until_known(node, server):
    """Wait until the node ``server`` (fully qualified) knows all clients that ``node`` has made.

    A service answers a client that it does not know yet into the void. Endpoints become known in the order in which
    they were made, so one that is made last, and may be asked again and again, tells of all before it.
    """
    client = node.create_client(ListParameters, f"{server}/list_parameters")
    assert client.wait_for_service(timeout_sec=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    answered = False
    while not answered:
        assert time.monotonic() < deadline, f"{server} does not answer"
        future = client.call_async(ListParameters.Request())
        ask_again = time.monotonic() + 1.0
        while not future.done() and time.monotonic() < ask_again:
            time.sleep(0.005)
        answered = future.done()
    node.destroy_client(client)


def ask(node, server, kind, service, request):
    """The answer of a service of the node ``server``, asked once."""
    client = node.create_client(kind, f"{server}/{service}")
    assert client.wait_for_service(timeout_sec=PATIENCE)
    wait_until_known(node, server)
    future = client.call_async(request)
    wait_until(future.done)
    node.destroy_client(client)
    return future.result()


def set_parameters(node, perception, **values):
    """Set parameters of the running node atomically; returns (successful, reason)."""
    kinds = {
        bool: (ParameterType.PARAMETER_BOOL, "bool_value"),
        int: (ParameterType.PARAMETER_INTEGER, "integer_value"),
        float: (ParameterType.PARAMETER_DOUBLE, "double_value"),
        str: (ParameterType.PARAMETER_STRING, "string_value"),
        list: (ParameterType.PARAMETER_DOUBLE_ARRAY, "double_array_value"),
    }
    request = SetParametersAtomically.Request()
    for name, value in values.items():
        kind, member = kinds[type(value)]
        request.parameters.append(Parameter(name=name, value=ParameterValue(type=kind, **{member: value})))
    result = ask(node, perception, SetParametersAtomically, "set_parameters_atomically", request).result
    return result.successful, result.reason


def next_diagnostics(node, perception, timeout=PATIENCE):
    """The next diagnostic status of the node: (status, its values by key)."""
    seen = []
    subscription = node.create_subscription(DiagnosticArray, "/diagnostics", seen.append, 10)
    deadline = time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            for message in list(seen):
                for status in message.status:
                    if status.hardware_id == perception:
                        return status, {pair.key: pair.value for pair in status.values}
            time.sleep(0.02)
    finally:
        in_executor(node.executor, node.destroy_subscription, subscription)
    raise AssertionError("no diagnostics came")


@contextmanager
def active_node(observer, namespace, log, parameters=None, program=None):
    """Yields (monitor, process) of a perception node that is activated and logs to the file ``log``.

    It must stay up and end with exit code 0.
    """
    name = f"{namespace}/radius_fps_perception"
    with (
        log.open("w") as output,
        NodeProcess(
            "perception_node", namespace=namespace, parameters=parameters, output=output, program=program
        ) as process,
    ):
        monitor = StreamMonitor(observer, name, topic=f"{namespace}/points")
        process.bring_up(observer, name)
        assert monitor.wait_until_connected()
        yield monitor, process
        assert process.process.poll() is None, "the node did not stay up"
        assert process.stop() == 0


@contextmanager
def monitors_of_two_sides(executor):
    """Monitors of /left/radius_fps_perception, and of the one in /right whose topics are named otherwise."""
    rules = ["-r", "/right/radius_fps_perception/sampled:=/right/downsampled", "-r", "__ns:=/observers"]
    observer = rclpy.create_node("two_sides", context=executor.context, cli_args=["--ros-args", *rules])
    executor.add_node(observer)
    topics = {"left": "/left/points", "right": "/right/lidar/points"}
    yield [StreamMonitor(observer, f"/{side}/radius_fps_perception", topic=topic) for side, topic in topics.items()]
    executor.remove_node(observer)
    in_executor(executor, observer.destroy_node)


def check_side_by_side(monitors, n_samples):
    """Nodes in different namespaces, one monitor each: every node answers its own clouds, and nobody else's."""
    clouds = [[xyzi_cloud(random_points(300 + k, seed=k), frame_id=f"lidar_{k}")] for k in range(len(monitors))]
    for _ in range(3):
        for monitor, messages in zip(monitors, clouds, strict=True):
            check_answers(exchange(monitor, messages), n_samples)
    assert all(len(monitor.exchanges) == 3 and monitor.unexpected == 0 for monitor in monitors)


def check_answers_again(monitor, n_samples, first_stamp=1000, timeout=120.0):
    """A publisher that has lived on sends clouds until the node, started again, answers one; its counts begin anew."""
    deadline = time.monotonic() + timeout
    for second in itertools.count(first_stamp):
        message = xyzi_cloud(random_points(200, seed=second), stamp=(second, 0))
        monitor.publish(StreamFrame("points", 0.0, serialize_message(message)))
        newest = monitor.exchanges[-1]
        while not newest.answered and time.monotonic() < deadline:
            if time.monotonic() - newest.published > 1.0:
                break  # lost: nobody listened yet
            time.sleep(0.01)
        assert time.monotonic() < deadline, "the node did not come back"
        if newest.answered:
            break
    check_answers([newest], n_samples)
    assert newest.stats.frame <= second - first_stamp + 1


def mesh_message(mesh):
    """A shape_msgs/Mesh of (vertices, faces) in arrays."""
    vertices, faces = mesh
    return Mesh(
        vertices=[Point(x=x, y=y, z=z) for x, y, z in vertices.tolist()],
        triangles=[MeshTriangle(vertex_indices=face) for face in faces.astype(np.uint32)],
    )


TETRAHEDRON = (
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]],
)
ASKER = """
import json, sys
import rclpy
from geometry_msgs.msg import Point
from radius_fps_interfaces.srv import CertifyHausdorff
from shape_msgs.msg import Mesh, MeshTriangle
def mesh(vertices, faces):
    return Mesh(vertices=[Point(x=x, y=y, z=z) for x, y, z in vertices],
                triangles=[MeshTriangle(vertex_indices=face) for face in faces])
rclpy.init()
node = rclpy.create_node("asker")
client = node.create_client(CertifyHausdorff, sys.argv[1])
assert client.wait_for_service(timeout_sec=60)
a, b = json.load(sys.stdin)
while True:  # an answer to a client that the node does not know yet is lost
    future = client.call_async(CertifyHausdorff.Request(mesh_a=mesh(*a), mesh_b=mesh(*b), tolerance=1e-6))
    rclpy.spin_until_future_complete(node, future, timeout_sec=10)
    if future.done():
        break
answer = future.result()
print(json.dumps([answer.status, answer.lower, answer.upper, answer.message]))
"""


def check_certificate_for_another_process(hausdorff, timeout=120.0):
    """A node of another process asks the Hausdorff node ``hausdorff`` and gets an interval that holds the truth."""
    vertices, faces = TETRAHEDRON
    shifted = ([[x + 0.25, y, z] for x, y, z in vertices], faces)
    done = subprocess.run(
        [sys.executable, "-c", ASKER, f"{hausdorff}/certify"],
        input=json.dumps([TETRAHEDRON, shifted]),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    status, lower, upper, message = json.loads(done.stdout)
    assert status == 0, message
    expected = certify_hausdorff(*((np.array(v), np.array(f, np.int32)) for v, f in (TETRAHEDRON, shifted)))
    assert lower <= expected.upper
    assert expected.lower <= upper
    assert upper - lower <= 1e-6 * np.sqrt(3)


def shared_memory_of(pid):
    """The shared-memory segments that a process owns: it holds the lock of the file beside each."""
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    own = {int(lock[5].split(":")[2]) for lock in locks if lock[1:5] == ["FLOCK", "ADVISORY", "WRITE", str(pid)]}
    files = Path("/dev/shm").glob("fast*_" + "[0-9a-f]" * 16 + "_el")
    return [file.with_name(file.name.removesuffix("_el")) for file in files if file.stat().st_ino in own]


def check_clouds_of_a_replay(node, perception, clouds, timeout=120.0):
    """The perception node answers the clouds of a bag, whoever plays it: points of each of them come, and no others."""
    seen = []
    subscription = node.create_subscription(PointCloud2, f"{perception}/sampled", seen.append, 10)
    stamps = lambda messages: {message.header.stamp.sec for message in list(messages)}  # noqa: E731
    wait_until(lambda: stamps(seen) >= stamps(clouds), timeout)
    in_executor(node.executor, node.destroy_subscription, subscription)
    known = {bytes(record) for cloud in clouds for record in decode_cloud(cloud).records.view("V16")}
    assert stamps(seen) == stamps(clouds)
    assert all({bytes(record) for record in decode_cloud(message).records.view("V16")} <= known for message in seen)
