"""Whether a plan can be built for a contraction and target: the answer is a value, with the reason if not."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.plan import hopper_legality, legality
from convloom.plan.families import Plan
from convloom.plan.hopper import HopperPlan
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.workspace import refused_by
from convloom.problem.contraction import Contraction, exchange
from convloom.target.arch import Target


@dataclass(frozen=True, slots=True)
class InfeasiblePlan:
    """Why a plan cannot be built here: the rule and the value that breaks it."""

    reason: str


def check_plan(
    plan: Plan, contraction: Contraction, target: Target, policy: Policy = ANYTHING
) -> InfeasiblePlan | None:
    """The first rule that the plan breaks, the caller's wishes among them; None for a legal plan."""
    oriented = exchange(contraction) if plan.swap else contraction
    if isinstance(plan, HopperPlan):
        reason = hopper_legality.broken_rule(plan, oriented, target)
    else:
        reason = legality.broken_rule(plan, oriented, target)
    reason = reason or refused_by(policy, plan, contraction)
    return None if reason is None else InfeasiblePlan(reason)
