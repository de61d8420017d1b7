import numpy as np
import pytest

from convloom.errors import UnsupportedTarget
from convloom.runtime import cuda, nvrtc, opencl
from convloom.runtime.device import describe_devices, device_named
from convloom.runtime.timing import Timing, measure


@pytest.mark.parametrize("name", ["", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "opencl:", "CPU"])
def test_unknown_names_are_refused(name):
    with pytest.raises(UnsupportedTarget, match="a device must be cpu, cuda, cuda:N, opencl"):
        device_named(name)


def test_one_name_one_object():
    assert device_named("cpu") is device_named("cpu")


def test_every_kind_is_described():
    descriptions = describe_devices()
    assert {item.name.partition(":")[0] for item in descriptions} >= {"cpu", "cuda", "opencl"}
    for item in descriptions:
        assert item.summary
        assert item.found or item.remedy.startswith(("pip install", "apt-get install"))


def test_missing_packages_name_the_command(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(opencl, "import_module", refuse)
    opencl.load_pyopencl.cache_clear()
    (description,) = opencl.describe_all()
    opencl.load_pyopencl.cache_clear()
    assert not description.found
    assert "pyopencl" in description.remedy
    monkeypatch.setattr(nvrtc, "_SEARCHES", ())
    nvrtc._load.cache_clear()
    assert "found none" in cuda.compile_only()
    nvrtc._load.cache_clear()


def test_timing(axpby):
    device = device_named("cpu")
    built = device.build(axpby())
    with device.allocate(4000) as x, device.allocate(4000) as y:
        x.write(np.zeros(1000, np.float32))
        timing = measure(
            device, lambda: built.launch([x.handle, y.handle], {"n": 1000}, {"alpha": 1.0, "beta": 0.0}), most=7
        )
    assert len(timing.seconds) == 7
    assert 0 < timing.median < 1


def test_timing_stops_at_the_budget():
    timing = measure(device_named("cpu"), lambda: None, budget=0.0, least=4)
    assert len(timing.seconds) == 4


def test_median_and_spread():
    timing = Timing((5.0, 1.0, 2.0, 3.0, 100.0))
    assert timing.median == 3.0
    assert timing.spread == 3.0
    assert Timing((1.0,)).spread == 0.0
