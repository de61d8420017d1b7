"""Numbers beyond what index math has room for are refused by name; smaller ones give right results."""

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem, OutOfMemory

X, W, GRAD = np.ones((1, 4, 6), np.float32), np.ones((5, 4, 3), np.float32), np.ones((1, 5, 4), np.float32)
TURNED = np.ones((4, 5, 3), np.float32)
CALLS = {
    "conv": lambda **more: convloom.conv(X, W, **more),
    "conv_transpose": lambda **more: convloom.conv_transpose(X, TURNED, **more),
    "conv_input_grad": lambda **more: convloom.conv_input_grad(X.shape, W, GRAD, **more),
    "conv_weight_grad": lambda **more: convloom.conv_weight_grad(X, W.shape, GRAD, **more),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("parameter", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("value", [2**48 + 1, 2**63, 10**30])
def test_numbers_beyond_the_limit(call, parameter, value):
    """They reached the C compiler: integer literal too large."""
    with pytest.raises(IllegalProblem, match=rf"{parameter} must not exceed 2\*\*48 .*got {value}"):
        CALLS[call](**{parameter: value})


def test_the_effective_kernel_counts():
    with pytest.raises(IllegalProblem, match=r"the effective kernel, .* must not exceed 2\*\*48"):
        convloom.conv(X, W, dilation=2**48)


def test_sizes_of_problems():
    sizes = {"batch": 1, "in_channels": 4, "out_channels": 5, "in_spatial": (6,), "kernel": (3,)}
    for name, value in (("batch", 2**60), ("in_channels", 2**60), ("out_channels", 2**60), ("in_spatial", (2**60,))):
        with pytest.raises(IllegalProblem, match=rf"{name}.* must not exceed 2\*\*48"):
            convloom.conv_problem(**{**sizes, name: value})
    with pytest.raises(IllegalProblem, match=r"the number of elements of src must not exceed 2\*\*48"):
        convloom.conv_problem(**{**sizes, "batch": 2**40, "in_channels": 2**20})
    with pytest.raises(IllegalProblem, match=r"the output's extent in spatial dimension 0 must not exceed"):
        convloom.conv_transpose_problem(**{**sizes, "in_spatial": (2**40,), "stride": 2**30})


@pytest.mark.parametrize("value", [2**31, 2**33 + 1, 2**40, 2**46])
def test_large_windows_with_few_outputs(value):
    """The source has stride 0, so that its offsets say nothing about the positions that the kernel computes."""
    x = np.broadcast_to(np.ones((1, 1, 1), np.float32), (1, 1, 5))
    assert np.array_equal(convloom.conv(x, W[:1, :1], stride=value, padding=value), [[[0, 3, 0]]])
    gaps = convloom.conv(X, W[:1], dilation=value, padding=value)
    assert np.array_equal(gaps, np.full((1, 1, 6), 4))
    assert np.array_equal(
        convloom.conv_weight_grad(X, (1, 4, 3), gaps, dilation=value, padding=value)[0, 0], [0, 24, 0]
    )


def test_results_that_no_memory_holds():
    with pytest.raises(OutOfMemory, match=r"a result must fit the memory; got shape \(1, 5, 8796093022212\) of f32"):
        convloom.conv(X, W, padding=2**42)
