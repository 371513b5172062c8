"""Results in order, whatever the order in which they are ready; bounded; errors where they belong."""

import threading

import pytest

from radius_fps_ros.offline.overlap import InOrder


def run(items, work, workers, **options):
    return InOrder(work, workers, **options)(iter(items), lambda item: item % 3 != 2, lambda item: 1)


def test_in_order_although_the_first_is_ready_last():
    second_done = threading.Event()

    def work(item):
        if item == 0:
            assert second_done.wait(60)
        if item == 1:
            second_done.set()
        return item * item

    results = list(run(range(20), work, 2))
    assert results == [(k, None if k % 3 == 2 else k * k) for k in range(20)]


@pytest.mark.parametrize(("options", "most"), [({}, 6), ({"most_bytes": 3}, 5)])
def test_what_waits_is_bounded(options, most):
    taken, free = [], threading.Event()

    def items():
        for k in range(60):
            taken.append(k)
            yield 3 * k  # each needs work

    results = run(items(), lambda item: free.wait(60), 2, **options)
    opener = threading.Timer(0.2, free.set)
    opener.start()
    next(results)
    assert len(taken) <= most
    assert len(list(results)) == 59
    opener.join()


def test_an_error_comes_out_at_its_place():
    def work(item):
        if item == 4:
            raise ZeroDivisionError
        return item

    results = run(range(9), work, 3)
    assert [next(results)[0] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_closing_ends_the_threads():
    before = threading.active_count()
    results = run(range(1000), lambda item: item, 4)
    assert next(results) == (0, 0)
    results.close()
    assert threading.active_count() == before
