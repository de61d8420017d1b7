"""A kernel of dims refuses what the problem of fixed sizes refuses: the rules of the operation hold at every call."""

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem


def ones(*shape):
    return np.ones(shape, np.float32)


H = convloom.dim("h")


def kernel_over(make=convloom.conv_problem, **changes):
    sizes = {"batch": 2, "in_channels": 3, "out_channels": 4, "in_spatial": (H,), "kernel": (3,)}
    return convloom.compile(make(**{**sizes, **changes}))


def conditions(kernel):
    return [requirement.condition for requirement in kernel.requirements if "_address" not in requirement.condition]


@pytest.mark.parametrize("h", [1, 2])
def test_the_kernel_must_fit(h):
    """A result of shape (2, 4, 0) was returned for h = 2, and h = 1 asked for an array of negative size."""
    forward, weights = kernel_over(), kernel_over(direction=convloom.Direction.BWD_W)
    data = kernel_over(direction=convloom.Direction.BWD_D)
    for kernel in (forward, weights, data):
        assert conditions(kernel)[:2] == ["h >= 1", "h >= 3"]
    words = f"effective kernel 3 .*h >= 3; got h = {h} from dimension 2 of src"
    with pytest.raises(IllegalProblem, match=words):
        forward(ones(2, 3, h), ones(4, 3, 3))
    with pytest.raises(IllegalProblem, match=words):
        weights(ones(2, 3, h), ones(2, 4, 0))
    with pytest.raises(IllegalProblem, match=words):
        data(ones(2, 4, 0), ones(4, 3, 3), out=ones(2, 3, h))
    assert (forward(ones(2, 3, 3), ones(4, 3, 3)) == 9).all()


def test_padding_and_dilation_count():
    kernel = kernel_over(padding=[(1, 0)], dilation=2, stride=2)
    assert conditions(kernel) == ["h >= 1", "h >= 4"]
    with pytest.raises(IllegalProblem, match="effective kernel 5 needs as large a padded input, h \\+ 1"):
        kernel(ones(2, 3, 3), ones(4, 3, 3))
    assert kernel(ones(2, 3, 4), ones(4, 3, 3)).shape == (2, 4, 1)


def test_a_transposed_output_must_not_be_empty():
    kernel = kernel_over(convloom.conv_transpose_problem, padding=4, stride=2)
    assert conditions(kernel) == ["h >= 1", "h >= 4"]
    with pytest.raises(IllegalProblem, match=r"output must not be empty.*h >= 4; got h = 3"):
        kernel(ones(2, 3, 3), ones(3, 4, 3))
    assert kernel(ones(2, 3, 4), ones(3, 4, 3)).shape == (2, 4, 1)


def test_groups_must_divide_the_channels():
    """With 3 channels in 2 groups the third channel was ignored."""
    kernel = kernel_over(in_channels=convloom.dim("c"), in_spatial=(5,), groups=2)
    assert conditions(kernel)[:2] == ["c >= 1", "c % 2 == 0"]
    with pytest.raises(IllegalProblem, match=r"groups must divide the channels.*c % 2 == 0; got c = 3"):
        kernel(ones(2, 3, 5), ones(4, 1, 3))
    assert (kernel(ones(2, 4, 5), ones(4, 2, 3)) == 6).all()
