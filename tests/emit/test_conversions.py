"""Conversions between number types, bit by bit: ties to even, saturation, NaN; on the cpu and on OpenCL."""

from functools import cache

import numpy as np
import pytest

from convloom.artifact import Access, BufferParam, KernelSource, Language
from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, U8, dtype_named
from convloom.emit.c import print_c
from convloom.emit.opencl import print_opencl
from convloom.errors import UnsupportedTarget
from convloom.ir.parse import parse_kernel
from convloom.lower.serialize_work_items import serialize_work_items
from convloom.runtime.device import device_named

THREADS = 64
PAIRS = [
    (F32, F16),
    (F32, BF16),
    (F32, S8),
    (F32, U8),
    (F32, S32),
    (F16, F32),
    (BF16, F32),
    (F16, BF16),
    (BF16, F16),
    (S8, F32),
    (U8, F32),
    (S32, F32),
    (S8, S32),
    (U8, S32),
    (S32, S8),
    (S32, U8),
    (S32, F16),
    (S32, BF16),
    (F32, F64),
    (F64, F32),
    (S32, F64),
    (F32, E4M3),
    (F32, E5M2),
    (E4M3, F32),
    (E5M2, F32),
    (F16, E5M2),
    (BF16, E4M3),
    (E4M3, F16),
    (S32, E5M2),
]


def kernel_of(source, to, lanes):
    """c[i] = a[i] converted, `lanes` numbers a thread."""
    at = f"bid * {THREADS * lanes} + tid * {lanes}"
    lines = (
        "kernel convert",
        f"  threads {THREADS}",
        "  index 32",
        f"  buffer a {source}",
        f"  result c {to}",
        "  blocks 1",
        f"  write c[{at}] = convert(read(a, {at}, {lanes}), {to})",
    )
    return parse_kernel("\n".join(lines) + "\n")


def source_of(source, to, lanes, language, size):
    made = kernel_of(source, to, lanes)
    text = print_c(serialize_work_items(made)) if language is Language.C else print_opencl(made)
    buffers = (BufferParam("a", source.name, Access.READ), BufferParam("c", to.name, Access.READ_WRITE))
    blocks = size // (THREADS * lanes)
    return KernelSource(
        "convert", language, "native", text, buffers, (), (str(blocks), "1", "1"), (THREADS, 1, 1), 0, ()
    )


def converted(device, source, to, lanes, values):
    """What a kernel on the device makes of the values."""
    pad = -values.size % (THREADS * lanes)
    padded = np.concatenate([values, np.zeros(pad, values.dtype)])
    result = np.zeros(padded.size, to.numpy)
    built = device.build(source_of(source, to, lanes, device.language, padded.size))
    with device.allocate(padded.nbytes) as a, device.allocate(result.nbytes) as c:
        a.write(padded)
        c.write(result)
        built.launch([a.handle, c.handle], {})
        device.synchronize()
        c.read(result)
    return result[: values.size]


@cache
def values_of(dtype):
    """All values of small types; of the others edges, ties, and random bit patterns."""
    if dtype.bits <= 16:
        return np.arange(2**dtype.bits, dtype=np.uint16).astype(f"u{dtype.nbytes}").view(dtype.numpy)
    random = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    if dtype is S32:
        edges = [0, 1, -1, 127, 128, 129, 255, 256, -128, -129, 2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31), 65520]
        small = np.arange(-400, 400)
        return np.concatenate([np.array(edges, np.int32), small.astype(np.int32), random.view(np.int32)])
    return np.concatenate([_float_edges(), random.view(np.float32)]).astype(dtype.numpy)


def _float_edges():
    halves = np.arange(-600, 600) / 2
    powers = 2.0 ** np.arange(-150, 128)
    large = 2.0**22 + np.arange(-8, 8) / 2
    larger = 2.0**23 + np.arange(-8, 8) / 2
    limits = np.array([2.0**31, 2.0**31 - 128, 65504, 65519.99, 65520, 65536, 3.39e38, 3.4e38, np.inf, np.nan, 0.0])
    parts = [halves, powers, large, larger, limits, midpoints(BF16)[::7], midpoints(F16)[::3]]
    parts += [midpoints(E4M3), midpoints(E5M2)]
    both = np.concatenate([np.asarray(part, np.float32) for part in parts])
    near = np.concatenate([both, np.nextafter(both, np.float32(np.inf)), np.nextafter(both, np.float32(-np.inf))])
    return np.concatenate([near, -near])


def midpoints(dtype):
    """Halfway between neighbouring values of a 16-bit or 8-bit type."""
    largest = {F16: 0x7BFF, BF16: 0x7F7F, E4M3: 0x7E, E5M2: 0x7B}[dtype]
    bits = np.arange(0, largest, dtype=f"u{dtype.nbytes}")
    here, there = (pattern.view(dtype.numpy).astype(np.float64) for pattern in (bits, bits + bits.dtype.type(1)))
    return ((here + there) / 2).astype(np.float32)


def expected(values, to):
    """The nearest value, ties to even; integers and 8-bit floats saturate, integers take NaN to 0."""
    with np.errstate(all="ignore"):
        if to.largest is not None:
            return np.clip(values.astype(np.float32), -to.largest, to.largest).astype(to.numpy)
        if to.is_float:
            return values.astype(np.float32).astype(to.numpy) if to.bits < 32 else values.astype(to.numpy)
        limits = np.iinfo(to.numpy)
        wide = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40))
        return np.clip(np.rint(wide), limits.min, limits.max).astype(to.numpy)


def check(device, source, to, lanes):
    values = values_of(source)
    found, wanted = converted(device, source, to, lanes, values), expected(values, to)
    if to.is_float:
        known = ~np.isnan(wanted.astype(np.float64))
        assert np.isnan(found.astype(np.float64)[~known]).all()
        found, wanted, values = found[known], wanted[known], values[known]
    bits = f"u{to.nbytes}"
    wrong = np.flatnonzero(found.view(bits) != wanted.view(bits))
    assert not wrong.size, [(values[at], found[at], wanted[at]) for at in wrong[:5]]


IDS = [f"{source}-{to}" for source, to in PAIRS]


pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # NaN to any type


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("source", "to"), PAIRS, ids=IDS)
def test_on_the_cpu(source, to, lanes):
    check(device_named("cpu"), source, to, lanes)


@pytest.mark.opencl
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("source", "to"), [pair for pair in PAIRS if F64 not in pair], ids=lambda dtype: dtype.name)
def test_on_opencl(opencl, source, to, lanes):
    check(opencl, source, to, lanes)


@pytest.fixture(scope="module")
def opencl():
    try:
        return device_named("opencl")
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def test_the_edges_are_among_the_values():
    values = values_of(F32)
    for value in (0.5, 1.5, -2.5, 4194304.5, 127.5, -128.5, 255.5, 65520.0, 2.0**31, 2.0**-149):
        assert np.float32(value) in values
    assert np.isnan(values).any()
    assert values_of(dtype_named("bf16")).size == 65536
