"""`convloom explain`, `emit` and `key`: what is decided for a problem, the text of each stage, its stride key."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated

import typer

from convloom.cli.problem_options import (
    UNTAGGED,
    Deterministic,
    DirectionName,
    MaxWorkspace,
    PlanText,
    ProblemText,
    ResultTag,
    SourceTag,
    TypeNames,
    WeightsTag,
    defaults_of,
)
from convloom.compiler import Generated, generate, plan_for, prepare
from convloom.frontend.interpret_counts import interpret_counted
from convloom.ir.text import kernel_text
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.tiled import plan_text
from convloom.problem.notation.choose import parse_line
from convloom.problem.reference import Problem
from convloom.problem.stride_key import key_text
from convloom.report.explanation import contraction_lines, explanation
from convloom.report.interpretation import interpretation_text
from convloom.target.arch import INTERPRET, TARGETS, target_named

TargetName = Annotated[str, typer.Option("--target", help=f"{', '.join(TARGETS)}, or another sm_NN.")]


class Stage(Enum):
    """The stages on the way to a kernel that have a text."""

    CONTRACTION = "contraction"
    PLAN = "plan"
    IR = "ir"
    SOURCE = "source"


def _contraction(generated: Generated) -> str:
    return "\n".join(contraction_lines(generated.contraction))


_TEXTS: dict[Stage, Callable[[Generated], str]] = {
    Stage.CONTRACTION: _contraction,
    Stage.PLAN: lambda generated: plan_text(generated.plan),
    Stage.IR: lambda generated: "\n".join(map(kernel_text, generated.kernels)),
    Stage.SOURCE: lambda generated: "\n".join(launch.text for launch in generated.program.launches),
}


def _generated(problem: Problem, target: str, plan: str | None, policy: Policy = ANYTHING) -> Generated:
    """Contraction in normal form, plan, IR and source of a problem."""
    contraction, machine = prepare(problem).contraction, target_named(target)
    return generate(contraction, machine, plan_for(contraction, machine, plan, policy), policy=policy)


def explain(
    problem: ProblemText,
    direction: DirectionName = "fwd",
    dtypes: TypeNames = "f32",
    stag: SourceTag = UNTAGGED,
    wtag: WeightsTag = UNTAGGED,
    dtag: ResultTag = UNTAGGED,
    target: TargetName = "cpu",
    plan: PlanText = None,
    deterministic: Deterministic = False,
    max_workspace: MaxWorkspace = None,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Also run the kernel of a GPU target under the interpreter and count.")
    ] = False,
) -> None:
    """Tell the whole way of a problem: contraction, views with strides and masks, plan, requirements, source size.

    With --interpret also what the kernel does, counted, beside the plan's own estimates.
    """
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag))
    if interpret and target == "cpu":
        target = INTERPRET.name
        typer.echo(f"target        {target}: the interpreter runs no kernel of the cpu target")
    policy = Policy(deterministic, max_workspace)
    generated = _generated(parsed, target, plan, policy)
    chosen = plan is None and policy != ANYTHING
    preferred = plan_for(generated.contraction, target_named(target)) if chosen else None
    typer.echo(explanation(parsed, generated, policy, preferred))
    if interpret:
        typer.echo(interpretation_text(interpret_counted(parsed, target_named(target), plan)))


def emit(
    problem: ProblemText,
    stage: Annotated[Stage, typer.Option(help="Which stage to print.")] = Stage.SOURCE,
    target: TargetName = "cpu",
    direction: DirectionName = "fwd",
    dtypes: TypeNames = "f32",
    stag: SourceTag = UNTAGGED,
    wtag: WeightsTag = UNTAGGED,
    dtag: ResultTag = UNTAGGED,
    plan: PlanText = None,
) -> None:
    """Print one stage of the way from a problem to a kernel."""
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag))
    typer.echo(_TEXTS[stage](_generated(parsed, target, plan)).rstrip("\n"))


def key(
    problem: ProblemText,
    direction: DirectionName = "fwd",
    dtypes: TypeNames = "f32",
    stag: SourceTag = UNTAGGED,
    wtag: WeightsTag = UNTAGGED,
    dtag: ResultTag = UNTAGGED,
) -> None:
    """Print the stride key: (extent:stride) lists instead of layouts, equal for equal access patterns."""
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag))
    typer.echo(key_text(prepare(parsed).contraction))
