"""Random problems with random legal plans on the cpu device: exact integers, poisoned surroundings, any sizes."""

import random
from dataclasses import replace

import pytest

from convloom.compiler import generate, prepare
from convloom.plan.tiled import plan_text
from convloom.problem.data import make_operands
from convloom.problem.numerics import compare_exact
from convloom.target.arch import CPU
from tests.lower.running import exact_reference, run
from tests.plan.drawing import draw_plan
from tests.problem.drawing import TYPES, draw

MOST_UNROLLED = 512  # products; more make the C compiler slow


def check(problem, static, sizes, seed):
    """One random plan of the problem, run on data of its static twin."""
    form = prepare(problem)
    plan = draw_plan(random.Random(seed), form.contraction, CPU)
    if plan.block_k * plan.thread_m * plan.thread_n > MOST_UNROLLED * plan.lanes:
        plan = replace(plan, unroll_k=False)
    program = generate(form.contraction, CPU, plan).program
    operands = make_operands(static, seed=seed)
    found = run(program, dict(form.tensors), static, operands, sizes)
    comparison = compare_exact(static, found, exact_reference(static, operands))
    assert comparison.passed, f"{plan_text(plan)}\n{static}"


@pytest.mark.parametrize("seed", range(50))
def test_constant_sizes(seed):
    drawn = draw(seed, TYPES)
    check(drawn.static, drawn.static, {}, seed)


@pytest.mark.parametrize("seed", range(50))
def test_sizes_of_the_call(seed):
    drawn = draw(seed, TYPES)
    check(drawn.dynamic, drawn.static, drawn.values, seed)
