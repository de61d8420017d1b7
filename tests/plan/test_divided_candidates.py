"""The planner divides sums over K where tiles are few, as far as the caller allows it."""

from dataclasses import replace
from pathlib import Path

import pytest

from convloom.compiler import plan_for
from convloom.dtypes import F32
from convloom.errors import IllegalProblem, Infeasible
from convloom.expr import evaluate, sym
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.check_plan import check_plan
from convloom.plan.choose import choose_plan
from convloom.plan.estimate import estimate
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.predicted import predicted
from convloom.plan.requirements import plan_requirements
from convloom.plan.split import NO_SPLIT, Reduction
from convloom.plan.tiled import plan_text
from convloom.plan.workspace import workspace_bytes
from convloom.problem.conv import Direction, TensorSpec
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.problem.notation.choose import parse_problem
from convloom.target.arch import CPU, SM_90A
from tests.plan.dividing import contraction_of, divided, undivided

TILED = replace(SM_90A, group_multiply_adds=())  # without the family of roles

SUITES = Path(__file__).parents[2] / "suites"
LINES = [line for line in (SUITES / "resnet50.txt").read_text().splitlines() if line and not line.startswith("#")]
SMALL_GRID = "mb64ic64ih56oc64oh56kh1"  # one tile of 64 x 64 sums over 200704 positions


def weights(line, dtypes="f32"):
    return contraction_of(parse_problem(line, direction=Direction.BWD_W, dtypes=dtypes))


def work_of(plan, contraction, target):
    for item in arrangements(contraction, target):
        if item.swap == plan.swap and sorted(item.k.merged) == sorted(plan.merged):
            return item.work
    raise AssertionError("the planner does not know the plan's order of axes")


@pytest.mark.parametrize("dtypes", ["f32", "f16"])
@pytest.mark.parametrize("line", LINES[:12:2])
def test_weight_gradients_of_a_network_are_split_on_a_large_gpu(line, dtypes):
    """Their results have fewer tiles than an H200 has multiprocessors, their sums tens of thousands of terms."""
    contraction = weights(line, dtypes)
    whole, chosen = undivided(contraction, TILED), choose_plan(contraction, TILED)
    without, found = (estimate(plan, work_of(plan, contraction, TILED), TILED).seconds for plan in (whole, chosen))
    blocks = predicted(chosen, contraction, TILED).blocks
    assert chosen.split.how is Reduction.PASSES
    assert blocks >= 0.75 * TILED.processors
    assert found < 0.7 * without


def test_large_grids_are_not_split():
    contraction = contraction_of(parse_problem("mb64ic256ih56oc256oh56kh3ph1", dtypes="f16"))
    assert choose_plan(contraction, TILED).split == NO_SPLIT


def test_two_cores_are_not_worth_a_split_of_many_tiles():
    assert choose_plan(weights("mb4ic64ih28oc64oh28kh3ph1"), CPU).split == NO_SPLIT


@pytest.mark.parametrize("limit", [0, 1 << 20, 64 << 20])
def test_limits_on_the_workspace_are_kept_by_planning(limit):
    contraction = weights(SMALL_GRID)
    plan = choose_plan(contraction, TILED, policy=Policy(max_workspace=limit))
    assert workspace_bytes(plan, contraction).value <= limit
    assert check_plan(plan, contraction, TILED, Policy(max_workspace=limit)) is None
    assert plan.split.how is (Reduction.PASSES if limit > 1 << 20 else Reduction.ATOMIC)


def test_nothing_is_left_without_workspace_and_atomics():
    for policy, dtypes in ((Policy(True, 0), "f32"), (Policy(False, 0), "f16")):  # f16 results need a last conversion
        assert choose_plan(weights(SMALL_GRID, dtypes), TILED, policy=policy).split == NO_SPLIT


def test_plans_are_deterministic_unless_memory_is_short():
    """Atomic additions take more launches and pass the cache twice."""
    for dtypes in ("f32", "f16"):
        contraction = weights(SMALL_GRID, dtypes)
        assert choose_plan(contraction, TILED) == choose_plan(contraction, TILED, policy=Policy(deterministic=True))


def test_more_workspace_is_never_predicted_slower():
    contraction = weights(SMALL_GRID)
    times = []
    for limit in (0, 1 << 16, 1 << 18, 1 << 20, 1 << 24, None):
        plan = choose_plan(contraction, TILED, policy=Policy(True, limit))
        times.append(estimate(plan, work_of(plan, contraction, TILED), TILED).seconds)
    assert times == sorted(times, reverse=True)
    assert times[-1] < 0.1 * times[0]


def test_a_given_plan_over_the_limit_is_refused_with_the_reason():
    contraction = weights(SMALL_GRID)
    plan = choose_plan(contraction, TILED)
    needed = workspace_bytes(plan, contraction).value
    assert needed > 1000
    with pytest.raises(Infeasible, match=f"may use 1000 bytes of workspace; this plan needs {needed}"):
        plan_for(contraction, TILED, plan_text(plan), Policy(max_workspace=1000))
    assert plan_for(contraction, TILED, plan_text(plan), Policy(max_workspace=needed)) == plan


def test_sizes_of_the_call_decide_whether_a_limit_is_kept():
    channels = sym("channels", lo=1, hint=16)
    problem = conv_problem(
        direction=Direction.BWD_W, batch=8, in_channels=channels, out_channels=8, in_spatial=(32,), kernel=(3,)
    )
    contraction = contraction_of(problem)
    plan = divided(contraction, TILED, 4)
    limit = Policy(max_workspace=1 << 20)
    assert check_plan(plan, contraction, TILED, limit) is None
    (found,) = [item for item in plan_requirements(plan, contraction, TILED, limit) if "max_workspace" in item.reason]
    for size in (16, 10**4):
        used = int(evaluate(workspace_bytes(plan, contraction), {"channels": size}))
        assert bool(evaluate(found.condition, {"channels": size})) == (used <= 1 << 20) == (size == 16)


def test_partial_sums_that_32_bits_cannot_count_are_a_condition():
    size = sym("size", lo=1)
    problem = conv_problem(
        direction=Direction.BWD_W, batch=8, in_channels=size, out_channels=512, in_spatial=(8,), kernel=(1,)
    )
    contraction = contraction_of(problem)
    plan = divided(contraction, TILED, 512)
    conditions = [item.condition for item in plan_requirements(plan, contraction, TILED) if not item.on_address]

    def holds(value):
        return all(int(evaluate(condition, {"size": value})) for condition in conditions)

    assert holds(4096)
    assert not holds(2**14)  # 2**23 sums, 512 times


def test_general_plans_take_no_workspace():
    assert choose_plan(weights(SMALL_GRID), TILED, general=True).split == NO_SPLIT


def test_every_divided_candidate_is_legal():
    for target in (TILED, replace(CPU, processors=64)):
        contraction = weights("mb16ic24ih20oc16oh20kh3ph1", "f16")
        found = list(candidates(contraction, target, arrangements(contraction, target), every=11, splits=ANYTHING))
        for plan, _ in found:
            assert check_plan(plan, contraction, target) is None
        assert target.name == CPU.name or {plan.k_groups for plan, _ in found} == {1, 2, 4}
        assert any(plan.split.parts > 1 for plan, _ in found)


def test_negative_limits_are_errors():
    with pytest.raises(IllegalProblem, match="max_workspace is a number of bytes >= 0; got -1"):
        Policy(max_workspace=-1)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_workspace_counts_whole_tiles_of_every_part(batch):
    specs = [TensorSpec(F32, dense((batch, *shape))) for shape in ((33, 70), (70, 65), (33, 65))]
    contraction = contraction_of(Gemm((batch,), 33, 65, 70, *specs))
    plan = divided(contraction, CPU, 3)
    m, n = (65, 33) if plan.swap else (33, 65)
    tiles = -(-m // plan.block_m) * -(-n // plan.block_n)
    assert workspace_bytes(plan, contraction).value == 4 * 3 * batch * tiles * plan.block_m * plan.block_n
