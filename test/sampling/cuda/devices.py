"""What the device at hand can run (``from sampling.cuda.devices import ...``)."""

import pytest

from radius_fps_ros.device import cuda_unavailable_reason


def _why_no_clusters() -> str | None:
    if reason := cuda_unavailable_reason():
        return reason
    import cupy

    from radius_fps_ros.sampling.cuda.engine import offers_clusters

    return None if offers_clusters(cupy.cuda.Device().id) else "the device has no clusters"


_REASON = _why_no_clusters()
CLUSTERS = _REASON is None
CLUSTER = pytest.param("cluster", marks=pytest.mark.skipif(not CLUSTERS, reason=_REASON or ""))
