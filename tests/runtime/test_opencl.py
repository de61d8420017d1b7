import threading

import numpy as np
import pytest

from convloom.artifact import Language
from convloom.errors import BuildFailed, IllegalType, UnsupportedTarget
from convloom.runtime import disk_cache, opencl
from convloom.runtime.device import device_named

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def device():
    try:
        return device_named("opencl")
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def run(device, built, n):
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    with device.allocate(x.nbytes) as source, device.allocate(y.nbytes) as target:
        source.write(x)
        target.write(y)
        built.launch([source.handle, target.handle], {"n": n}, {"alpha": 2.0, "beta": 0.5})
        target.read(y)
    np.testing.assert_allclose(y, 2 * x + 0.5 + n % 7, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 64, 65, 10_003])
def test_runs(device, axpby, n):
    run(device, device.build(axpby(Language.OPENCL)), n)


def test_the_binary_is_cached(device, axpby, monkeypatch):
    source = axpby(Language.OPENCL, name="cached")
    first = opencl.open_device("opencl", "")
    first.build(source)
    assert [entry.name for entry in disk_cache.current_cache().entries()] == ["cached"]
    monkeypatch.setattr(opencl.OpenClDevice, "compile", None)
    second = opencl.open_device("opencl", "")
    run(second, second.build(source), 100)


def test_threads_launch_apart(device, axpby):
    built, failures = device.build(axpby(Language.OPENCL)), []

    def work(n):
        try:
            for _ in range(5):
                run(device, built, n)
        except BaseException as error:  # noqa: BLE001 (shown by the assertion)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(100 + n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_faults_are_clear(device, axpby):
    with pytest.raises(BuildFailed, match="refused kernel axpby"):
        device.build(axpby(Language.OPENCL, text="nonsense"))
    built = device.build(axpby(Language.OPENCL))
    with pytest.raises(IllegalType, match="pyopencl buffer"):
        built.launch([1, 2], {"n": 1}, {"alpha": 1.0, "beta": 1.0})
    with pytest.raises(UnsupportedTarget, match="no-such-platform"):
        device_named("opencl:no-such-platform")


def test_memory_and_time(device, axpby):
    built = device.build(axpby(Language.OPENCL))
    with device.allocate(400) as x, device.allocate(400) as y:
        x.fill(0)
        y.fill(0)
        seconds = device.time_once(lambda: built.launch([x.handle, y.handle], {"n": 93}, {"alpha": 1.0, "beta": 1.0}))
        result = np.ones(100, np.float32)
        y.read(result)
    assert 0 < seconds < 10
    assert (result[:93] == 93 % 7).all()
    assert not result[93:].any()


def test_named_by_platform(device):
    name = device.handle.platform.name.strip()
    assert device_named(f"opencl:{name.lower()}").label == device.label
