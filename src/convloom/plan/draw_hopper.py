"""Random legal plans of the Hopper family: for fuzzing."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

from convloom.plan.check_plan import check_plan
from convloom.plan.hopper import HopperPlan
from convloom.plan.hopper_candidates import hopper_candidates
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.split import Reduction, Split
from convloom.problem.contraction import Contraction
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.instruction import Family

_SAMPLE = 60  # candidates looked at
_ATTEMPTS = 4


def draw_hopper_plan(
    random: Random, contraction: Contraction, target: Target, policy: Policy = ANYTHING
) -> HopperPlan | None:
    """A plan that is legal and allowed, changed in what the planner does not try; None if none was found.

    Types whose speed on the target nobody knows are drawn too.
    """
    if not rows_for(target.arch, Family.GROUP_MULTIPLY):
        return None
    able = replace(target, group_multiply_adds=((contraction.a.dtype.name, 1.0),))
    most = random.randint(1, _SAMPLE)
    found = [plan for plan, _ in islice(hopper_candidates(contraction, able, policy), most)]
    for _ in range(_ATTEMPTS if found else 0):
        plan = _changed(random, random.choice(found))
        if check_plan(plan, contraction, target, policy) is None:
            return plan
    return None


def _changed(random: Random, plan: HopperPlan) -> HopperPlan:
    return replace(
        plan,
        stages=random.randint(2, plan.stages),
        walk=random.choice((1, 1, 2, 3)),
        store=random.choice((1, plan.store)),
        index_bits=random.choice((32, 64)),
        split=Split(Reduction.PASSES, random.choice((2, 3, 5))) if random.random() < 0.3 else plan.split,
    )
