"""What the device at hand can run (``from sampling.cuda.devices import ...``)."""

import pytest

from radius_fps_ros.device import cuda_unavailable_reason


def _offers_clusters() -> bool:
    if cuda_unavailable_reason():
        return False
    import cupy

    from radius_fps_ros.sampling.cuda.engine import offers_clusters

    return offers_clusters(cupy.cuda.Device().id)


CLUSTERS = _offers_clusters()
CLUSTER = pytest.param("cluster", marks=pytest.mark.skipif(not CLUSTERS, reason="the device has no clusters"))
