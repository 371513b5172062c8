"""The geometries and the sets of sites that every convolution and rulebook is held to."""

import itertools

import numpy as np

from radius_fps_ros.sparse import ConvGeometry

from .reference import random_sites

SHAPE = (6, 7, 9)
BATCH = 2

# name: kernel_size, stride, padding, dilation
REGULAR = {
    "k1": (1, 1, 0, 1),
    "k3": (3, 1, 0, 1),
    "k3_p1": (3, 1, 1, 1),
    "k3_p2": (3, 1, 2, 1),
    "k3_s2_p1": (3, 2, 1, 1),
    "k3_s3": (3, 3, 0, 1),
    "k3_s2_p011": (3, 2, (0, 1, 1), 1),
    "k311_s211": ((3, 1, 1), (2, 1, 1), 0, 1),
    "k2_s2": (2, 2, 0, 1),
    "k4_s2_p1": (4, 2, 1, 1),
    "k2_s3_p2": (2, 3, 2, 1),
    "k3_d2_p2": (3, 1, 2, 2),
    "k3_s2_d2_p1": (3, 2, 1, 2),
    "k1_s2": (1, 2, 0, 1),
    "k1_p2": (1, 1, 2, 1),
    "k232_s123_d112": ((2, 3, 2), (1, 2, 3), (0, 2, 1), (1, 1, 2)),
}
SUBMANIFOLD = {
    "subm_k1": (1, 1, None, 1),
    "subm_k3": (3, 1, None, 1),
    "subm_k3_d2": (3, 1, None, 2),
    "subm_k311": ((3, 1, 1), 1, None, 1),
    "subm_k5": (5, 1, None, 1),
    "subm_k2": (2, 1, None, 1),
    "subm_k135_d213": ((1, 3, 5), 1, None, (2, 1, 3)),
}
GEOMETRIES = {name: ConvGeometry.make(*values) for name, values in REGULAR.items()} | {
    name: ConvGeometry.make(*values, subm=True) for name, values in SUBMANIFOLD.items()
}


def _borders() -> np.ndarray:
    """Every site with a coordinate on a border of the shape."""
    cells = itertools.product(range(BATCH), *(range(n) for n in SHAPE))
    return np.array(
        [c for c in cells if any(v in (0, n - 1) for v, n in zip(c[1:], SHAPE, strict=True))], dtype=np.int32
    )


def _full() -> np.ndarray:
    return np.stack(np.unravel_index(np.arange(BATCH * np.prod(SHAPE)), (BATCH, *SHAPE)), axis=1).astype(np.int32)


SITES = {
    "random": lambda: random_sites(np.random.default_rng(1), SHAPE, BATCH, 150),
    "sorted": lambda: np.unique(random_sites(np.random.default_rng(2), SHAPE, BATCH, 90), axis=0),
    "one_sample_of_two": lambda: random_sites(np.random.default_rng(3), SHAPE, 1, 40) + np.int32([1, 0, 0, 0]),
    "borders": _borders,
    "full": _full,
    "one": lambda: np.array([[1, 5, 6, 8]], dtype=np.int32),
    "empty": lambda: np.empty((0, 4), dtype=np.int32),
}
