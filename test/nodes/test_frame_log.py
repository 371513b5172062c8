"""How long what happened to a frame is warned of."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from radius_fps_ros.budget import Grant
from radius_fps_ros.nodes import diagnostics, frame_log


def test_a_warning_ends_some_time_after_its_count_last_grew(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(frame_log.time, "monotonic", lambda: now[0])
    log = frame_log.FrameLog()

    def at(second, late, refused=0):
        now[0] = 100.0 + second
        return log.recently("late", late), log.recently("refused", refused)

    assert at(0, 0) == (False, False)
    assert at(1, 2) == (True, False)
    assert at(10.5, 2) == (True, False)
    assert at(11.5, 2, refused=1) == (False, True)
    assert at(12, 3, refused=1) == (True, True)
    assert at(21.9, 3, refused=1) == (True, False)
    assert at(23, 3, refused=1) == (False, False)


def test_the_budget_is_not_warned_of_once_no_more_clouds_come(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(frame_log.time, "monotonic", lambda: now[0])
    grant = Grant(1024, True, 1, 120.0, "1024 of 4096 samples, because")
    node = SimpleNamespace(log=frame_log.FrameLog(), grant=grant, dropped=lambda: 0)
    node.log.answer(90.0, missed=False, degraded=True)
    assert diagnostics._frame_warnings(node) == ["over budget: 1024 of 4096 samples, because"]
    now[0] += frame_log.RECENT - 0.1
    assert diagnostics._frame_warnings(node) == ["over budget: 1024 of 4096 samples, because"]
    now[0] += 0.2
    assert diagnostics._frame_warnings(node) == []
