"""Only what belongs to nobody is removed."""

import fcntl
import time

from radius_fps_ros.nodes import shared_memory
from radius_fps_ros.nodes.shared_memory import remove_ownerless_segments

DIGITS = "0123456789abcdef"


def test_only_segments_without_an_owner_are_removed(tmp_path, monkeypatch):
    ownerless = [f"fastdds_{DIGITS}", f"fastrtps_{DIGITS}"]
    others = [f"fastdds_{DIGITS[::-1]}", "fastdds_port7400", f"another_{DIGITS}"]
    for name in [*ownerless, *others]:
        (tmp_path / name).write_text("data")
        (tmp_path / f"{name}_el").touch()
    before = set(tmp_path.iterdir())
    with (tmp_path / f"{others[0]}_el").open() as owned:
        fcntl.flock(owned, fcntl.LOCK_EX)
        assert remove_ownerless_segments(tmp_path) == 0, "their process may be about to lock them"
        assert set(tmp_path.iterdir()) == before
        later = time.time() + 10
        monkeypatch.setattr(shared_memory.time, "time", lambda: later)
        assert remove_ownerless_segments(tmp_path) == 2
        assert before - set(tmp_path.iterdir()) == {tmp_path / f"{n}{end}" for n in ownerless for end in ("", "_el")}


def test_a_machine_without_that_folder(tmp_path):
    assert remove_ownerless_segments(tmp_path / "none") == 0
