"""Arrays of pyopencl in the context of convloom's device; runs where a platform is installed."""

import numpy as np
import pytest

array = pytest.importorskip("pyopencl.array")
import pyopencl as cl

import convloom
from convloom import TensorSpec, dim
from convloom.dtypes import F32
from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.problem.layout import dense
from convloom.runtime.device import device_named

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def device():
    try:
        return device_named("opencl")
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def test_operations(device):
    x, w = integers(2, 4, 7, 6), integers(16, 4, 3, 2, seed=1)
    out = array.zeros(device.queue, (2, 16, 5, 5), np.float32)
    on_device = [array.to_device(device.queue, tensor) for tensor in (x, w)]
    assert convloom.conv(*on_device, out=out, device="opencl") is out
    assert np.array_equal(out.get(), convloom.conv(x, w))


def test_dynamic_kernels(device):
    m, n, k = dim("m"), dim("n"), dim("k")
    specs = (TensorSpec(F32, dense(shape)) for shape in ((m, k), (k, n), (m, n)))
    kernel = convloom.compile(convloom.Gemm((), m, n, k, *specs), "opencl")
    for sizes in ((3, 5, 7), (17, 1, 33), (64, 64, 64)):
        a, b = integers(sizes[0], sizes[2]), integers(sizes[2], sizes[1], seed=1)
        out = array.zeros(device.queue, (sizes[0], sizes[1]), np.float32)
        kernel(array.to_device(device.queue, a), array.to_device(device.queue, b), out=out)
        assert np.array_equal(out.get(), a @ b)


def test_results_are_the_caller_s(device):
    tensor = array.zeros(device.queue, (8, 8), np.float32)
    with pytest.raises(IllegalProblem, match="pass out="):
        convloom.gemm(tensor, tensor)


def test_offsets_into_buffers(device):
    storage = array.to_device(device.queue, integers(4, 1024))
    half, identity = storage[1:3, :16], array.to_device(device.queue, np.eye(16, dtype=np.float32))
    out = array.zeros(device.queue, (2, 16), np.float32)
    convloom.gemm(half, identity, out=out)
    assert np.array_equal(out.get(), integers(4, 1024)[1:3, :16])
    with pytest.raises(IllegalProblem, match="must begin at a multiple of"):
        convloom.gemm(storage[1:3, 1:17], identity, out=out)


def test_arrays_of_another_context_or_none(device):
    other = cl.CommandQueue(cl.Context([device.handle]))
    foreign = array.zeros(other, (8, 8), np.float32)
    out = array.zeros(device.queue, (8, 8), np.float32)
    kernel = convloom.compile(convloom.Gemm((), 8, 8, 8, *[TensorSpec(F32, dense((8, 8)))] * 3), "opencl")
    with pytest.raises(IllegalProblem, match="a lives in another OpenCL context"):
        kernel(foreign, foreign, out=out)
    with pytest.raises(IllegalProblem, match="another OpenCL context"):
        convloom.gemm(foreign, foreign, out=out)
    with pytest.raises(IllegalProblem, match="kernel's device, opencl; a lies on cpu"):
        kernel(integers(8, 8), integers(8, 8), out=out)
