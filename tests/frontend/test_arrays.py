"""The adapter: NumPy and DLPack arrays as a kernel sees them, and those that it must refuse."""

import numpy as np
import pytest

import convloom
from convloom.dtypes import ALL_DTYPES, BF16, F32
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.arrays import adapt, family_of
from convloom.frontend.overlap import Reach, reach_of
from convloom.problem.layout import dense


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_numpy_arrays(dtype):
    array = np.zeros((4, 6, 8), dtype.numpy)[::-2, :, 1::3]
    seen = adapt("x", array)
    assert seen.address == array.ctypes.data
    assert seen.shape == (2, 6, 3)
    assert seen.strides == (-96, 8, 3)
    assert (seen.dtype, seen.device) == (dtype, "cpu")


def test_broadcast_and_empty_arrays():
    assert adapt("x", np.broadcast_to(np.float32(1), (3, 4))).strides == (0, 0)
    assert adapt("x", np.zeros((3, 0), np.float32)).shape == (3, 0)
    assert adapt("x", np.zeros((), np.float32)).shape == ()


def test_subclasses_of_arrays(tmp_path):
    memory = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 3))
    assert adapt("x", memory).address == memory.ctypes.data
    with pytest.raises(IllegalType, match="mask"):
        adapt("x", np.ma.masked_array(integers(3), [True, False, True]))


def test_misaligned_memory():
    array = np.zeros(41, np.uint8)[1:].view(np.float32)
    with pytest.raises(IllegalProblem, match=r"x must lie at a multiple of its element size, 4 bytes.*1 beyond one"):
        adapt("x", array)


def test_strides_that_split_elements():
    records = np.zeros(5, np.dtype([("x", np.float32), ("flag", np.uint8)]))
    with pytest.raises(IllegalProblem, match="strides of x must be multiples of its element size, 4 bytes"):
        adapt("x", records["x"])


def test_foreign_byte_order():
    foreign = integers(3).astype(integers(3).dtype.newbyteorder("S"))
    with pytest.raises(IllegalType, match="byte order"):
        adapt("x", foreign)


@pytest.mark.parametrize("value", [[1.0, 2.0], 3, "x", None, memoryview(b"abc")])
def test_what_is_no_array(value):
    with pytest.raises(IllegalType, match="x must be a NumPy array"):
        adapt("x", value)


# --- results --------------------------------------------------------------------------------------------------------


def test_results_must_be_writable():
    out = np.zeros((2, 5), np.float32)
    out.flags.writeable = False
    with pytest.raises(IllegalProblem, match="out must be writable"):
        convloom.gemm(integers(2, 3), integers(3, 5), out=out)


def test_results_must_not_overlap_themselves():
    out = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (2, 5), (4, 4))
    with pytest.raises(IllegalProblem, match="must not share memory; out has strides"):
        convloom.gemm(integers(2, 3), integers(3, 5), out=out)


def test_results_must_not_share_memory_with_operands():
    a, b = integers(4, 4), integers(4, 4, seed=1)
    for out, name in ((a, "a"), (b, "b"), (b.T, "b")):
        with pytest.raises(IllegalProblem, match=f"out at 0x[0-9a-f]+ overlaps {name} at"):
            convloom.gemm(a, b, out=out)
    storage = np.zeros(20, np.float32)
    with pytest.raises(IllegalProblem, match="overlaps bias"):
        convloom.gemm(a, b, storage[2:6], out=storage[:16].reshape(4, 4))


def test_results_between_the_elements_of_an_operand():
    """Ranges that overlap without a common element are allowed."""
    storage = np.zeros((4, 8), np.float32)
    a, out = storage[:, ::2], storage[:, 1::2]
    a[...] = integers(4, 4)
    b = integers(4, 4, seed=1)
    convloom.gemm(a, b, out=out)
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize("strides", [(12, 4, 1), (-12, 4, 1), (0, -1, 7), (3, 0, 0)])
def test_reach(strides):
    shape = (2, 3, 4)
    offsets = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)]
    array = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32)[40:], shape, [4 * stride for stride in strides])
    assert reach_of(adapt("x", array)) == Reach(min(offsets) * 4, (max(offsets) + 1) * 4)


# --- DLPack ---------------------------------------------------------------------------------------------------------


class Producer:
    """A foreign array on the host: nothing but the protocol."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.streams = array, versioned, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.streams.append(arguments.get("stream"))
        if not self.versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**arguments)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned):
    array = integers(4, 6)[::2, 1:]
    seen = adapt("x", Producer(array, versioned))
    assert (seen.address, seen.shape, seen.strides) == (array.ctypes.data, array.shape, (12, 1))
    assert (seen.dtype, seen.device) == (F32, "cpu")


def test_operations_on_dlpack_arrays():
    a, b = integers(3, 4), integers(4, 5, seed=1)
    producer = Producer(a)
    result = convloom.gemm(producer, Producer(b, versioned=False))
    assert isinstance(result, np.ndarray)
    assert np.array_equal(result, a @ b)
    assert set(producer.streams) == {None}
    out = np.zeros((3, 5), np.float32)
    assert np.array_equal(convloom.gemm(producer, b, out=Producer(out)).array, a @ b)


def test_read_only_dlpack_results():
    out = np.zeros((3, 5), np.float32)
    out.flags.writeable = False
    with pytest.raises(IllegalProblem, match="read-only"):
        convloom.gemm(integers(3, 4), integers(4, 5), out=Producer(out))


def test_dlpack_memory_that_no_device_here_can_use():
    class Elsewhere(Producer):
        def __dlpack_device__(self):
            return (8, 0)

    with pytest.raises(IllegalProblem, match="device type 8"):
        adapt("x", Elsewhere(integers(3)))


def test_dlpack_types_that_convloom_does_not_have():
    with pytest.raises(IllegalType, match="type code 1, 64 bits"):
        adapt("x", Producer(np.zeros(3, np.uint64)))


def test_dlpack_producers_that_refuse():
    class Refusing(Producer):
        def __dlpack__(self, **arguments):
            raise BufferError("not today")

    with pytest.raises(IllegalProblem, match="not today"):
        adapt("x", Refusing(integers(3)))


class Elsewhere:
    """A tensor of a GPU that is not read: only its description matters."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, **arguments):
        assert arguments["stream"] == -1, "the producer must not be made to wait"
        return self.array.__dlpack__()


def test_arrays_on_different_devices():
    with pytest.raises(IllegalProblem, match="a lies on cpu, b on cuda:1"):
        convloom.gemm(integers(3, 4), Elsewhere(integers(4, 5)))
    kernel = convloom.compile(convloom.Gemm((), 3, 5, 4, *(spec(3, 4), spec(4, 5), spec(3, 5))))
    with pytest.raises(IllegalProblem, match="kernel's device, cpu; b lies on cuda:1"):
        kernel(integers(3, 4), Elsewhere(integers(4, 5)))


def spec(*shape):
    return convloom.TensorSpec(F32, dense(shape))


def test_a_family_is_found_once_per_type():
    assert family_of("x", integers(3)) is family_of("y", integers(2))
    assert BF16.numpy == adapt("x", np.zeros(3, BF16.numpy)).dtype.numpy
