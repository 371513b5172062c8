"""What goes wrong inside the node: its device, its memory, its transitions; and its end while a frame is in work."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from radius_fps_interfaces.msg import FrameStats
from rclpy.serialization import serialize_message
from scenarios import (
    PATIENCE,
    ask,
    check_answers,
    exchange,
    next_diagnostics,
    random_points,
    wait_until,
    wait_until_known,
    xyzi_cloud,
)

from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess
from radius_fps_ros.nodes.stream import StreamFrame

pytestmark = pytest.mark.ros

N_SAMPLES = 5


@contextlib.contextmanager
def started(ros_node, folder, namespace, program=None, bring_up=True, **parameters):
    """Yields (process, name, monitor, path of the log) of a node, its faults injected by ``program``."""
    path = folder / "log"
    with path.open("w") as log:
        process = NodeProcess(
            "perception_node",
            namespace=namespace,
            parameters={"n_samples": N_SAMPLES, "features": "off"} | parameters,
            output=log,
            program=program and ("-c", program),
        )
        name = f"{namespace}/radius_fps_perception"
        with process:
            monitor = StreamMonitor(ros_node, name, topic=f"{namespace}/points")
            if bring_up:
                process.bring_up(ros_node, name)
                assert monitor.wait_until_connected()
            yield process, name, monitor, path


def state(ros_node, name):
    return ask(ros_node, name, GetState, "get_state", GetState.Request()).current_state.id


def shared_memory_of(pid):
    """Fast DDS's segments that a process has mapped and that carry its own data; ports are shared between processes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    files = {line.split()[-1] for line in lines if "/dev/shm/fastdds_" in line}
    own = Path("/proc/self/maps").read_text()
    return {file for file in files if "port" not in file and file not in own}


DEVICE_FAILS = """
import os
import radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.errors import BackendError
from radius_fps_ros.pipeline import FramePipeline
node.FAULT_LINGER = 0.1
end, process = node.PerceptionNode._end, FramePipeline.process
node.PerceptionNode._end = lambda self: os.path.exists({seen!r}) and end(self)
def process_or_fail(self, message, settings, **options):
    if message.width == 13:
        raise BackendError("the CUDA device failed while sampling 13 points: injected")
    return process(self, message, settings, **options)
FramePipeline.process = process_or_fail
node.main()
"""


DEVICE_TRAPS = """
import os
import cupy
import radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.cuda_frame import CudaFramePipeline
node.FAULT_LINGER = 0.1
end, process = node.PerceptionNode._end, CudaFramePipeline.process
node.PerceptionNode._end = lambda self: os.path.exists({seen!r}) and end(self)
trap = cupy.RawKernel('extern "C" __global__ void fault() {{ __trap(); }}', "fault")
def process_or_fail(self, upload, settings, **options):
    if getattr(upload, "message", upload).width == 13:
        trap((1,), (1,), ())
    return process(self, upload, settings, **options)
CudaFramePipeline.process = process_or_fail
node.main()
"""


@pytest.mark.parametrize(
    ("program", "backend", "sentence"),
    [
        pytest.param(DEVICE_FAILS, "cpu", "the CUDA device failed while sampling 13 points: injected", id="injected"),
        pytest.param(
            DEVICE_TRAPS,
            "cuda",
            "the CUDA device failed while working on 13 points: cudaErrorLaunchFailure: unspecified launch failure",
            id="a kernel traps",
            marks=pytest.mark.gpu,
        ),
    ],
)
def test_a_device_that_fails_ends_the_node_so_that_it_can_be_started_anew(
    ros_node, tmp_path, program, backend, sentence
):
    seen = tmp_path / "seen"
    program = program.format(seen=str(seen))
    with started(ros_node, tmp_path, "/device", program, backend=backend) as (process, name, monitor, log):
        segments = shared_memory_of(process.process.pid)
        assert segments
        check_answers(exchange(monitor, [xyzi_cloud(random_points(20))]), N_SAMPLES)
        (failed,) = exchange(monitor, [xyzi_cloud(random_points(13))])
        assert failed.stats.status == FrameStats.REFUSED
        assert failed.stats.message == sentence
        wait_until(lambda: state(ros_node, name) == State.PRIMARY_STATE_INACTIVE)
        status, _ = next_diagnostics(ros_node, name)
        assert (status.level, status.message) == (DiagnosticStatus.ERROR, sentence)
        assert not process.change_state(ros_node, name, Transition.TRANSITION_ACTIVATE)
        seen.touch()
        assert process.process.wait(PATIENCE) == 1
        assert f"{sentence}; the node becomes inactive and ends, to be started anew" in log.read_text()
        assert "Traceback" not in log.read_text()
    assert not any(map(os.path.exists, segments)), "shared memory was left behind"
    with started(ros_node, tmp_path, "/device") as (process, _, monitor, _):
        check_answers(exchange(monitor, [xyzi_cloud(random_points(13))]), N_SAMPLES)
        assert process.stop() == 0


MEMORY_RUNS_OUT = """
import cupy
import radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.cuda_frame import CudaFramePipeline
process = CudaFramePipeline.process
def refuse(size):
    raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
def process_without_memory(self, upload, settings, **options):
    if getattr(upload, "message", upload).width != 9_000:
        return process(self, upload, settings, **options)
    cupy.cuda.set_allocator(refuse)
    try:
        return process(self, upload, settings, **options)
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
CudaFramePipeline.process = process_without_memory
node.main()
"""


@pytest.mark.gpu
def test_device_memory_that_runs_out_costs_one_frame(ros_node, tmp_path):
    with started(ros_node, tmp_path, "/memory", MEMORY_RUNS_OUT, backend="cuda") as (process, _, monitor, log):
        first, failed, last = exchange(monitor, [xyzi_cloud(random_points(count)) for count in (20, 9_000, 20)])
        check_answers([first, last], N_SAMPLES)
        assert failed.stats.status == FrameStats.REFUSED
        assert failed.stats.message.startswith("out of memory: the CUDA device failed while working on 9000 points: ")
        assert last.stats.frames_refused == 1
        assert process.stop() == 0
        assert "Traceback" not in log.read_text()


def wait_until_busy(pid):
    """Wait until a process has worked for another half second of processor time."""

    def ticks():
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    begin = ticks()
    wait_until(lambda: ticks() - begin > os.sysconf("SC_CLK_TCK") / 2)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_orderly_end_while_a_frame_is_in_work(ros_node, tmp_path, stop):
    parameters = {"method": "brute", "n_samples": 1_000_000, "threads": 1}
    with started(ros_node, tmp_path, "/long", **parameters) as (process, name, monitor, log):
        pid = process.process.pid
        segments = shared_memory_of(pid)
        endless = xyzi_cloud(random_points(1_000_000))
        monitor.publish(StreamFrame("points", 0.0, serialize_message(endless)))
        wait_until_busy(pid)
        if stop == signal.SIGTERM:
            assert process.change_state(ros_node, name, Transition.TRANSITION_DEACTIVATE)
            for transition in (Transition.TRANSITION_ACTIVATE, Transition.TRANSITION_CLEANUP):
                assert not process.change_state(ros_node, name, transition)
                assert state(ros_node, name) == State.PRIMARY_STATE_INACTIVE
        begin = time.monotonic()
        process.process.send_signal(stop)
        assert process.process.wait(PATIENCE) == 0, "the frame takes hours"
        assert time.monotonic() - begin < 2.0
        text = log.read_text()
        assert "a frame still in work after 1 s was abandoned" in text
        assert "Traceback" not in text
        assert ("still in work; try again" in text) == (stop == signal.SIGTERM)
    assert not any(map(os.path.exists, segments)), "shared memory was left behind"


TRANSITIONS_FAIL = """
import time
import radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.errors import BackendError
from radius_fps_ros.pipeline import FramePipeline
errors = [BackendError("the device failed"), MemoryError("no room"), RuntimeError("a defect")]
warm_up, create_subscription = FramePipeline.warm_up, node.PerceptionNode.create_subscription
configured = activated = 0
def warm_up_or_fail(self):
    global configured
    configured += 1
    if configured <= 3:
        raise errors[configured - 1]
    if configured == 6:
        print("waiting", flush=True)
        time.sleep(600)
    warm_up(self)
def create_or_fail(self, kind, topic, *rest, **options):
    global activated
    if topic == "points":
        activated += 1
        if activated == 1:
            raise RuntimeError("another defect")
    return create_subscription(self, kind, topic, *rest, **options)
FramePipeline.warm_up, node.PerceptionNode.create_subscription = warm_up_or_fail, create_or_fail
node.main()
"""


def test_transitions_that_fail_leave_a_node_that_can_be_configured(ros_node, tmp_path):
    with started(ros_node, tmp_path, "/failing", TRANSITIONS_FAIL, bring_up=False) as (process, name, monitor, log):
        for _ in range(3):
            assert not process.change_state(ros_node, name, Transition.TRANSITION_CONFIGURE)
            assert state(ros_node, name) == State.PRIMARY_STATE_UNCONFIGURED
        text = log.read_text()
        assert "the device failed" in text
        assert "out of memory: no room" in text
        assert text.count("Traceback") == 1
        assert "RuntimeError: a defect" in text
        assert process.change_state(ros_node, name, Transition.TRANSITION_CONFIGURE)
        assert not process.change_state(ros_node, name, Transition.TRANSITION_ACTIVATE)
        assert state(ros_node, name) == State.PRIMARY_STATE_UNCONFIGURED
        assert "RuntimeError: another defect" in log.read_text()
        process.bring_up(ros_node, name)
        assert monitor.wait_until_connected()
        check_answers(exchange(monitor, [xyzi_cloud(random_points(20))]), N_SAMPLES)
        for transition in (Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP):
            assert process.change_state(ros_node, name, transition)
        # Last, the end during a transition that takes long.
        client = ros_node.create_client(ChangeState, f"{name}/change_state")
        assert client.wait_for_service(timeout_sec=PATIENCE)
        wait_until_known(ros_node, name)
        client.call_async(ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE)))
        wait_until(lambda: "waiting" in log.read_text())
        tracebacks = log.read_text().count("Traceback")
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(PATIENCE) == 0
        assert log.read_text().count("Traceback") == tracebacks
        ros_node.destroy_client(client)
