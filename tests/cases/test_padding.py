"""Padding: on one side only, larger than the kernel, in strides and dilations, at the end of memory."""

import numpy as np
import pytest

import convloom
from convloom.problem.reference import Operands
from tests.cases.convolution import ConvCase, Op, assert_same_bits, call_guarded, check, exact, integers
from tests.cases.guard_pages import run_guarded

HALVES = ("f16", "f16", "f16")

PAD_01 = ConvCase("PAD-01", Op.CONV, 64, 64, 64, (4, 4), (2, 2), (3, 4), (2, 1), ((3, 0), (2, 0)), (1, 2), types=HALVES)
PAD_07 = ConvCase("PAD-07", Op.INPUT_GRAD, 8, 32, 32, (1, 18, 18), (1, 1, 1), (3, 20, 20), padding=1)
PAD_13 = ConvCase("PAD-13", Op.CONV, 1, 32, 64, (416, 416), (3, 3), (208, 208), 2, ((1, 0), (1, 0)))

TABLE = [
    PAD_01,
    ConvCase("PAD-04", Op.CONV, 1, 4, 4, (22, 27), (3, 3), (22, 27), 1, "same", 2),
    PAD_07,
    ConvCase("PAD-07-fwd", Op.CONV, 8, 32, 32, (1, 18, 18), (1, 1, 1), (3, 20, 20), padding=1, bias="f32"),
    ConvCase("PAD-08", Op.CONV, 2, 3, 4, (5, 9), (3, 2), (10, 3), (1, 3), ((4, 3), (0, 1))),
    ConvCase("PAD-08-dw", Op.WEIGHT_GRAD, 2, 3, 4, (5, 9), (3, 2), (10, 3), (1, 3), ((4, 3), (0, 1))),
    ConvCase("PAD-11", Op.INPUT_GRAD, 2, 3, 4, (9, 9), (2, 2), (7, 7), 2, 3),
    PAD_13,
]


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_table(case, device):
    check(case, device)


@pytest.mark.parametrize("case", [PAD_01], ids=str)
def test_ones_count_the_taps_inside(case):
    """Each output of ones is the number of taps inside the input times the channels: no poison came in."""
    x, w = np.ones((64, 64, 4, 4), np.float16), np.ones((64, 64, 2, 2), np.float16)
    rows = [sum(0 <= 2 * out - 3 + tap < 4 for tap in range(2)) for out in range(3)]
    columns = [sum(0 <= out - 2 + 2 * tap < 4 for tap in range(2)) for out in range(4)]
    y = call_guarded(case, Operands(x, w))
    assert np.array_equal(y, np.broadcast_to(64 * np.outer(rows, columns), y.shape))


@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 5)], ids=lambda kernel: f"PAD-04-{kernel[0]}x{kernel[1]}")
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_same_keeps_the_extents_whatever_the_dilation(kernel, dilation):
    x, w = integers((1, 2, 22, 27)), integers((3, 2, *kernel), seed=1)
    totals = [dilation * (extent - 1) for extent in kernel]
    pads = [(total // 2, total - total // 2) for total in totals]
    y = convloom.conv(x, w, padding="same", dilation=dilation)
    assert y.shape == (1, 3, 22, 27)
    assert_same_bits(y, convloom.conv(x, w, padding=pads, dilation=dilation))


@pytest.mark.parametrize("bias", [None, 2.5], ids=["PAD-07-zero", "PAD-07-bias"])
def test_a_border_of_padding_alone_is_the_bias(bias):
    x, w = integers((8, 32, 1, 18, 18)), integers((32, 32, 1, 1, 1), seed=1)
    y = convloom.conv(x, w, None if bias is None else np.full(32, bias, np.float32), padding=1)
    border = np.ones((3, 20, 20), bool)
    border[1, 1:19, 1:19] = False
    assert np.all(y[..., border] == (bias or 0))


@pytest.mark.parametrize("case", [PAD_07], ids=str)
def test_the_gradient_of_a_padded_pointwise_convolution_is_a_crop(case):
    dy, w = integers((8, 32, 3, 20, 20)), integers((32, 32, 1, 1, 1), seed=1)
    dx = call_guarded(case, Operands(dy, w))
    assert np.array_equal(dx, np.einsum("nkdhw,kc->ncdhw", dy[:, :, 1:2, 1:19, 1:19], w[:, :, 0, 0, 0]))


@pytest.mark.parametrize("case", [PAD_13], ids=str)
def test_one_sided_padding_equals_padding_by_hand(case):
    x, w = integers((1, 32, 416, 416)), integers((64, 32, 3, 3), seed=1)
    by_hand = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 0)))
    assert_same_bits(call_guarded(case, Operands(x, w)), convloom.conv(by_hand, w, stride=2))


PAD_14 = ConvCase("PAD-14", Op.CONV, 1, 2, 3, (6, 17), (3, 5), (6, 17), 1, ((1, 1), (0, 4)))


@pytest.mark.parametrize("case", [PAD_14], ids=str)
def test_nothing_is_read_outside_the_input(case):
    """The input ends, then begins, at the edge of the memory that the process may touch."""
    x, w = integers((1, 2, 6, 17)), integers((3, 2, 3, 5), seed=1)
    results = run_guarded(
        "convloom.conv(x, w, padding=((1, 1), (0, 4)), out=out)", x=x, w=w, out=np.zeros((1, 3, 6, 17), np.float32)
    )
    check(case)
    for result in results:
        assert np.array_equal(result, exact(case, x, w))
