"""The CPU backend gives the same bits with any number of threads, also when two Python threads call at once."""

import threading

import numba
import numpy as np

from radius_fps_ros.sparse import SparseTensor, SubMConv3d

from .reference import random_sites


def test_same_bits_with_one_thread_with_all_and_with_two_callers(monkeypatch):
    shape = (10, 60, 60)
    indices = random_sites(np.random.default_rng(1), shape, 1, 9000)
    features = np.random.default_rng(2).standard_normal((9000, 16)).astype(np.float32)
    layer = SubMConv3d(16, 48, 3)

    def run():
        return layer(SparseTensor(features, indices, shape)).features

    expected = run()
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "NUMBA_NUM_THREADS", 1)
        assert (run() == expected).all()
    results = []
    callers = [threading.Thread(target=lambda: results.extend(run() for _ in range(5))) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 10
    assert all((result == expected).all() for result in results)
