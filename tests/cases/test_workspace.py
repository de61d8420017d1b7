"""Cases WS: limits of scratch memory are kept, and nothing is written behind it."""

import pytest

import convloom
from convloom.compiler import prepare
from convloom.frontend.problem_check import check_problem
from convloom.plan.choose import ranked_plans
from convloom.plan.families import plan_text
from convloom.plan.policy import Policy
from convloom.plan.workspace import workspace_bytes
from convloom.problem.data import DataKind
from convloom.target.arch import INTERPRET
from tests.cases.convolution import ConvCase, Op, check
from tests.cases.sources import GPU
from tests.plan.dividing import divided

LIMITS = (0, 1 << 20, 64 << 20)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("op", [Op.CONV, Op.WEIGHT_GRAD])
def test_ws_02_limits_are_kept(op, limit):
    """WS-02: limits of 0, 1 MB and 64 MB: every candidate for a GPU keeps to them; fewer images and pixels are run."""
    case = ConvCase("ws-02", op, 8, 64, 64, (112, 112), (3, 3), (112, 112), padding=1)
    contraction = prepare(case.problem()).contraction
    plans = list(ranked_plans(contraction, GPU, 32, policy=Policy(max_workspace=limit)))
    assert plans
    assert all(workspace_bytes(plan, contraction).value <= limit for plan in plans)
    small = ConvCase("ws-02", op, 1, 64, 64, (14, 14), (3, 3), (14, 14), padding=1).problem()
    kernel = convloom.compile(small, max_workspace=limit)
    assert kernel.workspace_bytes() <= limit
    assert check_problem(kernel, DataKind.INT).passed


@pytest.mark.parametrize("channels", range(1, 17))
def test_ws_04_strided_weight_gradient_of_few_channels(channels):
    """WS-04: 1x1, stride 2, channels last, 1 to 16 channels; fewer images. Poison around every tensor stays."""
    size = {"input": (32, 32), "kernel": (1, 1), "output": (16, 16), "stride": 2, "last": True}
    check(ConvCase(f"ws-04-{channels}", Op.WEIGHT_GRAD, 3, channels, 8, **size))


@pytest.mark.parametrize("channels", [1, 4, 7])
def test_ws_04_the_workspace_is_as_large_as_it_says(channels):
    """WS-04: with sums in three parts; the interpreter faults at any access outside the memory that was lent."""
    size = {"input": (8, 8), "kernel": (1, 1), "output": (4, 4), "stride": 2, "last": True}
    problem = ConvCase("ws-04", Op.WEIGHT_GRAD, 6, channels, 8, **size).problem()
    plan = divided(prepare(problem).contraction, INTERPRET, 3)
    kernel = convloom.compile(problem, "interpret", plan_text(plan))
    assert kernel.workspace_bytes() > 0
    assert check_problem(kernel, DataKind.INT).passed
