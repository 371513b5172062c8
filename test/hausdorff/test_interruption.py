"""Ending a certification while its structures are built, and inside a single query that visits all of a mesh."""

import gc
import threading
import time

import numpy as np
import pytest

from radius_fps_ros.hausdorff import Status, certify_hausdorff, prepare_mesh
from radius_fps_ros.hausdorff.cpu import bvh
from radius_fps_ros.hausdorff.cpu.certified import certified_distance
from radius_fps_ros.hausdorff.cpu.queries import nearest, within
from radius_fps_ros.hausdorff.cpu.wavefront import Wavefront
from radius_fps_ros.hausdorff.cpu.workers import Interrupted, Workers

from . import shapes

PATIENCE = 60.0  # s


def waves(cells, height=0.0):
    """A wavy square of ``2 * cells ** 2`` triangles."""
    x, y = np.meshgrid(*[np.linspace(0, 1, cells + 1)] * 2, indexing="ij")
    i, j = (k.ravel() for k in np.meshgrid(*[np.arange(cells)] * 2, indexing="ij"))
    a = i * (cells + 1) + j
    b = a + cells + 1
    vertices = np.stack([x, y, height + 0.1 * np.sin(7 * x) * np.cos(5 * y)], -1).reshape(-1, 3)
    return vertices, np.concatenate([np.stack([a, b, b + 1], 1), np.stack([a, b + 1, a + 1], 1)])


HEIGHT = 1e-3
SMALL = waves(20, HEIGHT)
LARGE = waves(1200)  # takes some 0.7 s of one core to build


def certify(b, **options):
    return certify_hausdorff(SMALL, b, tolerance=1e-4, backend="cpu", **options)


@pytest.fixture(scope="module")
def distance():
    return certify(LARGE)


def stop_at_second_look(calls):
    """A progress callback; the first look is before anything is built."""

    def progress(state):
        calls.append(state)
        return False if len(calls) == 2 else None

    return progress


@pytest.mark.parametrize("options", [{"time_limit": 0.03}, {"progress": None}], ids=["time limit", "cancelled"])
def test_the_build_is_interrupted_and_nothing_of_it_kept(distance, options):
    target, calls = prepare_mesh(LARGE), []
    if "progress" in options:
        options = {"progress": stop_at_second_look(calls)}
    stopped = certify(target, **options)
    assert stopped.status is (Status.CANCELLED if calls else Status.TIME_LIMIT)
    assert target.cpu()._bvh is None, "the build was not interrupted"
    assert stopped.triangles == 0
    assert stopped.lower == 0.0
    assert stopped.upper >= distance.upper
    again = certify(target)
    assert (again.status, again.lower, again.upper) == (Status.CONVERGED, distance.lower, distance.upper)


def test_the_order_of_the_source_is_interrupted_too(distance):
    source = prepare_mesh(LARGE)
    stopped = certify_hausdorff(source, SMALL, time_limit=0.03, backend="cpu")
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.upper >= HEIGHT
    assert stopped.triangles < len(LARGE[1])


def test_who_waits_for_a_build_that_is_cancelled_builds_itself(distance):
    target, calls, answers = prepare_mesh(LARGE), [], {}
    go_on, looks = threading.Event(), stop_at_second_look(calls)

    def hold(state):  # cancels in the build, but not before the other waits for it
        if calls:
            go_on.wait(PATIENCE)
        return looks(state)

    def work(name, **options):
        answers[name] = certify(target, **options)

    threads = [threading.Thread(target=work, args=("cancelled",), kwargs={"progress": hold})]
    threads[0].start()
    deadline = time.monotonic() + PATIENCE
    while not target.cpu()._lock.locked() and time.monotonic() < deadline:
        time.sleep(0.001)
    threads.append(threading.Thread(target=work, args=("waiting",)))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers["cancelled"].status is Status.CANCELLED
    waiting = answers["waiting"]
    assert (waiting.status, waiting.lower, waiting.upper) == (Status.CONVERGED, distance.lower, distance.upper)


def test_a_time_limit_holds_while_another_builds_the_mesh():
    target = prepare_mesh(SMALL)
    with target.cpu()._lock:
        waiting = certify(target, time_limit=0.05)
    assert waiting.status is Status.TIME_LIMIT
    assert waiting.upper > 0.0
    assert certify(target).status is Status.CONVERGED


def test_a_flag_that_is_set_later_ends_the_build():
    mesh = prepare_mesh(LARGE)
    with Workers() as workers:
        timer = threading.Timer(0.02, lambda: workers.stop.fill(1))
        timer.start()
        with pytest.raises(Interrupted):
            bvh.build_bvh(mesh.vertices, mesh.faces, workers)
        timer.join()


def test_a_stopped_query_returns_at_once_and_promises_nothing():
    """From the centre of a sphere all of it is equally near, so that a query visits everything."""
    mesh = prepare_mesh(shapes.sphere(5))
    with Workers() as workers:
        tree = bvh.build_bvh(mesh.vertices, mesh.faces, workers)
    stack, near = np.empty(bvh.STACK, np.int64), np.empty(bvh.STACK)
    centre, corners = (0.0, 0.0, 0.0), np.zeros((1, 9))
    go_on, stop = np.zeros(1, np.int64), np.ones(1, np.int64)
    arrays = tree.nodes, tree.links, tree.rows
    certain = tree.nodes, tree.links, tree.face, tree.vertices, mesh.faces
    distance2, row = nearest(*arrays, *centre, np.inf, -1, 0.0, go_on, stack, near)
    early, early_row = nearest(*arrays, *centre, np.inf, -1, 0.0, stop, stack, near)
    assert early > distance2 > 0.99
    assert early_row != row
    assert within(*arrays, corners, 0, distance2**0.5 * (1 + 1e-12), go_on, stack)[1] == row
    assert within(*arrays, corners, 0, distance2**0.5 * (1 + 1e-12), stop, stack)[1] == -1
    assert certified_distance(*certain, *centre, go_on) == pytest.approx(distance2**0.5, rel=1e-12)
    assert certified_distance(*certain, *centre, stop) == 0.0


def test_a_failing_callback_during_the_build_reaches_the_caller():
    calls = []

    def progress(state):
        calls.append(state)
        if len(calls) == 2:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        certify(prepare_mesh(LARGE), progress=progress)


def test_a_search_gives_its_memory_back_at_once():
    """Not only when the garbage collector comes by, which does not know how large the arrays are."""
    certify(waves(20), progress=lambda state: None)  # compiles, which leaves cycles of its own
    gc.collect()
    gc.disable()
    try:
        assert certify(waves(20), progress=lambda state: None).status is Status.CONVERGED
        assert not [each for each in gc.get_objects() if type(each) is Wavefront]  # isinstance asks dead proxies
    finally:
        gc.enable()
