"""Planted faults: every change of a generated kernel that matters is found, by a finding or by a wrong result.

Sizes are chosen so that each change matters: tails where masks are changed, no padding where loops are shortened.
"""

from functools import cache

import pytest

from convloom.compiler import prepare
from convloom.ir.interpret import Options
from convloom.ir.interpret.options import Landing
from convloom.plan.split import Reduction
from convloom.plan.tiled import plan_text
from convloom.problem.conv import Direction
from convloom.problem.notation import parse_problem
from convloom.problem.notation.choose import parse_line
from convloom.target.arch import INTERPRET
from tests.ir.interpret import mutations as plant
from tests.ir.interpret.launching import Case
from tests.notations import defaults
from tests.plan.dividing import divided

TAILS = "mb2ic5ih7iw6oc9oh4ow3kh3kw3sh2sw2ph1pw1"
CROPPED = "mb2ic5ih10iw9oc9oh4ow3kh3kw3sh2sw2ph0pw0"  # taps before the first and behind the last output
WHOLE = "mb1ic16ih8oc32oh8kh3ph1"  # fills every tile

PROBLEMS = {
    "forward": lambda: parse_problem(TAILS),
    "backward data": lambda: parse_problem(CROPPED, direction=Direction.BWD_D),
    "backward weights": lambda: parse_problem(TAILS, direction=Direction.BWD_W),
    "whole tiles": lambda: parse_problem(WHOLE),
    "matrix": lambda: parse_line("mb2ic40ih7oc24oh7kh3ph1", defaults("fwd", "f16", "axb")),
    "whole matrix tiles": lambda: parse_line("mb1ic64ih8oc32oh8kh3ph1", defaults("fwd", "f16", "axb")),
}

# Given where a fault needs what the plan has: guards, stages, several K tiles, barriers between them.
BY_GROUPS = (
    "tiled block=8x16x16 thread=1x1 chunk=1x1 lanes=1 unroll=1 g=- m=m0,m1,m2 n=n0 serial=k0 k=k1,k2"
    " a=row*1+0 b=k*4+0 store=1 index=32 swap=0 row=fma stages=1 groups={0} split=none walk=1"
)
PLANS = {
    "backward weights": (
        "tiled block=8x16x16 thread=1x1 chunk=1x1 lanes=1 unroll=1 g=- m=m0,m1,m2 n=n0"
        " serial=k0 k=k1,k2 a=row*1+0 b=k*4+0 store=1 index=32 swap=0"
        " row=fma stages=1 groups=1 split=none walk=1 fragments=1"
    ),
    "matrix": (
        "tiled block=64x32x64 thread=16x32 chunk=16x8 lanes=1 unroll=0 g=- m=m0,m1,m2 n=n0"
        " serial=k0,k1 k=k2 a=k*8+8 b=k*8+8 store=2 index=32 swap=0"
        " row=mma.m16n8k16.f32.f16.f16 stages=3 groups=1 split=none walk=1 fragments=1"
    ),
    "whole matrix tiles": (
        "tiled block=32x64x64 thread=16x32 chunk=16x8 lanes=1 unroll=0 g=- m=n0,n1 n=m0"
        " serial=k0,k1 k=k2 a=k*8+8 b=k*8+8 store=2 index=32 swap=1"
        " row=mma.m16n8k16.f32.f16.f16 stages=3 groups=1 split=none walk=1 fragments=1"
    ),
}

ANYWHERE = (
    plant.dropped_barrier,
    plant.divergent_barrier,
    plant.dropped_initialisation,
    plant.lost_sum,
    plant.swapped_operands,
    plant.missing_mask,
    plant.missing_conjunct,
    plant.wide_mask,
    plant.narrow_mask,
    plant.shifted_index,
    plant.overlapping_store,
    plant.wrong_stride,
    plant.overflow,
    plant.long_loop,
    plant.dropped_store,
)
OPERATORS = {
    "forward": (*ANYWHERE, plant.wrong_block),
    "backward data": (*ANYWHERE, plant.wrong_phase, plant.phase_beyond, plant.wrong_block),
    "backward weights": (*ANYWHERE, plant.dropped_guard),
    "whole tiles": (plant.short_loop,),
    "matrix": (
        plant.dropped_barrier,
        plant.divergent_barrier,
        plant.dropped_initialisation,
        plant.dropped_commit,
        plant.dropped_wait,
        plant.short_wait,
        plant.unmasked_copy,
        plant.wrong_stage,
        plant.shifted_address,
        plant.wrong_fragment,
        plant.swapped_fragments,
        plant.masked_lane,
        plant.missing_mask,
        plant.overlapping_store,
        plant.long_loop,
    ),
    "whole matrix tiles": (plant.short_loop, plant.dropped_guard),
}
# Kinds of which one must be found, where the planted fault has a name of its own.
EXPECTED = {
    plant.dropped_barrier: {"RACE"},
    plant.divergent_barrier: {"DIVERGENT_BARRIER"},
    plant.dropped_initialisation: {"UNINITIALISED"},
    plant.overflow: {"OVERFLOW"},
    plant.overlapping_store: {"RACE"},
    plant.missing_mask: {"OUT_OF_BOUNDS", "RACE"},
    plant.wide_mask: {"OUT_OF_BOUNDS"},
    plant.dropped_wait: {"RACE"},
    plant.short_wait: {"RACE"},
    plant.unmasked_copy: {"OUT_OF_BOUNDS"},
    plant.masked_lane: {"PARTIAL_GROUP"},
    plant.phase_beyond: {"OUT_OF_BOUNDS"},
}
SELECTED = [(name, operator) for name, operators in OPERATORS.items() for operator in operators]


@cache
def case(name):
    return Case(PROBLEMS[name](), PLANS.get(name))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("landing", list(Landing))
def test_the_kernel_itself_has_no_fault(name, landing):
    outcome, wrong = case(name).launch(options=Options(landing=landing))
    assert list(outcome.findings) == []
    assert wrong == 0
    assert outcome.blocks > 1


@pytest.mark.parametrize(("name", "operator"), SELECTED, ids=lambda item: getattr(item, "__name__", item))
def test_every_planted_fault_is_found(name, operator):
    found = {place: case(name).found(kernel) for place, kernel in numbered(operator(case(name).kernel))}
    assert found, "the operator changes nothing in this kernel"
    assert [place for place, signs in found.items() if not signs] == []
    wanted = EXPECTED.get(operator)
    assert wanted is None or [place for place, signs in found.items() if not wanted & signs] == []


@pytest.mark.parametrize("k_groups", [2, 4])
def test_every_barrier_around_the_sums_of_groups_is_needed(k_groups):
    problem = parse_problem(TAILS, direction=Direction.BWD_W)
    grouped = Case(problem, BY_GROUPS.format(k_groups))
    assert grouped.found(grouped.kernel) == set()
    dropped = [grouped.found(kernel) for _, kernel in plant.dropped_barrier(grouped.kernel)]
    assert len(dropped) == 3
    assert all("RACE" in signs for signs in dropped)


@pytest.mark.parametrize("name", ["matrix", "whole matrix tiles"])
def test_a_stage_overwritten_while_it_is_read_is_found(name):
    stages = case(name).generated.plan.stages
    assert stages > 2
    found = [case(name).found(kernel) for _, kernel in plant.stage_in_use(case(name).kernel, stages)]
    assert len(found) == 4 * (stages - 1)  # both operands, in front of the loop and in it
    assert all("RACE" in signs for signs in found)


def test_sums_of_many_blocks_must_be_added_atomically():
    problem = parse_problem(TAILS, direction=Direction.BWD_W)
    split = Case(
        problem, plan_text(divided(prepare(problem).contraction, INTERPRET, 4, how=Reduction.ATOMIC)), cleared=True
    )
    assert split.found(split.kernel) == set()
    found = [split.found(kernel) for _, kernel in plant.plain_store(split.kernel)]
    assert found
    assert all("RACE" in signs for signs in found)
    stale = Case(problem, split.plan)  # nobody cleared the result
    assert "UNINITIALISED" in stale.found(stale.kernel)


def numbered(mutants):
    return ((f"{path} ({number})", kernel) for number, (path, kernel) in enumerate(mutants))


def test_there_are_many_mutants_of_many_kinds():
    assert len({operator for _, operator in SELECTED}) >= 25


def test_a_missing_wait_is_found_whenever_the_copy_lands():
    for landing in Landing:
        for _, kernel in plant.dropped_wait(case("matrix").kernel):
            assert "RACE" in case("matrix").found(kernel, Options(landing=landing))


def test_the_moment_of_landing_shows_in_faulty_results_only():
    (_, kernel), *_ = plant.dropped_wait(case("matrix").kernel)
    wrong = {landing: case("matrix").launch(kernel, Options(landing=landing))[1] for landing in Landing}
    assert wrong[Landing.EARLIEST] == 0
    assert wrong[Landing.LATEST] > 0
