"""Arguments that make no sense: an error that names the argument, its value and what is allowed, and nothing else."""

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem

INT64_MIN = -(2**63)


def zeros(*shape):
    """Zeros of any shape in four bytes."""
    return np.broadcast_to(np.zeros((), np.float32), shape)


def call(operation, x, w, dy, **arguments):
    """One of the four operations, from the shapes of a convolution (a transposed one: x is dy, and dy the result)."""
    if operation == "conv":
        return convloom.conv(zeros(*x), zeros(*w), **arguments)
    if operation == "conv_transpose":
        return convloom.conv_transpose(zeros(*dy), zeros(*w), **arguments)
    if operation == "conv_input_grad":
        return convloom.conv_input_grad(x, zeros(*w), zeros(*dy), **arguments)
    return convloom.conv_weight_grad(zeros(*x), w, zeros(*dy), **arguments)


OPERATIONS = ("conv", "conv_transpose", "conv_input_grad", "conv_weight_grad")
FORWARD_SIZES = ("conv", "conv_input_grad", "conv_weight_grad")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("groups", [INT64_MIN, -1, 0], ids=lambda groups: f"ARG-02[{groups}]")
def test_groups_must_be_positive(operation, groups):
    one = (1, 1, 1, 1)
    with pytest.raises(ValueError, match=f"groups must be positive; got {groups};"):
        call(operation, one, one, one, groups=groups)


@pytest.mark.parametrize("operation", FORWARD_SIZES)
@pytest.mark.parametrize("rank", [1, 2, 3], ids=lambda rank: f"ARG-05-{rank}d")
def test_the_kernel_must_fit_the_padded_input(operation, rank):
    rest = (8,) * (rank - 1)
    x, w, dy = (32, 16, *rest, 2), (32, 16, *(1,) * (rank - 1), 7), (32, 32, *rest, 1)
    padding = (0,) * (rank - 1) + (1,)
    with pytest.raises(
        ValueError, match=f"dimension {rank - 1} the effective kernel 7 is larger than the padded input 4;"
    ):
        call(operation, x, w, dy, padding=padding)


@pytest.mark.parametrize("operation", ["conv", "conv_input_grad", "conv_weight_grad"])
@pytest.mark.parametrize("case", ["ARG-07"])
def test_weights_of_another_number_of_channels(case, operation):
    x, w = (256, 256, 56, 56), (256, 64, 1, 1)
    with pytest.raises(ValueError, match=r"got 64 input channels, expected 256 = 256 / 1; groups=4 would match"):
        call(operation, x, w, x)


@pytest.mark.parametrize("case", ["ARG-07-transposed"])
def test_weights_of_a_transposed_convolution_for_another_input(case):
    with pytest.raises(ValueError, match="w has 64 input channels, expected 256"):
        convloom.conv_transpose(zeros(1, 256, 8, 8), zeros(64, 256, 1, 1))


INDIVISIBLE = {
    "ARG-08": (10, 12, 4, "in_channels=10"),
    "ARG-08-out": (12, 10, 4, "out_channels=10"),
    "ARG-08-more-than-channels": (4, 16, 8, "in_channels=4"),
}


@pytest.mark.parametrize("operation", FORWARD_SIZES)
@pytest.mark.parametrize("case", INDIVISIBLE)
def test_groups_must_divide_both_channel_counts(case, operation):
    c, k, groups, named = INDIVISIBLE[case]
    x, w, dy = (2, c, 8, 8), (k, max(c // groups, 1), 3, 3), (2, k, 8, 8)
    with pytest.raises(ValueError, match=f"{named} is not divisible by groups={groups}"):
        call(operation, x, w, dy, padding=1, groups=groups)


@pytest.mark.parametrize("case", ["ARG-08-transposed"])
def test_groups_must_divide_the_channels_of_a_transposed_convolution(case):
    with pytest.raises(ValueError, match="=10 is not divisible by groups=4"):
        convloom.conv_transpose(zeros(2, 10, 8, 8), zeros(10, 3, 3, 3), groups=4)


@pytest.mark.parametrize("operation", ["conv_input_grad", "conv_weight_grad"])
@pytest.mark.parametrize("case", ["ARG-09"])
def test_the_gradient_must_have_the_batch_of_the_input(case, operation):
    x, w, dy = (8, 3, 16, 16), (16, 3, 5, 5), (4, 16, 8, 8)
    with pytest.raises(ValueError, match=r"batch of the forward result, 8; got 4 \(shape \(4, 16, 8, 8\)\)"):
        call(operation, x, w, dy, stride=2, padding=2)


@pytest.mark.parametrize("operation", ["conv_input_grad", "conv_weight_grad"])
@pytest.mark.parametrize("outputs", [(8, 9), (7, 8), (8, 1)], ids=lambda outputs: f"ARG-09-{outputs[0]}x{outputs[1]}")
def test_the_gradient_must_have_the_extents_of_the_result(operation, outputs):
    dim = 0 if outputs[0] != 8 else 1
    with pytest.raises(ValueError, match=f"spatial dimension {dim} is {outputs[dim]}, expected 8"):
        call(operation, (8, 3, 16, 16), (16, 3, 5, 5), (8, 16, *outputs), stride=2, padding=2)


@pytest.mark.parametrize("operation", ["conv_input_grad", "conv_weight_grad"])
@pytest.mark.parametrize("case", ["ARG-09-channels"])
def test_the_gradient_must_have_the_channels_of_the_result(case, operation):
    with pytest.raises(IllegalProblem, match="channels of the forward result, 16; got 15"):
        call(operation, (8, 3, 16, 16), (16, 3, 5, 5), (8, 15, 8, 8), stride=2, padding=2)
