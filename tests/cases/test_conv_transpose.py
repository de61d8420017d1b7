"""Transposed convolutions: requested extents, paddings that crop, dilations, gaps between taps."""

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem
from convloom.frontend.device_run import run_on_device
from convloom.frontend.onnx_network import OnnxNode
from convloom.frontend.onnx_nodes import node_call
from convloom.problem.reference import Operands
from tests.cases.convolution import ConvCase, Op, assert_same_bits, call_guarded, check, integers

TRN_04 = ConvCase(
    "TRN-04", Op.TRANSPOSE, 1, 3, 4, (5, 6), (3, 3), (9, 12), 2, ((1, 1), (1, 2)), (1, 2)
)  # fmt: skip
TRN_06 = ConvCase("TRN-06", Op.TRANSPOSE, 1, 16, 16, (9, 12), (3, 3), (6, 6), 1, ((2, 3), (4, 4)), groups=2)
TRN_08 = ConvCase("TRN-08", Op.TRANSPOSE, 1, 3, 4, (5, 5), (3, 3), (12, 12), 2, 1, 2, output_padding=1)
TRN_09 = ConvCase("TRN-09", Op.TRANSPOSE, 13, 11, 6, (17, 41), (2, 13), (46, 169), (3, 4), 2, bias="f32")

TABLE = [
    TRN_04,
    TRN_06,
    ConvCase("TRN-06-4x9", Op.TRANSPOSE, 1, 16, 16, (9, 12), (3, 3), (4, 9), 1, ((3, 4), (2, 3)), groups=2),
    ConvCase("TRN-07", Op.TRANSPOSE, 9, 42, 2, (1, 5), (1, 1), (1, 5), dilation=(4, 3), groups=2),
    TRN_08,
    ConvCase("TRN-08-11", Op.TRANSPOSE, 1, 3, 4, (5, 5), (3, 3), (11, 11), 2, 1, 2),
    TRN_09,
]


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_table(case, device):
    check(case, device)


def through_onnx(x, w, **attributes):
    """The result of an ONNX ConvTranspose node."""
    call = node_call(OnnxNode("node", "ConvTranspose", attributes, ("x", "w"), "y"), (x, w))
    result = run_on_device(convloom.compile(call.problem), call.operands).result
    assert result.shape == call.shape
    return result


SHARES = {"NOTSET": ((1, 1), (2, 1)), "SAME_LOWER": ((1, 1), (2, 1)), "SAME_UPPER": ((1, 1), (1, 2))}


@pytest.mark.parametrize("mode", SHARES, ids=lambda mode: f"TRN-04-{mode}")
def test_pads_of_a_requested_extent_count_the_dilation(mode):
    """ONNX: the total is (2, 3); the larger half lies at the begin, for SAME_UPPER at the end."""
    x, w = integers((1, 3, 5, 6)), integers((3, 4, 3, 3), seed=1)
    y = through_onnx(x, w, strides=[2, 2], dilations=[1, 2], output_shape=[9, 12], auto_pad=mode)
    assert y.shape == (1, 4, 9, 12)
    assert_same_bits(y, convloom.conv_transpose(x, w, stride=2, dilation=(1, 2), padding=SHARES[mode]))


@pytest.mark.parametrize("wanted", [(6, 6), (4, 9)], ids=lambda wanted: f"TRN-06-{wanted[0]}x{wanted[1]}")
def test_a_smaller_result_is_a_part_of_the_whole_one(wanted):
    x, w = integers((1, 16, 9, 12)), integers((16, 8, 3, 3), seed=1)
    whole = convloom.conv_transpose(x, w, groups=2)
    assert whole.shape == (1, 16, 11, 14)
    totals = 11 - wanted[0], 14 - wanted[1]
    begin = [total // 2 for total in totals]
    part = whole[:, :, begin[0] : begin[0] + wanted[0], begin[1] : begin[1] + wanted[1]]
    pads = [(first, total - first) for first, total in zip(begin, totals, strict=True)]
    assert np.array_equal(convloom.conv_transpose(x, w, padding=pads, groups=2), part)
    assert np.array_equal(through_onnx(x, w, group=2, output_shape=list(wanted), auto_pad="SAME_UPPER"), part)


@pytest.mark.parametrize("case", ["TRN-07"])
def test_one_output_channel_for_each_group(case):
    x, w = integers((9, 42, 1, 5)), integers((42, 1, 1, 1), seed=1)
    y = convloom.conv_transpose(x, w, groups=2, dilation=(4, 3))
    products = x * w[:, 0, 0, 0][:, None, None]
    assert y.shape == (9, 2, 1, 5)
    assert np.array_equal(y, np.stack([products[:, :21].sum(axis=1), products[:, 21:].sum(axis=1)], axis=1))


@pytest.mark.parametrize("extra", [0, 1], ids=lambda extra: f"TRN-08-{11 + extra}")
def test_output_padding_adds_to_the_dilated_extent(extra):
    x, w = integers((1, 3, 5, 5)), integers((3, 4, 3, 3), seed=1)
    y = convloom.conv_transpose(x, w, stride=2, padding=1, dilation=2, output_padding=extra)
    assert y.shape == (1, 4, 11 + extra, 11 + extra)
    whole = convloom.conv_transpose(x, w, stride=2, dilation=2)
    assert whole.shape == (1, 4, 13, 13)
    assert np.array_equal(y, whole[:, :, 1 : 12 + extra, 1 : 12 + extra])
    windows = {"strides": [2, 2], "dilations": [2, 2], "output_padding": [extra] * 2}
    for mode in ("SAME_UPPER", "SAME_LOWER", "NOTSET"):  # the total of 2 has no larger half
        assert np.array_equal(through_onnx(x, w, **windows, output_shape=[11 + extra] * 2, auto_pad=mode), y)


@pytest.mark.parametrize("extra", [-1, 2, 3, (0, 2)], ids=lambda extra: f"TRN-08-{extra}")
def test_output_padding_out_of_range_lists_the_range(extra):
    x, w = integers((1, 3, 5, 5)), integers((3, 4, 3, 3), seed=1)
    with pytest.raises(IllegalProblem, match=r"output_padding must be smaller than .* allowed is 0 to 1"):
        convloom.conv_transpose(x, w, stride=2, padding=1, dilation=2, output_padding=extra)


@pytest.mark.parametrize("case", [TRN_09], ids=str)
def test_rows_without_a_tap_are_the_bias(case):
    """A stride of 3 over kernels of 2 rows: row r lies at 3 * i + tap - 2, so every third one is reached by none."""
    random = np.random.default_rng(9)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((13, 11, 17, 41), (11, 6, 2, 13)))
    bias = random.standard_normal(6).astype(np.float32)
    y = call_guarded(case, Operands(x, w, bias))
    free = [row for row in range(46) if (row + 2) % 3 == 2 or (row + 2) // 3 >= 17]
    assert len(free) >= 15
    assert np.all(y[:, :, free] == bias[:, None, None])
    reached = np.delete(y, free, axis=2)
    assert not np.any(reached == bias[:, None, None])
