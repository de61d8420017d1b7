"""The bias gradient beside the weight gradient: calls, checks, notation."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import convloom
from convloom import Direction, Scaling, conv_problem
from convloom.dtypes import BF16, F16, F32, F64, S8, S32
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.dynamic_twin import dynamic_twin
from convloom.frontend.problem_check import check_problem
from convloom.problem.data import DataKind
from convloom.problem.notation import parse_problem, print_problem

SIZES = {"batch": 3, "in_channels": 4, "out_channels": 10, "in_spatial": (9, 7), "kernel": (3, 2), "padding": 1}


def gradient(types=(F32, F32, F32), bias_grad=F32, **changes):
    problem = conv_problem(direction=Direction.BWD_W, dtypes=types, **{**SIZES, **changes})
    return replace(problem, bias_grad=bias_grad)


def arrays(dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(-4, 5, (3, 4, 9, 7)).astype(dtype), random.integers(-4, 5, (3, 10, 9, 8)).astype(dtype)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize("kind", list(DataKind))
@pytest.mark.parametrize(
    ("types", "bias_grad"),
    [
        ((F32, F32, F32), F32), ((F16, F16, F16), F32), ((BF16, BF16, BF16), BF16), ((F64, F64, F64), F64),
        ((S8, S32, S8), S32), ((S8, F32, S8), F32),
    ],
)  # fmt: skip
def test_both_gradients_are_right(types, bias_grad, kind, device):
    outcome = check_problem(convloom.compile(gradient(types, bias_grad), device), kind)
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize("changes", [{"groups": 2, "stride": 2}, {"out_channels": 1, "in_channels": 1}])
def test_any_convolution_and_factors(changes):
    problem = replace(gradient(**changes), scaling=Scaling(alpha=True, beta=True))
    assert check_problem(convloom.compile(problem), DataKind.INT).passed
    twin = dynamic_twin(problem)
    assert check_problem(convloom.compile(twin.dynamic), DataKind.INT, problem=twin.static).passed


def test_no_images_give_zeros():
    problem = gradient(batch=0)
    assert check_problem(convloom.compile(problem), DataKind.REAL).passed


def test_blocked_layouts():
    problem = parse_problem("--dir=BWD_WB --dtag=aBx8b mb2ic3oc20ih5oh5kh3ph1")
    assert check_problem(convloom.compile(problem), DataKind.INT).passed


def test_a_wrong_bias_gradient_is_noticed():
    kernel = convloom.compile(gradient())
    original = kernel.bias_gradient.launch

    def disturbed(family, grad, result, factors, stream):
        original(family, grad._replace(address=grad.address + 4), result, factors, stream)

    kernel.bias_gradient.launch = disturbed
    try:
        outcome = check_problem(kernel, DataKind.INT)
    finally:
        del kernel.bias_gradient.launch
    assert "elements wrong, the first at (0, 0, 0, 0)" in outcome.reason


def test_the_call_returns_both():
    x, grad = arrays()
    weights, bias = convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, bias_grad=True)
    assert np.array_equal(bias, grad.sum((0, 2, 3)))
    assert np.array_equal(weights, convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1))
    found = np.zeros(10)
    same, given = convloom.conv_weight_grad(
        x.astype(float), (10, 4, 3, 2), grad.astype(float), padding=1, bias_grad=found
    )
    assert given is found
    assert np.array_equal(same, weights)
    assert np.array_equal(found, bias)
    kernel = convloom.compile(gradient())
    assert np.array_equal(kernel(x, grad)[1], bias)
    into = np.zeros(10, np.float32)
    assert kernel(x, grad, into)[1] is into
    assert np.array_equal(into, bias)


def test_the_type_is_that_of_the_gradient():
    x, grad = arrays(ml_dtypes.bfloat16)
    assert convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, bias_grad=True)[1].dtype == grad.dtype
    x, grad = arrays(np.int8)
    bias = convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, bias_grad=True)[1]
    assert bias.dtype == np.int32
    assert np.array_equal(bias, grad.sum((0, 2, 3), dtype=np.int32))


def test_accumulation():
    x, grad = arrays()
    weights, bias = np.ones((10, 4, 3, 2), np.float32), np.full(10, 7, np.float32)
    expected = weights + convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1), bias + grad.sum((0, 2, 3))
    convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, out=weights, accumulate=True, bias_grad=bias)
    assert np.array_equal(weights, expected[0])
    assert np.array_equal(bias, expected[1])
    with pytest.raises(IllegalProblem, match="need an old bias gradient"):
        convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, out=weights, accumulate=True, bias_grad=True)


def test_deterministic_sums_are_equal_bit_for_bit():
    random = np.random.default_rng(3)
    x, grad = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 9, 7), (3, 10, 9, 8)))
    kernel = convloom.compile(gradient(), deterministic=True)
    first = kernel(x, grad)
    for found in (kernel(x, grad) for _ in range(3)):
        assert all(np.array_equal(a, b) for a, b in zip(first, found, strict=True))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (np.zeros(9, np.float32), IllegalProblem, r"shape \(10,\); got shape \(9,\)"),
        (np.zeros(20, np.float32)[::2], IllegalProblem, "contiguous"),
        (np.zeros(10, np.int32), IllegalType, "s32"),
    ],
)
def test_arrays_that_do_not_fit(wrong, kind, message):
    x, grad = arrays()
    with pytest.raises(kind, match=message):
        convloom.conv_weight_grad(x, (10, 4, 3, 2), grad, padding=1, bias_grad=wrong)


def test_it_belongs_to_weight_gradients():
    with pytest.raises(IllegalProblem, match="belongs to bwd_w"):
        replace(conv_problem(**SIZES), bias_grad=F32)
    with pytest.raises(IllegalType):
        gradient((F16, F16, F16), S32)


@pytest.mark.parametrize(
    "line", ["--dir=BWD_WB mb2ic3oc4ih5kh3", "--dir=BWD_WB --dt=bf16 --bia-dt=bf16 mb2ic3oc4ih5kh3"]
)
def test_notation(line):
    problem = parse_problem(line)
    assert problem.bias_grad in (F32, BF16)
    assert problem.direction is Direction.BWD_W
    assert problem.bias is None
    assert parse_problem(print_problem(problem)) == problem
