"""Zero points beside instructions that multiply raw bytes: exact in every row, at padding, in divided sums."""

from random import Random

import pytest

import convloom
from convloom.compiler import generate, prepare
from convloom.errors import UnsupportedTarget
from convloom.frontend.problem_check import check_problem
from convloom.plan.choose import choose_plan
from convloom.plan.draw_plan import draw_plan
from convloom.plan.families import plan_text
from convloom.plan.legality import multiplying_rows, row_multiplies
from convloom.plan.products import products_of
from convloom.plan.split import Reduction
from convloom.plan.tiled import TiledPlan
from convloom.problem.data import DataKind
from convloom.runtime.nvrtc import current_nvrtc
from convloom.target.arch import INTERPRET, target_named
from tests.plan.dividing import divided
from tests.problem.epilogue.fused_cases import problem

PADDED = "mb2ic20ih6iw5oc24oh6ow5kh3kw3ph1pw1"
POINTWISE = "mb1ic40ih4oc16oh4kh1"
STRIDED = "g2mb1ic8ih7oc8oh3kh2sh3ph0"
ZEROS = [
    ("u8:s8:s32", "src:common:131:u8"),
    ("s8:s8:s8", "src:common:3:s8+wei:common:-2:s8"),
    ("s8:u8:s32", "wei:common:5"),
    ("u8:s8:u8", "src:common:7:u8+wei:common:2+dst:common:3"),
]
SCALAR_ONLY = [
    (PADDED, "s8:s8:s32", "src:common:3"),  # s32: may be no s8 number, and padding must be filled with it
    (PADDED, "s8:s8:s32", "src:per_dim_1:1:s8"),
    (PADDED, "s8:s8:s32", "wei:per_oc:1:s8"),
    (POINTWISE, "s8:s8:s32", "src:common:3+wei:common:1"),
]


def fused(line, types, zero_points, **more):
    return problem(line, types, "", "", zero_points, stag="axb", **more)


def rows_of(problem):
    products = products_of(prepare(problem).contraction)
    return {row.name for row in multiplying_rows(INTERPRET) if row_multiplies(row, products)}


@pytest.mark.parametrize(("types", "zero_points"), ZEROS)
@pytest.mark.parametrize("line", [PADDED, POINTWISE, STRIDED])
def test_every_row_is_exact(line, types, zero_points):
    given = fused(line, types, zero_points)
    waiting = rows_of(given)
    assert any(name.startswith("mma.") for name in waiting)
    assert any(name.startswith("dp4a.") for name in waiting)
    for seed in range(300):
        plan = draw_plan(Random(seed), prepare(given).contraction, INTERPRET)
        if isinstance(plan, TiledPlan) and plan.row in waiting:
            waiting.discard(plan.row)
            outcome = check_problem(convloom.compile(given, "interpret", plan_text(plan)), DataKind.INT)
            assert outcome.passed, f"{plan_text(plan)}: {outcome.reason}"
    assert not {name for name in waiting if name.startswith("mma.")}


@pytest.mark.parametrize("direction", ["bwd_d", "bwd_w"])
def test_gradients(direction):
    types = {"bwd_d": "s32:s8:s8", "bwd_w": "s8:s32:s8"}[direction]
    given = fused(PADDED, types, "wei:common:-2:s8" if direction == "bwd_d" else "src:common:3:s8", direction=direction)
    outcome = check_problem(convloom.compile(given, "interpret"), DataKind.INT)
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC])
@pytest.mark.parametrize("k_groups", [1, 2])
def test_divided_sums(how, k_groups):
    given = fused(PADDED, "u8:s8:s32", "src:common:7:u8+wei:common:-2:s8")
    plan = divided(prepare(given).contraction, INTERPRET, 3, k_groups, how=how, row="mma.m16n8k32.s32.u8.s8")
    outcome = check_problem(convloom.compile(given, "interpret", plan_text(plan)), DataKind.INT)
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize(("line", "types", "zero_points"), SCALAR_ONLY)
def test_other_zero_points_leave_differences_to_scalar_rows(line, types, zero_points):
    given = fused(line, types, zero_points)
    assert not rows_of(given)
    assert check_problem(convloom.compile(given, "interpret"), DataKind.INT).passed


@pytest.mark.parametrize(("types", "zero_points"), ZEROS)
def test_the_planner_takes_a_matrix_row_that_compiles(types, zero_points):
    contraction, target = (
        prepare(fused("mb4ic64ih28oc64oh28kh3ph1", types, zero_points)).contraction,
        target_named("sm_80"),
    )
    plan = choose_plan(contraction, target)
    assert plan.row.startswith("mma.m16n8k32.s32.")
    try:
        nvrtc = current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    for launch in generate(contraction, target, plan).program.launches:
        assert nvrtc.compile(launch).payload
