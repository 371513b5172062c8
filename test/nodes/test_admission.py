"""Who may run, who waits, and who is turned away."""

import threading
import time

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from radius_fps_ros.nodes.admission import Admission, Turn


def never():
    return False


def turn_of(admission, given_up=never):
    with admission.admit(given_up) as turn:
        return turn


def test_one_too_many_is_turned_away():
    admission = Admission(1, 0)
    with admission.admit(never) as turn:
        assert turn is Turn.RUN
        assert turn_of(admission) is Turn.FULL
    assert turn_of(admission) is Turn.RUN
    assert turn_of(admission, lambda: True) is Turn.GIVEN_UP
    assert turn_of(admission) is Turn.RUN


def test_one_waits_for_its_turn():
    admission, turns = Admission(1, 1), []
    with admission.admit(never):
        waiting = threading.Thread(target=lambda: turns.append(turn_of(admission)))
        waiting.start()
        time.sleep(0.02)
        assert turns == []
    waiting.join(5.0)
    assert turns == [Turn.RUN]


def test_a_request_given_up_while_it_waits_never_begins():
    """Also where the running one ends, and so makes room, at the very moment at which all are given up."""
    admission, over, turns = Admission(1, 8), threading.Event(), []
    with admission.admit(never):
        waiting = [threading.Thread(target=lambda: turns.append(turn_of(admission, over.is_set))) for _ in range(8)]
        for thread in waiting:
            thread.start()
        time.sleep(0.02)
        over.set()
    for thread in waiting:
        thread.join(5.0)
    assert turns == [Turn.GIVEN_UP] * 8
    assert turn_of(admission) is Turn.RUN
