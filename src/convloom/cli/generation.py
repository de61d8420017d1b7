"""What explain and emit share: the target's option, and all stages of a problem on one target."""

from __future__ import annotations

from typing import Annotated

import typer

from convloom.compiler import Generated, generate, plan_for, prepare
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.reference import Problem
from convloom.target.arch import TARGETS, target_named

TargetName = Annotated[str, typer.Option("--target", help=f"{', '.join(TARGETS)}, or another known sm_NN.")]


def generated_for(problem: Problem, target: str, plan: str | None, policy: Policy = ANYTHING) -> Generated:
    """Contraction in normal form, plan, IR and source of a problem."""
    contraction, machine = prepare(problem).contraction, target_named(target)
    return generate(contraction, machine, plan_for(contraction, machine, plan, policy), policy=policy)
