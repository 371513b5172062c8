"""What goes wrong inside the Hausdorff node: stopped while it compiles, no device or one that fails, no memory."""

import contextlib
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from radius_fps_interfaces.srv import CertifyHausdorff
from scenarios import PATIENCE, TETRAHEDRON, ask, mesh_message, shared_memory_of, wait_until

from radius_fps_ros.nodes.processes import NodeProcess

pytestmark = pytest.mark.ros

NAME = "/failing/radius_fps_hausdorff"
Response = CertifyHausdorff.Response


@contextlib.contextmanager
def started(folder, program, **parameters):
    """Yields (process, path of the log) of a node, its faults injected by ``program``."""
    path = folder / "log"
    program = f"import radius_fps_ros.nodes.hausdorff_node as node\n{program}\nnode.main()"
    with (
        path.open("w") as log,
        NodeProcess(
            "hausdorff_node", namespace="/failing", parameters=parameters, output=log, program=("-c", program)
        ) as process,
    ):
        yield process.process, path


COMPILES = """
import time
def warm_up(backend):
    print("compiling", flush=True)
    while True:
        time.sleep(0.01)
node.warm_up = warm_up
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_while_it_compiles(tmp_path, stop):
    with started(tmp_path, COMPILES) as (process, log):
        wait_until(lambda: "compiling" in log.read_text())
        segments = shared_memory_of(process.pid)
        assert segments
        begin = time.monotonic()
        process.send_signal(stop)
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - begin < 2.0
        assert log.read_text() == "compiling\n"
    assert not any(map(Path.exists, segments)), "shared memory was left behind"


UNPACKS = """
import time
def unpack(*rest):
    print("unpacking", flush=True)
    time.sleep(600)
node.HausdorffNode._on_request = unpack
"""


def test_it_ends_while_a_request_is_unpacked(ros_node, tmp_path):
    """rclpy does that in the executor, and cannot be interrupted."""
    with started(tmp_path, UNPACKS) as (process, log):
        client = ros_node.create_client(CertifyHausdorff, f"{NAME}/certify")
        assert client.wait_for_service(timeout_sec=PATIENCE)
        client.call_async(CertifyHausdorff.Request())
        wait_until(lambda: "unpacking" in log.read_text())
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - begin < 2.0
        assert len(log.read_text().splitlines()) == 2, "that it is ready, and unpacking"
        ros_node.destroy_client(client)


NO_DEVICE = """
from radius_fps_ros.errors import BackendError
def warm_up(backend):
    raise BackendError("backend='cuda' cannot run: injected")
node.warm_up = warm_up
"""


def test_a_backend_that_cannot_run_is_one_sentence(tmp_path):
    with started(tmp_path, NO_DEVICE) as (process, log):
        assert process.wait(PATIENCE) == 1
        assert "backend='cuda' cannot run: injected; the node ends" in log.read_text()
        assert len(log.read_text().splitlines()) == 1


FAILS = """
from radius_fps_ros.errors import BackendError
certify, errors = node.certify_hausdorff, [MemoryError(), RuntimeError("a defect"), None, BackendError("it failed")]
def certify_or_fail(*meshes, **options):
    error = errors.pop(0)
    if error:
        raise error
    return certify(*meshes, **options)
node.certify_hausdorff = certify_or_fail
"""
TRAPS = """
import cupy
certify = node.certify_hausdorff
trap = cupy.RawKernel('extern "C" __global__ void fault() { __trap(); }', "fault")
calls = []
def certify_or_trap(*meshes, **options):
    calls.append(meshes)
    if len(calls) > 1:
        trap((1,), (1,), ())
    return certify(*meshes, **options)
node.certify_hausdorff = certify_or_trap
"""


def certified(ros_node):
    mesh = mesh_message(tuple(map(np.array, TETRAHEDRON)))
    return ask(ros_node, NAME, CertifyHausdorff, "certify", CertifyHausdorff.Request(mesh_a=mesh, mesh_b=mesh))


def test_an_error_costs_its_request_and_a_failed_device_the_process(ros_node, tmp_path):
    with started(tmp_path, FAILS, backend="cpu") as (process, log):
        answer = certified(ros_node)
        assert (answer.status, answer.message) == (Response.FAILED, "out of memory: the host has no more")
        assert (answer.lower, answer.upper) == (0.0, np.inf)
        answer = certified(ros_node)
        assert (answer.status, answer.message) == (Response.FAILED, "internal error: RuntimeError('a defect')")
        assert log.read_text().count("Traceback") == 1
        assert certified(ros_node).status == Response.CONVERGED
        answer = certified(ros_node)
        assert (answer.status, answer.message) == (Response.FAILED, "it failed")
        assert process.wait(PATIENCE) == 1
        assert log.read_text().count("it failed; the node ends") == 1
        assert log.read_text().count("Traceback") == 1


@pytest.mark.gpu
def test_a_kernel_that_traps_ends_the_process(ros_node, tmp_path):
    with started(tmp_path, TRAPS, backend="cuda") as (process, log):
        assert certified(ros_node).status == Response.CONVERGED
        answer = certified(ros_node)
        assert answer.status == Response.FAILED
        assert answer.message.startswith("the CUDA device failed while certifying: ")
        assert process.wait(PATIENCE) == 1
        assert "Traceback" not in log.read_text()


def test_a_root_that_is_not_there_is_warned_of(tmp_path):
    (tmp_path / "maps").mkdir()
    roots = [str(tmp_path / "maps"), str(tmp_path / "typo")]
    with started(tmp_path, "", allowed_roots=roots) as (_, log):
        wait_until(lambda: "allowed_roots names" in log.read_text())
        assert "[WARN]" in log.read_text()
        assert f"no folder now: {roots[1]}\n" in log.read_text()
