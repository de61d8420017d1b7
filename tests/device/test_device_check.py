"""The device checks: their reference against NumPy, their comparison against `numerics`, what they notice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convloom
from convloom.dtypes import BF16, F16, F32, S8, S32, U8
from convloom.expr import as_expr
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.problem.conv import Conv, Direction, TensorSpec
from convloom.problem.data import Fill, choose_fill, reachable_outputs
from convloom.problem.layout import dense, plain
from convloom.problem.numerics import round_to
from convloom.problem.reference import Arithmetic, Operands, operand_shapes, reference, result_shape
from convloom.runtime.device import device_named
from tests.device import data_kernels
from tests.device.check_suites import Row, types_along, with_common_fills
from tests.device.device_check import CannotCheck, CheckedProblem, GuardedTensor, launch
from tests.device.gpu import DEVICES
from tests.device.problems import PLAIN, conv_of, problem_of

SHAPES = [
    "mb2g1ic3ih7iw6oc4oh5ow4kh3kw3ph0pw0",
    "mb2g2ic4ih9iw8oc6oh4ow4kh3kw3sh2sw2ph0pw1dh1dw0",
    "mb1g3ic3id5ih6iw7oc3od3oh3ow4kd3kh2kw3sd2sh2sw2pd1ph0pw1",
    "mb3ic5iw11oc2ow6kw3sw2pw2dw1",
    "mb1ic2ih4oc3oh4kh3ph1",
    "mb2ic2ih5oc2oh1kh5ph0",
    "mb1ic4ih3iw16oc4oh3ow2kh2kw2sh1sw9ph1pw0dh0dw5",
]


def read(memory, shape, dtype):
    array = np.empty(math.prod(shape), dtype)
    memory.read(array)
    return array.reshape(shape)


def sums_and_expected(conv, fill, device):
    """What the reference kernel sums up, and what NumPy makes of the same operands."""
    with CheckedProblem(conv, fill, device_named(device)) as made:
        a, b = (read(memory, shape, np.int8) for memory, shape in zip(made.operands, operand_shapes(conv), strict=True))
        sums = read(made.expected, result_shape(conv), np.int64)
    return sums, reference(conv, Operands(a, b), Arithmetic.EXACT).value


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
@pytest.mark.parametrize("text", SHAPES)
def test_the_reference_kernel_agrees_with_numpy(text, direction, device):
    conv = conv_of(text, direction)
    sums, expected = sums_and_expected(conv, Fill(8, 5, 0.75), device)
    assert np.array_equal(sums, expected)
    assert np.count_nonzero(expected) > 0.6 * reachable_outputs(conv)


def drawn_conv(data):
    rank, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))

    def extents(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(rank))

    batch, inputs, outputs = (data.draw(st.integers(1, 3)) for _ in range(3))
    in_spatial, out_spatial, kernel = extents(1, 7), extents(1, 5), extents(1, 4)
    shapes = ((batch, groups * inputs, *in_spatial), (groups * outputs, inputs, *kernel))
    shapes = (*shapes, (batch, groups * outputs, *out_spatial))
    return Conv(
        data.draw(st.sampled_from(Direction)),
        batch, groups * inputs, groups * outputs, groups, in_spatial, out_spatial, kernel,
        extents(1, 3), extents(1, 3), extents(-2, 3),
        *[TensorSpec(F32, dense(shape)) for shape in shapes],
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.data())
def test_the_reference_kernel_agrees_with_numpy_on_drawn_problems(device, data):
    sums, expected = sums_and_expected(drawn_conv(data), Fill(4, 4, 1.0), device)
    assert np.array_equal(sums, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_data_are_even_draws_within_limits(device):
    device = device_named(device)
    with device.allocate(1 << 16) as memory:
        for limit, density in ((1, 1.0), (4, 0.5), (32, 2**-6)):
            keep = int(density * (1 << 24))
            launch(
                device, data_kernels.FILL, (memory.handle,), threads=1 << 16, seed=7, low=-limit, high=limit, keep=keep
            )
            values = read(memory, (1 << 16,), np.int8)
            counts = np.bincount(values.astype(int) + limit, minlength=2 * limit + 1)
            each = (1 << 16) * density / (2 * limit + 1)
            counts[limit] -= (1 << 16) * (1 - density)
            assert len(counts) == 2 * limit + 1
            assert np.abs(counts - each).max() < 6 * math.sqrt((1 << 16) * max(density, each / (1 << 16)))


def terms(dtype, shape, layout=None):
    return Terms("dst", dtype, tuple(as_expr(n) for n in shape), layout or dense(shape))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, S32, S8, U8], ids=str)
def test_the_comparison_rounds_as_numerics_does(dtype, device):
    device = device_named(device)
    random = np.random.default_rng(3)
    small = np.arange(-5000, 5000)
    large = (random.integers(-(2**30), 2**30, 4000) >> random.integers(0, 25, 4000)) * 2 ** random.integers(0, 5, 4000)
    values = np.concatenate([small, large, [65503, 65504, 65519, 65520, 65536, -65520, 2**24 + 1, 2**40 + 2**16]])
    shape = (1, values.size)
    with GuardedTensor(device, terms(dtype, shape)) as tensor, device.allocate(values.nbytes) as expected:
        right = round_to(dtype, values.astype(np.int64).astype(np.float64))
        image = np.full(tensor.memory.nbytes, 0xFF, np.uint8)
        begin = tensor.start - tensor.memory.handle
        image[begin : begin + right.nbytes] = right.view(np.uint8)
        tensor.memory.write(image)
        expected.write(values)
        wrong, nonzero, _ = tensor.compare(expected, values.size)
        assert (wrong, nonzero) == (0, np.count_nonzero(values))
        for place in (0, 17, 4321):  # the next number up is noticed, and named
            faulty = right.copy()
            faulty.view(f"u{dtype.nbytes}")[place] += 1
            image[begin : begin + right.nbytes] = faulty.view(np.uint8)
            tensor.memory.write(image)
            assert tensor.compare(expected, values.size)[::2] == (1, place)
            assert tensor.look(expected, place) == (float(faulty[place]), float(right[place]))


@pytest.mark.parametrize("device", DEVICES)
def test_poison_counts_as_wrong_and_stray_bytes_are_seen(device):
    device = device_named(device)
    with GuardedTensor(device, terms(BF16, (3, 5))) as tensor, device.allocate(15 * 8) as expected:
        expected.fill(0)
        assert tensor.compare(expected, 15) == (15, 0, 0)
        assert tensor.stray_bytes() == 0
        image = np.full(tensor.memory.nbytes, 0xFF, np.uint8)
        for place in (0, tensor.start - tensor.memory.handle - 1, tensor.start - tensor.memory.handle + 30, -1):
            image[place] = 0
            tensor.memory.write(image)
            image[place] = 0xFF
            assert tensor.stray_bytes() == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tags", [("any",) * 3, ("axb",) * 3, ("aBx8b", "any", "axb")], ids="-".join)
@pytest.mark.parametrize("dtypes", ["f32", "tf32", "f16", "bf16:bf16:f32", "s8:s8:s32", "s8:s8:s8", "u8:s8:u8"])
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
def test_kernels_of_any_types_and_layouts_are_checked(direction, dtypes, tags, device):
    dtypes = types_along(dtypes, direction)
    if not dtypes:
        return
    conv = conv_of("mb2ic5ih7iw6oc6oh4ow3kh3kw2sh2sw2ph1pw1", direction, dtypes, tags)
    with CheckedProblem(conv, choose_fill(conv), device_named(device)) as made:
        outcome = made.check(convloom.compile(conv, device))
    assert outcome.reason == ""
    assert outcome.nonzero_share > 0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtypes", ["f32", "f16:f16:f32", "u8:s8:s32", "s8:s8:s8"])
@pytest.mark.parametrize("text", ["-g 3 -m 30 -n 23 -k 17 -transA true -transB false", "-g 1 -m 5 -n 2 -k 3000"])
def test_products_are_checked(text, dtypes, device):
    gemm = problem_of(f"gemm {text}", "fwd", dtypes)
    with CheckedProblem(gemm, choose_fill(gemm), device_named(device)) as made:
        outcome = made.check(convloom.compile(gemm, device))
        a, b = (read(memory, shape, np.int8) for memory, shape in zip(made.operands, operand_shapes(gemm), strict=True))
        sums = read(made.expected, result_shape(gemm), np.int64)
    assert np.array_equal(sums, a.astype(np.int64) @ b.astype(np.int64))
    assert a.min() == (0 if gemm.a.dtype is U8 else -choose_fill(gemm).a)
    assert outcome.reason == ""


def test_rows_share_the_data_that_suit_them_all():
    rows = [Row("", "mb1ic4000ih3oc8oh3kh1ph0", "fwd", dtypes, PLAIN) for dtypes in ("f32", "u8:s8:u8", "f16", "s8")]
    fills = {row.dtypes: fill for row, fill in with_common_fills(rows)}
    assert fills["f32"] == fills["f16"] == fills["s8"] != fills["u8:s8:u8"]
    assert fills["s8"].density == min(choose_fill(row.problem).density for row in rows if "u8" not in row.dtypes)


def test_types_follow_the_operands_of_a_direction():
    assert types_along("s8:s8:s32", "bwd_d") == "s32:s8:s8"
    assert types_along("s8:s8:s32", "bwd_w") == "s8:s32:s8"
    assert [types_along("u8:s8:u8", direction) for direction in ("fwd", "bwd_d", "bwd_w")] == ["u8:s8:u8", "", ""]


@pytest.mark.parametrize("device", DEVICES)
def test_a_wrong_kernel_fails(device):
    """A kernel of another problem with the same shapes: the first window begins elsewhere."""
    conv = conv_of("mb2ic5ih7iw6oc6oh7ow6kh3kw3ph1pw1")
    other = replace(conv, pad_begin=(1, 2))
    with CheckedProblem(conv, choose_fill(conv), device_named(device)) as made:
        outcome = made.check(convloom.compile(other, device))
    assert "elements wrong, the first at (0, 0, 0, 0)" in outcome.reason


@pytest.mark.parametrize("device", DEVICES)
def test_data_that_say_too_little_fail(device):
    conv = conv_of("mb1ic1ih8oc1oh8kh1ph0")
    with CheckedProblem(conv, Fill(1, 1, 0.05), device_named(device)) as made:
        outcome = made.check(convloom.compile(conv, device))
    assert "reachable outputs are non-zero" in outcome.reason


def test_what_cannot_be_checked_is_an_error():
    conv = conv_of("mb1ic1ih8oc1oh8kh1ph0")
    with pytest.raises(CannotCheck, match="plain products"):
        CheckedProblem(replace(conv, bias=F32), Fill(1, 1, 1.0), device_named("cpu"))
    stretched = replace(problem_terms(conv).first, layout=plain((0, 0, 0, 1)))
    with pytest.raises(CannotCheck, match="without overlap"):
        GuardedTensor(device_named("cpu"), stretched)
