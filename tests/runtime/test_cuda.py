import ctypes
import struct
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from convloom.artifact import Language
from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.runtime import cuda, cuda_driver
from convloom.runtime.interface import DeviceFailure
from convloom.runtime.nvrtc import current_nvrtc

LIMITS = {"MAX_GRID_DIM_X": 2**31 - 1, "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535, "MAX_THREADS_PER_BLOCK": 1024,
          "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0,
          "MULTIPROCESSOR_COUNT": 132}  # fmt: skip


class Names:
    """Stands for an enum of the bindings: every member is its own name."""

    def __getattr__(self, name):
        return name


class FakeContext(str):
    """A context's handle, which has a number."""

    def __int__(self):
        return sum(self.encode())


class FakeDriver:
    """Records what the driver is asked for; nothing runs."""

    def __init__(self):
        self.CUdevice_attribute = self.CUfunction_attribute = Names()
        self.contexts = threading.local()
        self.launches, self.loaded, self.attributes = [], [], []
        self.status = 0

    def stack(self):
        if not hasattr(self.contexts, "stack"):
            self.contexts.stack = [FakeContext("somebody's")]
        return self.contexts.stack

    def cuDeviceGetCount(self):
        return 0, 2

    def cuDeviceGet(self, ordinal):
        return 0, ordinal

    def cuDeviceGetName(self, size, device):
        return 0, b"Fake GPU\0\0"

    def cuDeviceGetAttribute(self, attribute, device):
        return 0, LIMITS[attribute.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device):
        return 0, FakeContext(f"context {device}")

    def cuCtxPushCurrent(self, context):
        self.stack().append(context)
        return (0,)

    def cuCtxGetCurrent(self):
        return 0, self.stack()[-1]

    def cuCtxPopCurrent(self):
        return 0, self.stack().pop()

    def cuModuleLoadData(self, cubin):
        self.loaded.append(self.stack()[-1])
        return 0, "module"

    def cuModuleGetFunction(self, module, name):
        return 0, f"function {name.decode()}"

    def cuFuncSetAttribute(self, *arguments):
        self.attributes.append(arguments)
        return (0,)

    def cuGetErrorString(self, status):
        return 0, b"planted"

    def cuLaunchKernel(self, function, *arguments):
        *geometry, shared, stream, parameters, _ = arguments
        pointers = (ctypes.c_void_p * 6).from_address(parameters)
        slots = [ctypes.string_at(pointer, 8) for pointer in pointers]
        self.launches.append(
            SimpleNamespace(
                function=function,
                geometry=geometry,
                shared=shared,
                stream=stream,
                slots=slots,
                context=self.stack()[-1],
            )
        )
        return (self.status,)


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "load_driver", lambda: fake)
    return fake


@pytest.fixture
def nvrtc():
    try:
        return current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def test_a_launch_packs_everything(driver, nvrtc, axpby):
    device = cuda.CudaDevice(1)
    built = device.build(axpby(Language.CUDA))
    built.launch([0x7F0000000010, 32], {"n": 1000}, {"alpha": 2.0, "beta": 0.25}, stream=77)
    (launch,) = driver.launches
    assert launch.function == "function axpby"
    assert launch.geometry == [16, 1, 1, 64, 1, 1]
    assert (launch.shared, launch.stream, launch.context) == (0, 77, "context 1")
    values = [struct.unpack_from(form, slot)[0] for form, slot in zip("QQqifd", launch.slots, strict=True)]
    assert values == [0x7F0000000010, 32, 1000, 1000 % 7, 2.0, 0.25]
    assert driver.stack() == ["somebody's"]
    assert driver.loaded == ["context 1"]


def test_no_stream_is_the_legacy_default_and_an_empty_grid_launches_nothing(driver, nvrtc, axpby):
    built = cuda.CudaDevice(0).build(axpby(Language.CUDA))
    built.launch([0, 0], {"n": 0}, {"alpha": 1.0, "beta": 1.0})
    assert driver.launches == []
    built.launch([0, 0], {"n": 1}, {"alpha": 1.0, "beta": 1.0})
    assert driver.launches[0].stream == 0


@pytest.mark.parametrize("n", [64 * (2**31 - 1), 64 * (2**31 - 1) + 1])
def test_the_grid_limit_is_checked(driver, nvrtc, axpby, n):
    built = cuda.CudaDevice(0).build(axpby(Language.CUDA))
    if n == 64 * (2**31 - 1):
        built.launch([0, 0], {"n": n}, {"alpha": 1.0, "beta": 1.0})
        assert driver.launches[0].geometry[0] == 2**31 - 1
    else:
        with pytest.raises(IllegalProblem, match=r"must fit \(2147483647, 65535, 65535\).*needs \(2147483648, 1, 1\)"):
            built.launch([0, 0], {"n": n}, {"alpha": 1.0, "beta": 1.0})
        assert driver.launches == []


def test_a_driver_error_is_an_exception_and_the_context_is_put_back(driver, nvrtc, axpby):
    built = cuda.CudaDevice(0).build(axpby(Language.CUDA))
    driver.status = 700
    with pytest.raises(DeviceFailure, match=r"launch of axpby .*cuda:0 gave 700 \(planted\)"):
        built.launch([0, 0], {"n": 1}, {"alpha": 1.0, "beta": 1.0})
    assert driver.stack() == ["somebody's"]


def test_dynamic_shared_memory_is_asked_for(driver, nvrtc, axpby):
    source = axpby(Language.CUDA)
    device = cuda.CudaDevice(0)
    device.build(replace(source, shared_bytes=1024))
    assert driver.attributes == []
    device.build(replace(source, shared_bytes=100_000))
    assert driver.attributes[0][2] == 100_000
    with pytest.raises(UnsupportedTarget, match="232448 bytes of shared memory; axpby needs 300000"):
        device.build(replace(source, shared_bytes=300_000))
    with pytest.raises(UnsupportedTarget, match="1024 threads; axpby has 2048"):
        device.build(replace(source, block=(1024, 2, 1)))


@pytest.mark.parametrize(("arch", "fits"), [("sm_90a", True), ("sm_90", True), ("sm_80", False), ("sm_100a", False)])
def test_only_kernels_for_the_device_load(driver, nvrtc, axpby, arch, fits):
    device = cuda.CudaDevice(0)
    assert device.arch == "sm_90a"
    if fits:
        device.build(axpby(Language.CUDA, arch=arch))
    else:
        with pytest.raises(UnsupportedTarget, match=f"made for sm_90a; axpby is for {arch}"):
            device.build(axpby(Language.CUDA, arch=arch))


def test_many_threads_load_once_and_launch_apart(driver, nvrtc, axpby):
    device, source = cuda.CudaDevice(0), axpby(Language.CUDA)
    barrier = threading.Barrier(16)

    def work(number):
        barrier.wait()
        built = device.build(source)
        for step in range(20):
            built.launch([0, 0], {"n": 1000 * number + step + 1}, {"alpha": 1.0, "beta": 1.0}, stream=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(driver.loaded) == 1
    sizes = sorted((launch.stream, struct.unpack("q", launch.slots[2])[0]) for launch in driver.launches)
    assert sizes == [(number, 1000 * number + step + 1) for number in range(16) for step in range(20)]


def test_an_ordinal_that_is_not_there(driver):
    with pytest.raises(UnsupportedTarget, match="one of the 2 here; got cuda:2"):
        cuda.CudaDevice(2)


@pytest.fixture(scope="module")
def gpu():
    try:
        return cuda.CudaDevice(0)
    except UnsupportedTarget as error:
        pytest.skip(str(error))


@pytest.mark.cuda
@pytest.mark.parametrize("n", [0, 1, 64, 1000, 1_000_003])
def test_runs_on_the_gpu(gpu, axpby, n):
    built = gpu.build(axpby(Language.CUDA, arch=gpu.arch))
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    with gpu.allocate(x.nbytes) as source, gpu.allocate(y.nbytes) as target:
        source.write(x)
        target.write(y)
        built.launch([source.handle, target.handle], {"n": n}, {"alpha": 2.0, "beta": 0.5})
        target.read(y)
        assert (
            gpu.time_once(lambda: built.launch([source.handle, target.handle], {"n": n}, {"alpha": 1.0, "beta": 0.0}))
            < 1
        )
        target.fill(0)
        zeros = np.ones(n, np.float32)
        target.read(zeros)
    np.testing.assert_allclose(y, 2 * x + 0.5 + n % 7, rtol=1e-6)
    assert not zeros.any()
    assert gpu.describe().found


@pytest.fixture
def spinning(gpu, axpby):
    """A kernel that waits for a millisecond or two, then adds 1 to every element of y: order shows in the result."""
    text = """
extern "C" __global__ void NAME(const float *x, float *y, long long n, int shift, float alpha, double beta) {
  long long start = clock64();
  while (clock64() - start < 2000000) {}
  long long i = blockIdx.x * 64ll + threadIdx.x;
  if (i < n) y[i] = alpha * y[i] + (float)beta;
}
"""
    return gpu.build(axpby(Language.CUDA, name="spinning", text=text, arch=gpu.arch))


@pytest.fixture
def stream(gpu):
    handle = gpu.context.scoped("cuStreamCreate", gpu.context.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
    yield int(handle)
    gpu.context.scoped("cuStreamDestroy", handle)


@pytest.mark.cuda
def test_work_stays_on_the_caller_s_stream(gpu, spinning, stream):
    with gpu.allocate(4096) as x, gpu.allocate(4096) as y:
        y.fill(0)
        gpu.synchronize()
        for factor in (1.0, 3.0, 5.0):  # ((0 + 1) * 3 + 1) * 5 + 1
            spinning.launch([x.handle, y.handle], {"n": 1024}, {"alpha": factor, "beta": 1.0}, stream=stream)
        with gpu.context.current():
            ours, default = (int(gpu.context.api.cuStreamQuery(queue)[0]) for queue in (stream, 0))
        assert (ours, default) == (600, 0)  # not ready: launches return before the work is done; nothing elsewhere
        gpu.synchronize(stream)
        result = np.zeros(1024, np.float32)
        y.read(result)
    assert (result == 21).all()


@pytest.mark.cuda
def test_a_launch_can_be_captured_in_a_graph(gpu, axpby, stream):
    built, context = gpu.build(axpby(Language.CUDA, arch=gpu.arch, name="captured")), gpu.context
    with gpu.allocate(400) as x, gpu.allocate(400) as y, context.current():
        x.fill(0)
        y.fill(0)
        gpu.synchronize()
        context.call("cuStreamBeginCapture", stream, context.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        built.launch([x.handle, y.handle], {"n": 100}, {"alpha": 0.0, "beta": 1.0}, stream=stream)
        graph = context.call("cuStreamEndCapture", stream)
        executable = context.call("cuGraphInstantiate", graph, 0)
        for _ in range(3):
            context.call("cuGraphLaunch", executable, stream)
        gpu.synchronize(stream)
        result = np.zeros(100, np.float32)
        y.read(result)
    assert (result == 3 * (100 % 7)).all()


@pytest.mark.cuda
def test_the_right_device_though_another_is_current(gpu, axpby):
    if cuda_driver.device_count() < 2:
        pytest.skip("needs two GPUs")
    other = cuda.CudaDevice(1)
    for device, current in ((gpu, other), (other, gpu)):
        built = device.build(axpby(Language.CUDA, arch=device.arch))
        with current.context.current(), device.allocate(400) as x, device.allocate(400) as y:
            x.fill(0)
            y.fill(0)
            built.launch([x.handle, y.handle], {"n": 100}, {"alpha": 1.0, "beta": 1.0})
            device.synchronize()
            result = np.zeros(100, np.float32)
            y.read(result)
            assert (result == 2).all()


@pytest.mark.cuda
def test_spills_and_registers_are_known(gpu, axpby):
    built = gpu.build(axpby(Language.CUDA, arch=gpu.arch))
    attribute = gpu.context.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
    assert built.resources.registers == gpu.context.scoped("cuFuncGetAttribute", attribute, built.function)


@pytest.mark.cuda
def test_launch_overhead_on_the_gpu(gpu, axpby):
    built = gpu.build(axpby(Language.CUDA, arch=gpu.arch))
    with gpu.allocate(400) as x, gpu.allocate(400) as y:
        times = []
        for _ in range(500):
            start = time.perf_counter()
            built.launch([x.handle, y.handle], {"n": 100}, {"alpha": 1.0, "beta": 1.0})
            times.append(time.perf_counter() - start)
        gpu.synchronize()
    middle = sorted(times)[250]
    print(f"launch overhead {middle * 1e6:.1f} us")
    assert middle < 100e-6
