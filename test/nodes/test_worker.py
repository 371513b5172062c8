"""The newest item wins; what is replaced is counted."""

import threading

import pytest

from radius_fps_ros.nodes.worker import NewestItemWorker


def test_the_newest_item_wins_and_drops_are_counted():
    done, first, go_on = [], threading.Event(), threading.Event()

    def work(item):
        done.append(item)
        if item == 0:
            first.set()
            assert go_on.wait(60)

    worker = NewestItemWorker(work, pytest.fail, "test")
    worker.offer(0)
    assert first.wait(60)
    for item in range(1, 6):
        worker.offer(item)
    assert worker.dropped == 4
    go_on.set()
    while len(done) < 2:
        pass
    assert worker.stop(60)
    assert done == [0, 5]
    assert worker.dropped == 4


def test_stop_finishes_the_item_in_work_and_counts_the_waiting_one():
    done, first, go_on = [], threading.Event(), threading.Event()

    def work(item):
        first.set()
        assert go_on.wait(60)
        done.append(item)

    worker = NewestItemWorker(work, pytest.fail, "test")
    worker.offer("in work")
    assert first.wait(60)
    worker.offer("waiting")
    assert not worker.stop(0.05), "it still works"
    go_on.set()
    assert worker.stop(60)
    assert done == ["in work"]
    assert worker.dropped == 1


@pytest.mark.filterwarnings("error")
def test_an_error_that_escapes_is_told(capfd):
    failed = threading.Event()

    def work(item):
        raise MemoryError("no room")

    worker = NewestItemWorker(work, failed.set, "test")
    worker.offer(1)
    assert failed.wait(60)
    assert worker.stop(60)
    assert "MemoryError: no room" in capfd.readouterr().err
