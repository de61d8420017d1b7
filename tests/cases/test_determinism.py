"""Cases DET: what is asked to be deterministic is so, whatever the search finds."""

import numpy as np
import pytest

import convloom
from convloom.compiler import prepare
from convloom.plan.choose import ranked_plans
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from tests.cases.convolution import ConvCase, Op, check
from tests.cases.sources import GPU

SHAPE = {"n": 4, "c": 16, "k": 16, "input": (33, 35), "kernel": (3, 3), "output": (33, 35), "padding": 2, "dilation": 2}
HALF = ("f16", "f16", "f16")


@pytest.mark.parametrize("op", [Op.INPUT_GRAD, Op.WEIGHT_GRAD])
def test_det_02_every_candidate_is_deterministic(op):
    """DET-02: of all that is ranked none adds in an order of chance; without the wish some of the same may."""
    contraction = prepare(ConvCase("det-02", op, types=HALF, **SHAPE).problem()).contraction
    plans = list(ranked_plans(contraction, GPU, 64, policy=Policy(deterministic=True)))
    assert plans
    assert all(plan.split.how is not Reduction.ATOMIC for plan in plans)


@pytest.mark.parametrize("op", [Op.INPUT_GRAD, Op.WEIGHT_GRAD])
def test_det_02_equal_calls_give_equal_bits(op):
    """DET-02: the dilated gradients, right, and equal over calls."""
    case = ConvCase("det-02", op, types=HALF, **{**SHAPE, "n": 2})
    check(case)
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in _shapes(case))
    first = case.call(a, b, deterministic=True)
    assert all(np.array_equal(first, case.call(a, b, deterministic=True)) for _ in range(3))
    assert convloom.compile(case.problem(), deterministic=True).policy.deterministic


def _shapes(case):
    image, result = (case.n, case.c, *case.input), (case.n, case.k, *case.output)
    return (result, case.weights) if case.op is Op.INPUT_GRAD else (image, result)
