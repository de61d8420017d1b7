"""Arguments that no operation accepts: the message names rule, value and remedy; all are ValueErrors."""

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem, IllegalType

INT64_MIN = -(2**63)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def expect(words, call):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert isinstance(caught.value, IllegalProblem)


@pytest.mark.parametrize("groups", [INT64_MIN, -1, 0])
def test_groups_must_be_positive(groups):
    """pytorch/pytorch#49523."""
    expect(
        f"groups must be positive; got {groups}",
        lambda: convloom.conv(zeros(1, 1, 1, 1), zeros(1, 1, 1, 1), groups=groups),
    )
    expect(
        f"groups must be positive; got {groups}",
        lambda: convloom.conv_transpose(zeros(1, 1, 1, 1), zeros(1, 1, 1, 1), groups=groups),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_kernel_must_fit(rank):
    """pytorch/pytorch#17247: all ranks, forward and backward entry points."""
    x, w = zeros(2, 16, *(2,) * rank), zeros(32, 16, *(7,) * rank)
    grad = zeros(2, 32, *(1,) * rank)
    words = "effective kernel 7 is larger than the padded input 4"
    expect(words, lambda: convloom.conv(x, w, padding=1))
    expect(words, lambda: convloom.conv_input_grad(x.shape, w, grad, padding=1))
    expect(words, lambda: convloom.conv_weight_grad(x, w.shape, grad, padding=1))


def test_weights_of_other_channels():
    """ROCm/MIOpen#1934."""
    x, w = zeros(1, 256, 8, 8), zeros(256, 64, 1, 1)
    expect("got 64 input channels, expected 256.*groups=4 would match", lambda: convloom.conv(x, w))
    expect(
        "64 input channels, expected 256",
        lambda: convloom.conv_weight_grad(x, w.shape, zeros(1, 256, 8, 8)),
    )


@pytest.mark.parametrize(("channels", "outputs", "groups"), [(10, 12, 4), (12, 10, 4), (2, 2, 4)])
def test_groups_must_divide(channels, outputs, groups):
    """ROCm/MIOpen#180."""
    x, w = zeros(2, channels, 8, 8), zeros(outputs, 2, 3, 3)
    expect(f"not divisible by groups={groups}", lambda: convloom.conv(x, w, padding=1, groups=groups))


def test_gradients_of_other_convolutions():
    """tensorflow/tensorflow#27409."""
    w = zeros(16, 3, 5, 5)
    window = {"stride": 2, "padding": 2}
    expect(
        r"batch of the forward result, 8; got 4",
        lambda: convloom.conv_input_grad((8, 3, 16, 16), w, zeros(4, 16, 8, 8), **window),
    )
    expect(
        "spatial dimension 0 is 9, expected 8",
        lambda: convloom.conv_input_grad((4, 3, 16, 16), w, zeros(4, 16, 9, 8), **window),
    )
    expect(
        "batch of the forward result, 8; got 4",
        lambda: convloom.conv_weight_grad(zeros(8, 3, 16, 16), w.shape, zeros(4, 16, 8, 8), **window),
    )
    expect(
        "channels of the forward result, 16; got 15",
        lambda: convloom.conv_weight_grad(zeros(4, 3, 16, 16), w.shape, zeros(4, 15, 8, 8), **window),
    )


X, W = zeros(2, 4, 5, 6), zeros(6, 4, 3, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stride": 0}, "stride must be at least 1"),
        ({"stride": (1, 2, 3)}, "stride must be one integer or one per spatial dimension"),
        ({"stride": 1.0}, "stride must be an integer"),
        ({"dilation": -1}, "dilation must be at least 1"),
        ({"padding": "full"}, "'same' or 'valid'"),
        ({"padding": "same", "stride": 2}, "needs stride 1"),
        ({"padding": [(1, 2)]}, "one .begin, end. pair per spatial dimension"),
        ({"padding": -4}, "larger than the padded input"),
        ({"groups": 1.5}, "groups must be an integer"),
        ({"bias": zeros(5)}, r"shape \(6,\); got shape \(5,\)"),
        ({"bias": zeros(12)[::2]}, "contiguous"),
        ({"max_workspace": -1}, "bytes >= 0; got -1"),
        ({"beta": 1.0}, "no out; pass out="),
        ({"accumulate": True}, "no out; pass out="),
        ({"accumulate": True, "beta": 2.0, "out": zeros(2, 6, 3, 4)}, "accumulate means beta=1"),
        ({"out": zeros(2, 6, 3, 3)}, r"result's shape \(2, 6, 3, 4\); got \(2, 6, 3, 3\)"),
        ({"device": "cuda:0"}, "device='cuda:0' and x on cpu"),
    ],
)
def test_arguments_of_conv(arguments, words):
    for _ in range(2):  # a refusal is never remembered as a kernel
        expect(words, lambda: convloom.conv(X, W, **arguments))


def test_a_refused_stride_stays_refused_after_a_legal_one():
    assert convloom.conv(X, W, stride=1).shape == (2, 6, 3, 4)
    expect("stride must be an integer", lambda: convloom.conv(X, W, stride=1.0))


def test_output_padding():
    expect(
        "output_padding must be smaller than stride or dilation; got 2",
        lambda: convloom.conv_transpose(X, zeros(4, 6, 3, 3), stride=2, output_padding=2),
    )


def test_transposed_weights():
    expect("w has 6 input channels, expected 4", lambda: convloom.conv_transpose(X, W))


@pytest.mark.parametrize(
    ("x", "w", "words"),
    [
        (zeros(4, 5, 6), W, "as many dimensions"),
        (zeros(5, 6), zeros(3, 3), "1 to 3 spatial ones; got shape"),
        (zeros(1, 1, 1, 1, 1, 1), zeros(1, 1, 1, 1, 1, 1), "1 to 3 spatial ones"),
    ],
)
def test_ranks(x, w, words):
    expect(words, lambda: convloom.conv(x, w))


def test_types_that_do_not_go_together():
    with pytest.raises(IllegalType, match="f64 goes with f64 alone"):
        convloom.conv(X.astype(np.float64), W)
    with pytest.raises(IllegalType, match="two float types or two of s8, u8"):
        convloom.conv(X.astype(np.int8), W)
    with pytest.raises(TypeError, match="array elements must be one of"):
        convloom.conv(X.astype(np.int64), W)


def test_sizes_of_products():
    expect(r"a has k = 3 .*b has k = 4", lambda: convloom.gemm(zeros(2, 3), zeros(4, 5)))
    expect(r"equal or 1; got \(2,\) and \(3,\)", lambda: convloom.gemm(zeros(2, 3, 4), zeros(3, 4, 5)))
    expect("at least one dimension", lambda: convloom.gemm(zeros(), zeros(4)))
    expect(r"result's shape \(2, 5\)", lambda: convloom.gemm(zeros(2, 3), zeros(3, 5), out=zeros(5, 2)))
