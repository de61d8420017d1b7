"""Tensors without elements: nothing runs where nothing is to be computed, and an empty sum is zero."""

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import convloom
from convloom import conv_problem
from convloom.cli import app
from convloom.errors import IllegalProblem
from tests.cases.convolution import ConvCase, Op, assert_same_bits, integers
from tests.cases.memory import BFLOAT16, Guarded

F32 = np.float32


def empty(*shape):
    return np.empty(shape, F32)


# --- ZERO-01: an empty batch ----------------------------------------------------------------------------------------

EMPTY_BATCHES = {
    "ZERO-01": (lambda: convloom.conv(empty(0, 3, 3, 3), empty(3, 3, 3, 3)), (0, 3, 1, 1)),
    "ZERO-01-1d": (lambda: convloom.conv(empty(0, 3, 7), empty(5, 3, 3), empty(5)), (0, 5, 5)),
    "ZERO-01-3d": (lambda: convloom.conv(empty(0, 4, 3, 3, 3), empty(6, 2, 2, 2, 2), groups=2), (0, 6, 2, 2, 2)),
    "ZERO-01-transposed": (lambda: convloom.conv_transpose(empty(0, 3, 3, 3), empty(3, 5, 3, 3)), (0, 5, 5, 5)),
    "ZERO-02-dx": (
        lambda: convloom.conv_input_grad((0, 4, 5, 5), empty(6, 4, 3, 3), empty(0, 6, 5, 5), padding=1),
        (0, 4, 5, 5),
    ),
}


@pytest.mark.parametrize("case", EMPTY_BATCHES)
def test_an_empty_batch_gives_an_empty_result(case):
    call, shape = EMPTY_BATCHES[case]
    y = call()
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype) == (shape, F32)


@pytest.mark.parametrize("case", [ConvCase("ZERO-01", Op.CONV, 0, 3, 3, (3, 3), (3, 3), (1, 1))], ids=str)
def test_no_kernel_is_made_for_an_empty_batch(case):
    kernel = convloom.compile(case.problem())
    assert kernel.variants == ()
    assert kernel.kernel_source is None


@pytest.mark.parametrize("case", ["ZERO-01"])
def test_a_kernel_for_any_batch_launches_nothing_for_none(case):
    kernel = convloom.compile(
        conv_problem(batch=convloom.dim("n", min=0), in_channels=3, out_channels=3, in_spatial=(3, 3), kernel=(3, 3))
    )
    w = integers((3, 3, 3, 3))
    assert kernel(empty(0, 3, 3, 3), w).shape == (0, 3, 1, 1)
    assert np.array_equal(kernel(np.ones((2, 3, 3, 3), F32), w)[1, :, 0, 0], w.sum(axis=(1, 2, 3)))


# --- ZERO-02: the weight gradient of an empty batch -----------------------------------------------------------------

X, DY, SHAPE = empty(0, 4, 5, 5), empty(0, 6, 5, 5), (6, 4, 3, 3)


@pytest.mark.parametrize("case", ["ZERO-02"])
def test_the_weight_gradient_of_an_empty_batch_is_zero(case):
    out = Guarded(SHAPE, F32)
    assert np.isnan(out.array).all()
    convloom.conv_weight_grad(X, SHAPE, DY, padding=1, out=out.array)
    assert np.all(out.array == 0)
    assert out.surroundings_unchanged
    assert np.all(convloom.conv_weight_grad(X, SHAPE, DY, padding=1) == 0)


@pytest.mark.parametrize("case", ["ZERO-02-accumulate"])
def test_an_empty_batch_adds_nothing_to_a_weight_gradient(case):
    old = integers(SHAPE)
    out = Guarded(SHAPE, F32, values=old)
    convloom.conv_weight_grad(X, SHAPE, DY, padding=1, out=out.array, accumulate=True)
    assert np.array_equal(out.array, old)


# --- ZERO-06: no input channels -------------------------------------------------------------------------------------

ZERO_06 = ConvCase("ZERO-06", Op.CONV, 3, 0, 8, (16, 16), (3, 3), (7, 14), (2, 1))
ZERO_06_BIAS = ConvCase("ZERO-06-bias", Op.CONV, 3, 0, 8, (16, 16), (3, 3), (7, 14), (2, 1), bias="f32")


@pytest.mark.parametrize("case", [ZERO_06, ZERO_06_BIAS], ids=str)
def test_a_sum_over_no_channels_is_the_bias(case):
    bias = integers((8,)) if case.bias else None
    out = Guarded((3, 8, 7, 14), F32)
    for y in (case.call(empty(3, 0, 16, 16), empty(8, 0, 3, 3), bias, out=out.array),
              case.call(empty(3, 0, 16, 16), empty(8, 0, 3, 3), bias)):  # fmt: skip
        assert y.shape == (3, 8, 7, 14)
        assert y.strides == (8 * 7 * 14 * 4, 7 * 14 * 4, 14 * 4, 4)
        assert np.array_equal(y, np.broadcast_to(0 if bias is None else bias[:, None, None], y.shape))
    assert out.surroundings_unchanged


@pytest.mark.parametrize("case", [ZERO_06, ZERO_06_BIAS], ids=str)
def test_every_way_to_ask_agrees_about_no_channels(case):
    """The problem without arrays, a compiled kernel, one for any number of channels, the command line."""
    problem = case.problem()
    assert [extent.value for extent in problem.dst_shape] == [3, 8, 7, 14]
    assert [stride.value for stride in problem.dst.layout.strides] == [784, 98, 14, 1]
    arrays = (empty(3, 0, 16, 16), empty(8, 0, 3, 3), *([integers((8,))] if case.bias else []))
    eager = case.call(*arrays)
    assert_same_bits(convloom.compile(problem)(*arrays), eager)
    anything = conv_problem(
        batch=3, in_channels=convloom.dim("c", min=0), out_channels=8, in_spatial=(16, 16), kernel=(3, 3),
        stride=(2, 1), bias=problem.bias,
    )  # fmt: skip
    assert_same_bits(convloom.compile(anything)(*arrays), eager)


@pytest.mark.parametrize("case", ["ZERO-06"])
def test_the_command_line_knows_problems_without_channels(case):
    """MIOpenDriver's notation can say it; benchdnn's forbids it, which is an error with the reason."""
    line = "conv -n 3 -c 0 -H 16 -W 16 -k 8 -y 3 -x 3 -p 0 -q 0 -u 2 -v 1 -l 1 -j 1 -g 1 -F 1"
    result = CliRunner().invoke(app, ["run", line])
    assert result.exit_code == 0, result.output
    assert "dst 3x8x7x14" in result.output
    assert "passed" in result.output
    refused = CliRunner().invoke(app, ["run", "mb3ic0ih16oc8kh3"])
    assert refused.exit_code == 2
    assert "needs ic of at least 1; got 0" in refused.output


# --- ZERO-10, ZERO-11: products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["ZERO-10"])
def test_an_empty_product_scales_the_old_result(case):
    a, b = empty(2, 0), empty(0, 2)
    out = Guarded((2, 2), F32, values=np.ones((2, 2), F32))
    convloom.gemm(a, b, out=out.array, alpha=0.0, beta=2.0)
    assert np.all(out.array == 2)
    convloom.gemm(a, b, out=out.array, beta=0.5)
    assert np.all(out.array == 1)
    assert out.surroundings_unchanged


@pytest.mark.parametrize("case", ["ZERO-10-beta-0"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_an_empty_product_without_beta_is_zero_whatever_was_there(case, alpha):
    out = Guarded((2, 2), F32)
    assert np.isnan(out.array).all()
    convloom.gemm(empty(2, 0), empty(0, 2), out=out.array, alpha=alpha, beta=0.0)
    assert np.all(out.array == 0)


@pytest.mark.parametrize("case", ["ZERO-11"])
def test_a_batched_product_without_rows(case):
    a, b = np.zeros((5, 0, 7), BFLOAT16), np.zeros((5, 7, 9), BFLOAT16)
    y = convloom.gemm(a, b, np.zeros(9, BFLOAT16))
    assert (y.shape, y.dtype) == ((5, 0, 9), ml_dtypes.bfloat16)
    out = Guarded((5, 0, 9), BFLOAT16)
    assert convloom.gemm(a, b, np.zeros(9, BFLOAT16), out=out.array) is out.array
    assert out.unchanged


# --- ZERO-12: padding that eats the whole result of a transposed convolution ----------------------------------------


@pytest.mark.parametrize("case", ["ZERO-12"])
def test_a_transposed_convolution_without_result_is_an_error(case):
    x, w = np.ones((128, 6, 4, 4), F32), np.ones((6, 4, 1, 1), F32)
    with pytest.raises(IllegalProblem, match=r"spatial dimension 0 computes to 0 from input 4 and padding \(2, 2\)"):
        convloom.conv_transpose(x, w, padding=2)
    with pytest.raises(IllegalProblem, match="spatial dimension 1"):
        convloom.conv_transpose(x, w, padding=(1, 2))


@pytest.mark.parametrize("case", ["ZERO-12-neighbour"])
def test_less_padding_leaves_the_middle(case):
    x, w = integers((128, 6, 4, 4)), integers((6, 4, 1, 1), seed=1)
    y = convloom.conv_transpose(x, w, padding=1)
    assert np.array_equal(y, np.einsum("nchw,ck->nkhw", x[:, :, 1:3, 1:3], w[:, :, 0, 0]))
