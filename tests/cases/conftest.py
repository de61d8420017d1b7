"""Devices that a case runs on, and a cache of compiled kernels for this folder alone."""

import pytest

from convloom import settings
from convloom.errors import UnsupportedTarget
from convloom.runtime.device import device_named


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    with settings.scoped(cache_dir=tmp_path_factory.mktemp("cases") / "cache", dump=None, debug=0):
        yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """The name of a device that is here."""
    return _present(request.param)


@pytest.fixture(params=["cpu", *[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("cuda", "opencl")]])
def any_device(request):
    """The same with OpenCL, whose runtime on a processor is slow to build kernels: for few cases."""
    return _present(request.param)


def _present(name):
    try:
        device_named(name)
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    return name
