"""Offsets and counts beyond 32 bits.

Tensors of more than 2**31 elements are here as views of few elements that far apart in memory that is mostly not there,
and as plans for a GPU; tests/device runs them in full.
"""

import numpy as np
import pytest

import convloom
from convloom import Direction, conv_problem
from convloom.dtypes import BF16, F16, F32
from convloom.errors import IllegalProblem
from convloom.problem.layout import plain
from convloom.runtime.launch_expression import evaluate
from tests.cases.convolution import ConvCase, Op, integers
from tests.cases.memory import BFLOAT16, at_offsets, dense_strides, sparse
from tests.cases.sources import gpu_plan, gpu_source
from tests.cases.test_launch_limits import assert_launchable

HALVES = ("f16", "f16", "f16")
BFLOATS = ("bf16", "bf16", "bf16")
FAR = 2**31


def image_of(channels, last):
    case = ConvCase("", Op.CONV, 1, channels, 1, (2048, 2048), (3, 3), (2048, 2048), padding=1, types=HALVES, last=last)
    return case.problem()


def sequences(batch, length=4096, kernel=4):
    pads = ((kernel - 1, 0),)
    case = ConvCase("", Op.CONV, batch, 4, 4, (length,), (kernel,), (length,), padding=pads, groups=4, types=BFLOATS)
    return case.problem()


# --- plans: 64-bit index math where a tensor needs it ---------------------------------------------------------------

WIDE = {
    "OVF-01": lambda: image_of(514, False),
    "OVF-01-border": lambda: image_of(512, False),
    "OVF-01-last": lambda: image_of(514, True),
    "OVF-08": lambda: ConvCase(
        "", Op.CONV, 1, 1, 640, (1856, 1856), (3, 3), (1856, 1856), padding=1, types=BFLOATS, last=True
    ).problem(),
    "OVF-13": lambda: sequences(140_000),
    "OVF-13-border": lambda: sequences(131_072),
    "OVF-13-above": lambda: sequences(131_073),
}  # fmt: skip
NARROW = {
    "OVF-01-below": lambda: image_of(511, False),
    "OVF-13-works": lambda: sequences(130_000),
    "OVF-13-long-kernel": lambda: sequences(8, kernel=4096),
    # Pairs of pixel and tap are beyond 2**32, but no kernel counts them: each tensor is small.
    "OVF-05": lambda: ConvCase(
        "", Op.CONV, 1, 512, 16, (4, 240, 416), (3, 3, 3), (4, 240, 416), padding=1, types=HALVES, last=True
    ).problem(),
    "OVF-06": lambda: ConvCase(
        "", Op.CONV, 1, 256, 256, (19, 146, 258), (3, 3, 3), (17, 144, 256), types=HALVES
    ).problem(),
    "OVF-14": lambda: ConvCase(
        "", Op.CONV, 522_240, 3, 1280, (2, 14, 14), (2, 14, 14), (1, 1, 1), (2, 14, 14), types=BFLOATS
    ).problem(),
}  # fmt: skip


@pytest.mark.parametrize("case", WIDE)
@pytest.mark.parametrize("direction", Direction)
def test_a_tensor_beyond_two_to_the_31st_has_wide_indices(case, direction):
    problem = WIDE[case]().replace_direction(direction)
    assert gpu_plan(problem).index_bits == 64
    assert_launchable(gpu_source(problem), {})


@pytest.mark.parametrize("case", NARROW)
def test_a_small_tensor_has_narrow_indices_and_no_condition(case):
    """32 bits are proved to be enough: the kernel asks nothing of a call but the alignment of its pointers."""
    source = gpu_source(NARROW[case]())
    assert gpu_plan(NARROW[case]()).index_bits == 32
    assert all("_address" in item.condition for item in source.requirements)
    assert_launchable(source, {})


@pytest.mark.parametrize("case", ["OVF-01-any"])
def test_any_number_of_channels_has_a_condition(case):
    problem = conv_problem(
        batch=1, in_channels=convloom.dim("c"), out_channels=1, in_spatial=(2048, 2048), kernel=(3, 3), padding=1,
        dtypes=(F16, F16, F16),
    )  # fmt: skip
    plan, source = gpu_plan(problem), gpu_source(problem)

    def accepted(channels):
        sizes = {"c": channels, **{f"{buffer.name}_address": 0 for buffer in source.buffers}}
        return all(evaluate(item.condition, sizes) for item in source.requirements)

    assert plan.index_bits == 32
    assert accepted(1)
    assert accepted(511)
    assert not accepted(512)
    assert not accepted(514)


# --- OVF-01: an input that reaches beyond 2**31 elements ------------------------------------------------------------


def ones_far_apart(channels, strides, offset=0):
    """A 3 x 3 image of ones with so many channels."""
    reach = sum((extent - 1) * abs(step) for extent, step in zip((1, channels, 3, 3), strides, strict=True))
    x = at_offsets(sparse(reach + 1, np.float16), offset, (1, channels, 3, 3), strides)
    x[...] = 1
    return x


PLACES = {
    "OVF-01": (514, (2**32, 2048 * 2048, 2048, 1)),
    "OVF-01-border": (512, (2**31, 2048 * 2048, 2048, 1)),
    "OVF-01-below": (511, (2**31, 2048 * 2048, 2048, 1)),
    "OVF-01-last": (514, (2**32, 1, 2048 * 514 * 1021, 514)),
}


@pytest.mark.parametrize("case", PLACES)
def test_ones_far_apart_are_all_found(case):
    """f32 sums, one rounding: 4626 is no f16, its neighbours are 4624 and 4628."""
    channels, strides = PLACES[case]
    x = ones_far_apart(channels, strides)
    y = convloom.conv(x, np.ones((1, channels, 3, 3), np.float16), padding=1)
    corner, edge, middle = (np.float16(taps * channels) for taps in (4, 6, 9))
    assert y[0, 0].tolist() == [[corner, edge, corner], [edge, middle, edge], [corner, edge, corner]]
    if channels == 514:
        assert (corner, edge, middle) == (2056, 3084, 4624)


@pytest.mark.parametrize("case", ["OVF-01-backwards"])
def test_ones_far_below_are_all_found(case):
    step = 2048 * 2048
    x = ones_far_apart(514, (1, -step, 2048, 1), offset=513 * step)
    assert convloom.conv(x, np.ones((1, 514, 3, 3), np.float16))[0, 0, 0, 0] == 4624


# --- OVF-08: a result that reaches beyond 2**31 elements ------------------------------------------------------------


@pytest.mark.parametrize("case", ["OVF-08"])
def test_a_result_far_apart_is_written_everywhere(case):
    """Every 265th row of 1856, 640 channels last."""
    x, w = integers((1, 1, 8, 8), BFLOAT16), integers((640, 1, 3, 3), BFLOAT16, 3, seed=1)
    row = 1856 * 640
    out = at_offsets(sparse(1856 * row, BFLOAT16), 0, (1, 640, 8, 8), (1856 * row, 1, 265 * row, 640))
    assert 7 * 265 * row + 7 * 640 >= FAR
    convloom.conv(x, w, padding=1, out=out)
    assert np.array_equal(out, convloom.conv(x, w, padding=1))


@pytest.mark.parametrize("case", ["OVF-08-dx"])
def test_gradients_far_apart_are_written_everywhere(case):
    dy, w = integers((2, 4, 5, 5)), integers((4, 3, 3, 3), seed=1)
    out = at_offsets(sparse(FAR + 2**20, np.float32), 0, (2, 3, 7, 7), (FAR, 49, 7, 1))
    convloom.conv_input_grad((2, 3, 7, 7), w, dy, out=out)
    assert np.array_equal(out, convloom.conv_input_grad((2, 3, 7, 7), w, dy))
    x = integers((2, 3, 7, 7), seed=2)
    weights = at_offsets(sparse(FAR + 2**20, np.float32), 0, (4, 3, 3, 3), (FAR // 3 + 1, 9, 3, 1))
    convloom.conv_weight_grad(x, (4, 3, 3, 3), dy, out=weights)
    assert np.array_equal(weights, convloom.conv_weight_grad(x, (4, 3, 3, 3), dy))


# --- OVF-10: arguments near the limits of 32 bits -------------------------------------------------------------------

HUGE = 2_147_483_000
EXTREMES = {
    "OVF-10": ({"dilation": (HUGE, 1), "padding": 1}, r"effective kernel 4294966001 .* padded input 18"),
    "OVF-10-both": ({"dilation": HUGE}, r"effective kernel 4294966001 .* padded input 16"),
    "OVF-10-2**63": ({"dilation": 2**63}, r"dilation must not exceed .* got 9223372036854775808"),
    "OVF-10-2**40": ({"dilation": 2**40}, r"effective kernel 2199023255553 .* padded input 16"),
    "OVF-10-crop": ({"padding": -HUGE}, r"padded input -4294965984"),
    "OVF-10-stride": ({"stride": -HUGE}, r"stride must be at least 1 .* got \(-2147483000, -2147483000\)"),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_huge_arguments_are_an_error_with_exact_numbers(case):
    arguments, message = EXTREMES[case]
    sizes = {"batch": 1, "in_channels": 1, "out_channels": 1, "in_spatial": (16, 16), "kernel": (3, 3)}
    x, w = np.zeros((1, 1, 16, 16), np.float32), np.zeros((1, 1, 3, 3), np.float32)
    with pytest.raises(IllegalProblem, match=message):
        convloom.conv(x, w, **arguments)
    with pytest.raises(IllegalProblem, match=message):
        conv_problem(**sizes, **arguments)


@pytest.mark.parametrize("case", ["OVF-10-large-stride"])
def test_a_huge_stride_leaves_one_output(case):
    x, w = integers((1, 2, 16, 16)), integers((3, 2, 3, 3), seed=1)
    y = convloom.conv(x, w, stride=HUGE, padding=1)
    assert y.shape == (1, 3, 1, 1)
    assert np.array_equal(y, convloom.conv(x, w, padding=1)[:, :, :1, :1])
    y = convloom.conv(x, w[:, :, :1, :1], dilation=HUGE, stride=2)
    assert np.array_equal(y, convloom.conv(x, w[:, :, :1, :1], stride=2))


@pytest.mark.parametrize("case", ["OVF-10-large-padding"])
def test_a_huge_padding_with_a_huge_stride_misses_the_input(case):
    """Of three windows a side, one lies before the image, one inside, one behind it."""
    x, w = np.ones((1, 1, 16, 16), np.float32), np.ones((1, 1, 3, 3), np.float32)
    y = convloom.conv(x, w, stride=2**30, padding=2**30 - 5)
    assert y[0, 0].tolist() == [[0, 0, 0], [0, 9, 0], [0, 0, 0]]


# --- OVF-13: the last items of a long batch -------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [4, 4096], ids=["OVF-13", "OVF-13-long-kernel"])
def test_the_last_items_of_a_long_batch(kernel):
    """Every 16384th item of a batch of 140000; longer kernels on fewer."""
    items, step = (9, 16384 * 16384) if kernel == 4 else (3, FAR - 16384)
    x = at_offsets(sparse((items - 1) * step + 16384, BFLOAT16), 0, (items, 4, 4096), (step, 4096, 1))
    x[...] = integers(x.shape, BFLOAT16, 1)
    w = integers((4, 1, kernel), BFLOAT16, 1, seed=1)
    w[..., 8:] = 0  # sums that bf16 holds
    out = at_offsets(sparse((items - 1) * step + 16384, BFLOAT16), 0, x.shape, (step, 4096, 1))
    convloom.conv(x, w, padding=((kernel - 1, 0),), groups=4, out=out)
    for item in range(items):
        for channel in range(4):
            alone = np.convolve(x[item, channel].astype(int), w[channel, 0, ::-1].astype(int))[:4096]
            assert np.array_equal(out[item, channel], alone)


# --- OVF-14: patches of a video -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["OVF-14"])
def test_windows_as_large_as_the_input_are_a_product(case):
    """As reported but for fewer images (3001 for 522240) and outputs (40 for 1280)."""
    x, w = integers((3001, 3, 2, 14, 14), BFLOAT16, 1), integers((40, 3, 2, 14, 14), BFLOAT16, 1, seed=1)
    y = convloom.conv(x, w, stride=(2, 14, 14))
    assert y.shape == (3001, 40, 1, 1, 1)
    product = x.reshape(3001, -1).astype(np.float32) @ w.reshape(40, -1).astype(np.float32).T
    assert np.array_equal(y.reshape(3001, 40), product.astype(BFLOAT16))
    assert np.array_equal(y.reshape(3001, 40), convloom.gemm(x.reshape(3001, -1), w.reshape(40, -1).T))


# --- strides known only at the call ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["OVF-13-any-strides"])
def test_strides_of_a_call_choose_the_kernel(case):
    """One compiled problem: 32-bit index math where it is enough, else a general kernel."""
    step, shape = convloom.dim("step"), (3, 4, 64)
    problem = conv_problem(
        batch=convloom.dim("n"), in_channels=4, out_channels=4, in_spatial=(64,), kernel=(4,), padding=((3, 0),),
        groups=4, layouts=(plain((step, 64, 1)), None, None), dtypes=(BF16, BF16, BF16),
    )  # fmt: skip
    kernel = convloom.compile(problem)
    w, out = integers((4, 1, 4), BFLOAT16, 1), np.empty(shape, BFLOAT16)
    values = integers(shape, BFLOAT16, seed=1)
    expected = convloom.conv(values, w, padding=((3, 0),), groups=4)
    for number, labels in ((256, ["preferred"]), (FAR, ["preferred", "general"]), (2**20, ["preferred", "general"])):
        x = at_offsets(sparse(2 * number + 256, BFLOAT16), 0, shape, (number, 64, 1))
        x[...] = values
        assert np.array_equal(kernel(x, w, out=out), expected)
        assert [variant.label for variant in kernel.variants] == labels
    assert dense_strides(shape)[0] == 256
    narrow = convloom.compile(problem, plan=kernel.plan)
    x = at_offsets(sparse(2 * FAR + 256, BFLOAT16), 0, shape, (FAR, 64, 1))
    with pytest.raises(IllegalProblem, match="32 bits"):
        narrow(x, w, out=out)


@pytest.mark.parametrize("case", ["OVF-01-f32"])
def test_wide_indices_on_the_processor(case):
    problem = conv_problem(
        batch=1, in_channels=514, out_channels=1, in_spatial=(2048, 2048), kernel=(3, 3), padding=1,
        dtypes=(F32, F32, F32),
    )  # fmt: skip
    assert convloom.compile(problem).plan_record.index_bits == 64
