"""The backends that every shared test runs on."""

import pytest


@pytest.fixture(params=["cpu"])
def backend(request):
    return request.param
