"""Every test that takes ``backend`` runs once on the CPU and once on CUDA (skipped where there is no device)."""

import pytest

from .reference import CPU, Backend


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    if request.param == "cpu":
        return CPU
    import cupy

    return Backend("cuda", cupy.asarray, cupy.asnumpy)
