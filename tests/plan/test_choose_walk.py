"""The walk over tiles that the planner adds to a plan."""

from dataclasses import replace

import pytest

from convloom.dtypes import F16
from convloom.plan.candidates import arrangements
from convloom.plan.choose import choose_plan
from convloom.plan.choose_walk import choose_walk
from convloom.plan.estimate import traffic
from convloom.problem.conv import TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.target.arch import CPU, SM_90A
from tests.plan.dividing import contraction_of


def product(size):
    return contraction_of(Gemm((), size, size, size, *[TensorSpec(F16, dense((size, size)))] * 3))


def chosen(size, target):
    contraction = product(size)
    plan = choose_plan(contraction, target)
    return plan, next(item.work for item in arrangements(contraction, target) if item.swap == plan.swap)


def test_operands_that_stay_in_the_cache_need_no_walk():
    plan, _ = chosen(2048, SM_90A)
    assert plan.walk == 1


def test_large_products_walk_in_bundles_near_to_square():
    plan, work = chosen(8192, SM_90A)
    rows = plan.walk * plan.block_m
    columns = -(-SM_90A.processors // plan.walk) * plan.block_n
    assert 0.5 <= rows / columns <= 2
    assert traffic(plan, work, SM_90A) < 0.6 * traffic(replace(plan, walk=1), work, SM_90A)


@pytest.mark.parametrize("size", [256, 4096, 8192])
def test_a_walk_never_moves_more(size):
    plan, work = chosen(size, SM_90A)
    by_rows = replace(plan, walk=1)
    assert traffic(choose_walk(by_rows, work, SM_90A), work, SM_90A) <= traffic(by_rows, work, SM_90A)


def test_a_cpu_walks_row_by_row():
    plan, _ = chosen(1024, CPU)
    assert plan.walk == 1
