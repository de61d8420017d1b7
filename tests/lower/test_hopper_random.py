"""Random convolutions with random Hopper plans under the interpreter: exact, and without a finding."""

import random
from dataclasses import replace

import pytest

from convloom.compiler import prepare
from convloom.frontend.compile import compile
from convloom.frontend.interpret_device import InterpretDevice
from convloom.frontend.problem_check import check_problem
from convloom.ir.interpret import Options
from convloom.ir.interpret.options import Landing
from convloom.plan.families import plan_text
from convloom.plan.hopper_candidates import hopper_candidates
from convloom.plan.policy import ANYTHING
from convloom.problem.data import DataKind
from convloom.problem.notation.choose import parse_line
from convloom.target.arch import INTERPRET, SM_90A
from tests.notations import defaults

TARGET = replace(SM_90A, max_shared_bytes=INTERPRET.max_shared_bytes)


def draw(rng):
    """A small problem that fits its padding, channels multiples of 8."""
    kernel, stride, gap, pad = (
        rng.choice((1, 3, 3, 2, 5)),
        rng.choice((1, 1, 2, 3)),
        rng.choice((0, 0, 1)),
        rng.randrange(3),
    )
    reach = (kernel - 1) * (gap + 1) + 1
    sides = [rng.randrange(max(reach - 2 * pad, 3), 13) for _ in range(2)]
    high, wide = [(side + 2 * pad - reach) // stride + 1 for side in sides]
    inputs, outputs = (8 * rng.randrange(1, 18) for _ in range(2))
    text = (
        f"mb{rng.randrange(1, 4)}ic{inputs}ih{sides[0]}iw{sides[1]}oc{outputs}oh{high}ow{wide}"
        f"_kh{kernel}kw{kernel}sh{stride}sw{stride}ph{pad}pw{pad}dh{gap}dw{gap}"
    )
    return parse_line(text, defaults(rng.choice(("fwd", "bwd_d", "bwd_w")), rng.choice(("f16", "bf16")), "axb"))


@pytest.mark.parametrize("seed", range(12))
def test_random_problems_and_plans(seed):
    rng = random.Random(seed)
    plans = []
    while not plans:
        problem = draw(rng)
        plans = list(hopper_candidates(prepare(problem).contraction, TARGET, ANYTHING))
    plan = plan_text(rng.choice(plans)[0])
    options = Options(landing=Landing.SEEDED, seed=seed, multiprocessors=rng.choice((1, 2, 3, 7)))
    outcome = check_problem(compile(problem, InterpretDevice(options), plan), DataKind.INT)
    assert outcome.passed, (problem, plan, outcome.reason)
