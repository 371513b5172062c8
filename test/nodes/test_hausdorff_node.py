"""The Hausdorff node as a real process: service, action, limits and bad requests."""

import time

import numpy as np
import pytest
import trimesh
from action_msgs.msg import GoalStatus
from radius_fps_interfaces.action import CertifyHausdorff as CertifyAction
from radius_fps_interfaces.srv import CertifyHausdorff
from rclpy.action import ActionClient
from rclpy.qos import QoSProfile
from scenarios import PATIENCE, in_executor, mesh_message, set_parameters, wait_until, wait_until_known

from radius_fps_ros.hausdorff import certify_hausdorff
from radius_fps_ros.nodes.processes import NodeProcess

pytestmark = pytest.mark.ros

NAME = "/maps/radius_fps_hausdorff"
Response = CertifyHausdorff.Response


def sphere(rings, radius=1.0):
    """A closed sphere as (vertices, faces)."""
    around = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    u, v = np.meshgrid(np.linspace(0, np.pi, rings + 1), around, indexing="ij")
    vertices = radius * np.stack([np.sin(u) * np.cos(v), np.sin(u) * np.sin(v), np.cos(u)], axis=-1).reshape(-1, 3)
    i, j = (k.ravel() for k in np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij"))
    corner = lambda di, dj: (i + di) * 2 * rings + (j + dj) % (2 * rings)  # noqa: E731
    a, b, c, d = corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)
    return vertices, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def write_off(path, mesh):
    vertices, faces = mesh
    lines = ["OFF", f"{len(vertices)} {len(faces)} 0", *(" ".join(map(repr, v)) for v in vertices.tolist())]
    path.write_text("\n".join([*lines, *(f"3 {a} {b} {c}" for a, b, c in faces.tolist())]) + "\n")
    return f"file://{path}"


SMALL, OTHER = sphere(12), sphere(12, radius=1.1)


@pytest.fixture(scope="module")
def running(ros_node, tmp_path_factory):
    """The node with one folder of maps; it must end with exit code 0."""
    roots = tmp_path_factory.mktemp("maps")
    # Concentric spheres take long: from everywhere on the outer one, all of the inner one is almost equally near.
    meshes = {"small": SMALL, "other": OTHER, "inner": sphere(160, 0.01), "outer": sphere(160)}
    meshes["large"] = sphere(300)  # takes seconds to read
    for name, mesh in meshes.items():
        write_off(roots / f"{name}.off", mesh)
    (roots / "empty.off").touch()
    (roots / "text.ply").write_text("this is no mesh\n")
    with (roots / "log").open("w") as log:
        parameters = {"allowed_roots": [str(roots)], "max_waiting": 4}
        process = NodeProcess("hausdorff_node", namespace="/maps", parameters=parameters, output=log)
        with process:
            client = ros_node.create_client(CertifyHausdorff, f"{NAME}/certify")
            assert client.wait_for_service(timeout_sec=PATIENCE)
            wait_until_known(ros_node, NAME)
            yield roots, client
            assert process.process.poll() is None, "the node did not stay up"
            assert process.stop() == 0


def request(client, **members):
    future = client.call_async(CertifyHausdorff.Request(**members))
    wait_until(future.done)
    return future.result()


def uri(roots, name):
    return f"file://{roots}/{name}"


def begin(action, **members):
    """Send a goal; its handle and the future of its result."""
    sent = action.send_goal_async(CertifyAction.Goal(**members))
    wait_until(sent.done)
    assert sent.result().accepted
    return sent.result(), sent.result().get_result_async()


@pytest.fixture
def action(running, ros_node):
    client = ActionClient(ros_node, CertifyAction, f"{NAME}/certify_action")
    assert client.wait_for_server(timeout_sec=PATIENCE)
    wait_until_known(ros_node, NAME)
    yield client
    in_executor(ros_node.executor, client.destroy)


@pytest.mark.parametrize("symmetric", [False, True])
def test_inline_and_by_uri_give_the_library_s_interval(running, symmetric):
    roots, client = running
    expected = certify_hausdorff(SMALL, OTHER, tolerance=1e-4, symmetric=symmetric)
    for members in (
        {"mesh_a": mesh_message(SMALL), "mesh_b": mesh_message(OTHER)},
        {"uri_a": uri(roots, "small.off"), "uri_b": uri(roots, "other.off")},
        {"mesh_a": mesh_message(SMALL), "uri_b": uri(roots, "other.off")},
    ):
        answer = request(client, tolerance=1e-4, symmetric=symmetric, **members)
        assert answer.status == Response.CONVERGED, answer.message
        assert answer.lower <= expected.upper
        assert expected.lower <= answer.upper
        assert answer.upper - answer.lower <= 1e-4 * np.sqrt(12)
        witness = np.array([[p.x, p.y, p.z] for p in (answer.witness_a, answer.witness_b)])
        assert np.linalg.norm(witness[0] - witness[1]) == pytest.approx(answer.lower, rel=1e-9)
        assert answer.triangles > 0
        assert answer.milliseconds > 0
        assert answer.backend in ("cpu", "cuda")


@pytest.mark.parametrize(("threshold", "status"), [(0.05, Response.PROVEN_ABOVE), (0.5, Response.PROVEN_BELOW)])
def test_threshold(running, threshold, status):
    roots, client = running
    answer = request(client, uri_a=uri(roots, "small.off"), uri_b=uri(roots, "other.off"), threshold=threshold)
    assert answer.status == status
    assert f"{threshold:g}" in answer.message
    assert (answer.lower > threshold) == (status == Response.PROVEN_ABOVE)
    assert (answer.upper <= threshold) == (status == Response.PROVEN_BELOW)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"uri_a": "file:///etc/passwd", "uri_b": "small.off"}, "outside the folders"),
        ({"uri_a": "file://[bad/a.obj", "uri_b": "small.off"}, "is not a file:///path or package://name/path URI"),
        ({"uri_a": "missing.off", "uri_b": "small.off"}, "does not exist"),
        ({"uri_a": "empty.off", "uri_b": "small.off"}, "empty.off"),
        ({"uri_a": "text.ply", "uri_b": "small.off"}, "text.ply"),
        ({"uri_a": "", "uri_b": "small.off"}, "mesh A is missing"),
        ({"uri_a": "small.off"}, "mesh B is missing"),
        ({"uri_a": "small.off", "mesh_a": mesh_message(SMALL), "uri_b": "small.off"}, "mesh A is given both"),
        ({"uri_a": "small.off", "uri_b": "small.off", "tolerance": -1.0}, "tolerance must not be negative or NaN"),
        ({"uri_a": "small.off", "uri_b": "small.off", "tolerance": float("nan")}, "tolerance must not be"),
        ({"uri_a": "small.off", "uri_b": "small.off", "threshold": float("nan")}, "threshold must not be"),
        ({"uri_a": "small.off", "uri_b": "small.off", "time_limit": -2.0}, "time_limit must not be"),
        ({"uri_a": "small.off", "uri_b": "small.off", "tolerance": float("inf")}, "tolerance must be a finite number"),
        ({"mesh_a": mesh_message((SMALL[0], SMALL[1] + 10**6)), "uri_b": "small.off"}, "out of range"),
        ({"mesh_a": mesh_message((SMALL[0] * np.nan, SMALL[1])), "uri_b": "small.off"}, "not finite"),
        ({"mesh_a": mesh_message((SMALL[0], SMALL[1][:0])), "uri_b": "small.off"}, "no faces"),
    ],
)
def test_a_bad_request_is_one_sentence(running, members, words):
    roots, client = running
    whole = {
        name: uri(roots, value) if name.startswith("uri") and value and ":" not in value else value
        for name, value in members.items()
    }
    answer = request(client, **whole)
    assert answer.status == Response.INVALID_INPUT
    assert (answer.lower, answer.upper) == (0.0, np.inf)
    assert words in answer.message
    assert "\n" not in answer.message


@pytest.mark.parametrize("clients", [8, 40])
def test_many_clients_at_once_lose_nothing(running, ros_node, clients):
    """Two run and four wait; the others are told at once that the node is busy."""
    roots, _ = running
    expected = certify_hausdorff(SMALL, OTHER)
    # Every client's reader gets the answers to all of them, so a burst overruns the default depth of ten.
    qos = QoSProfile(depth=2 * clients)
    callers = [ros_node.create_client(CertifyHausdorff, f"{NAME}/certify", qos_profile=qos) for _ in range(clients)]
    assert all(caller.wait_for_service(timeout_sec=PATIENCE) for caller in callers)
    wait_until_known(ros_node, NAME)
    futures = []
    for k, caller in enumerate(callers):
        uris = {"uri_a": uri(roots, "small.off"), "uri_b": uri(roots, "other.off" if k % 2 else "small.off")}
        futures.append(caller.call_async(CertifyHausdorff.Request(**uris)))
    wait_until(lambda: all(future.done() for future in futures), 60)
    answers = [future.result() for future in futures]
    served = [(k, answer) for k, answer in enumerate(answers) if answer.status != Response.BUSY]
    assert len(served) >= 6
    for k, answer in served:
        assert answer.status == Response.CONVERGED
        if k % 2:
            assert answer.lower <= expected.upper
            assert expected.lower <= answer.upper
        else:
            assert answer.lower == 0.0
    for answer in answers:
        assert answer.status != Response.BUSY or "try again" in answer.message
    for caller in callers:
        ros_node.destroy_client(caller)


def test_the_action_reports_and_cancels_while_short_requests_pass(running, ros_node):
    roots, client = running
    action, seen = ActionClient(ros_node, CertifyAction, f"{NAME}/certify_action"), []
    assert action.wait_for_server(timeout_sec=PATIENCE)
    wait_until_known(ros_node, NAME)
    goal = CertifyAction.Goal(uri_a=uri(roots, "outer.off"), uri_b=uri(roots, "inner.off"))
    sent = action.send_goal_async(goal, feedback_callback=lambda message: seen.append(message.feedback))
    wait_until(sent.done)
    handle = sent.result()
    assert handle.accepted
    result = handle.get_result_async()
    wait_until(lambda: len(seen) >= 3 or result.done(), 60)
    assert not result.done(), "the long request ended too early to be cancelled"
    short = request(client, uri_a=uri(roots, "small.off"), uri_b=uri(roots, "small.off"))
    assert short.status == Response.CONVERGED
    assert set_parameters(ros_node, NAME, time_limit=50.0)[0]
    assert not result.done(), "the short request waited for the long one"
    lowers, uppers = [f.lower for f in seen], [f.upper for f in seen]
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)
    wait_until(handle.cancel_goal_async().done)
    wait_until(result.done)
    answer = result.result()
    assert answer.status == GoalStatus.STATUS_CANCELED
    assert answer.result.status == CertifyAction.Result.CANCELLED
    assert lowers[-1] <= answer.result.lower <= answer.result.upper <= uppers[-1]
    in_executor(ros_node.executor, action.destroy)


def test_the_action_finishes_and_refuses(running, ros_node):
    roots, _ = running
    action = ActionClient(ros_node, CertifyAction, f"{NAME}/certify_action")
    assert action.wait_for_server(timeout_sec=PATIENCE)
    wait_until_known(ros_node, NAME)
    for goal, status, result_status in (
        ({"uri_a": uri(roots, "small.off"), "uri_b": uri(roots, "other.off")}, GoalStatus.STATUS_SUCCEEDED, 0),
        ({"uri_a": uri(roots, "missing.off")}, GoalStatus.STATUS_ABORTED, CertifyAction.Result.INVALID_INPUT),
    ):
        sent = action.send_goal_async(CertifyAction.Goal(**goal))
        wait_until(sent.done)
        result = sent.result().get_result_async()
        wait_until(result.done, 60)
        assert (result.result().status, result.result().result.status) == (status, result_status)
    in_executor(ros_node.executor, action.destroy)


def test_a_time_limit_ends_with_a_valid_interval(running):
    roots, client = running
    answer = request(client, time_limit=0.5, uri_a=uri(roots, "outer.off"), uri_b=uri(roots, "inner.off"))
    assert answer.status == Response.TIME_LIMIT
    assert 0 < answer.lower <= answer.upper


def test_a_request_ends_while_its_mesh_is_read(running, action):
    """Reading goes on, and counts as running: of two places to run and four to wait, four are left."""
    roots, client = running
    large = uri(roots, "large.off")
    goals = [begin(action, uri_a=large, uri_b=large) for _ in range(2)]
    time.sleep(0.2)  # reading has begun and takes much longer
    for handle, _ in goals:
        handle.cancel_goal_async()
    wait_until(lambda: all(result.done() for _, result in goals))
    for _, result in goals:
        assert result.result().status == GoalStatus.STATUS_CANCELED
        answer = result.result().result
        assert (answer.status, answer.lower, answer.upper) == (Response.CANCELLED, 0.0, np.inf)
        assert answer.message == "cancelled before anything was known of the distance"
    small = {"uri_a": uri(roots, "small.off"), "uri_b": uri(roots, "small.off")}
    futures = [client.call_async(CertifyHausdorff.Request(**small)) for _ in range(5)]
    wait_until(lambda: all(future.done() for future in futures))
    assert sorted(future.result().status for future in futures) == [Response.CONVERGED] * 4 + [Response.BUSY]
    again = request(client, uri_a=large, uri_b=uri(roots, "small.off"), tolerance=1e-3)
    assert again.status == Response.CONVERGED
    expected = certify_hausdorff(sphere(300), SMALL, tolerance=1e-3)
    assert again.lower <= expected.upper
    assert expected.lower <= again.upper


def test_a_time_limit_holds_while_a_mesh_is_read(running):
    roots, client = running
    # under another suffix, because the mesh is known by now
    (roots / "again.OFF").write_bytes((roots / "large.off").read_bytes() + b"\n")
    answer = request(client, uri_a=uri(roots, "again.OFF"), uri_b=uri(roots, "small.off"), time_limit=0.2)
    assert (answer.status, answer.lower, answer.upper) == (Response.TIME_LIMIT, 0.0, np.inf)
    assert answer.message == "the time limit came before anything was known of the distance"
    later = request(client, uri_a=uri(roots, "again.OFF"), uri_b=uri(roots, "small.off"), tolerance=1e-3)
    assert later.status == Response.CONVERGED


def test_a_cancelled_build_leaves_the_mesh_usable(running, action):
    roots, client = running
    vertices, faces = sphere(600)
    trimesh.Trimesh(vertices, faces, process=False).export(roots / "huge.ply")
    huge = {"uri_a": uri(roots, "small.off"), "uri_b": uri(roots, "huge.ply")}
    seen = []
    sent = action.send_goal_async(CertifyAction.Goal(**huge), feedback_callback=seen.append)
    wait_until(sent.done)
    result = sent.result().get_result_async()
    wait_until(lambda: seen or result.done())  # the first report comes before anything is built
    sent.result().cancel_goal_async()
    wait_until(result.done)
    answer = result.result().result
    assert answer.status == Response.CANCELLED
    assert answer.triangles == 0
    assert 0.0 <= answer.lower <= answer.upper < np.inf
    whole = request(client, **huge, tolerance=1e-3)
    assert whole.status == Response.CONVERGED
    expected = certify_hausdorff(SMALL, (vertices, faces), tolerance=1e-3)
    assert whole.lower <= expected.upper
    assert expected.lower <= whole.upper
    assert answer.lower <= whole.upper <= answer.upper


def test_the_node_stops_while_a_mesh_is_read(running, ros_node, tmp_path):
    roots, _ = running
    parameters = {"allowed_roots": [str(roots)]}
    with (tmp_path / "log").open("w") as log:
        process = NodeProcess("hausdorff_node", namespace="/stopped", parameters=parameters, output=log)
        with process:
            client = ros_node.create_client(CertifyHausdorff, "/stopped/radius_fps_hausdorff/certify")
            assert client.wait_for_service(timeout_sec=PATIENCE)
            wait_until_known(ros_node, "/stopped/radius_fps_hausdorff")
            future = client.call_async(
                CertifyHausdorff.Request(**dict.fromkeys(("uri_a", "uri_b"), uri(roots, "large.off")))
            )
            time.sleep(0.3)
            assert process.stop() == 0
            if future.done():  # the answer may be lost with the node, but not be another one
                assert future.result().status == Response.CANCELLED
            ros_node.destroy_client(client)
    assert "Traceback" not in (tmp_path / "log").read_text()
