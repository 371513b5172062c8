"""Work that is waited for, left behind, or given a moment to end."""

import threading
import time

import pytest

from radius_fps_ros.hausdorff import Status
from radius_fps_ros.nodes.patience import Patience, in_background

PATIENCE = 60.0  # s


def test_work_that_ends_gives_its_result_or_what_it_raised():
    patience = Patience(PATIENCE, lambda: False)
    work = in_background(lambda: 6 * 7)
    patience.wait_for(work)
    assert work.result() == 42
    failing = in_background(lambda: 1 // 0)
    patience.wait_for(failing)
    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert patience.ended() is None
    assert 0 < patience.seconds <= PATIENCE


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.TIME_LIMIT])
def test_work_that_does_not_end_is_left_behind(status):
    release = threading.Event()
    cancelled = status is Status.CANCELLED
    patience = Patience(PATIENCE if cancelled else 0.05, lambda: cancelled)
    work = in_background(lambda: release.wait(PATIENCE))
    patience.wait_for(work)
    assert not work.done()
    assert patience.ended() is status
    assert patience.seconds > 0  # a time limit must be above 0
    release.set()
    assert work.result(PATIENCE)


def test_what_has_ended_stays_ended():
    cancelled = [True]
    patience = Patience(0.02, lambda: cancelled[0])
    assert patience.ended() is Status.CANCELLED
    cancelled[0] = False
    time.sleep(0.03)
    assert patience.ended() is Status.CANCELLED


def test_work_that_looks_itself_gets_a_moment_to_end():
    patience = Patience(0.02, lambda: False)
    patience.grace = PATIENCE

    def look():
        while patience.ended() is None:
            time.sleep(0.001)
        time.sleep(0.05)
        return "interval"

    work = in_background(look)
    patience.wait_for(work)
    assert work.done()
    assert work.result() == "interval"
