"""`convloom explain` and `key`: what is decided for a problem, its stride key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convloom.cli.generation import TargetName, generated_for
from convloom.cli.problem_options import (
    UNTAGGED,
    Deterministic,
    DirectionName,
    MaxWorkspace,
    PlanText,
    PostOps,
    ProblemText,
    ResultTag,
    Scales,
    SourceTag,
    TypeNames,
    WeightsTag,
    ZeroPoints,
    defaults_of,
)
from convloom.compiler import plan_for, prepare
from convloom.frontend.interpret_counts import interpret_counted
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation.choose import parse_line
from convloom.problem.stride_key import key_text
from convloom.report.explanation import explanation
from convloom.report.explanation_page import explanation_page
from convloom.report.interpretation import interpretation_text
from convloom.report.output_file import write_output
from convloom.target.arch import INTERPRET, target_named


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
    post_ops: PostOps = "",
    scales: Scales = "",
    zero_points: ZeroPoints = "",
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Also run the kernel of a GPU target under the interpreter and count.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page with pictures to this file.")] = None,
) -> None:
    """Tell the whole way of a problem: contraction, views with strides and masks, plan, requirements, source size.

    With --interpret also what the kernel does, counted, beside the plan's own estimates.
    """
    attributes = AttributeTexts(post_ops, scales, zero_points)
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag, attributes=attributes))
    if interpret and target == "cpu":
        target = INTERPRET.name
        typer.echo(f"target        {target}: the interpreter runs no kernel of the cpu target")
    policy = Policy(deterministic, max_workspace)
    generated = generated_for(parsed, target, plan, policy)
    chosen = plan is None and policy != ANYTHING
    preferred = plan_for(generated.contraction, target_named(target)) if chosen else None
    text = explanation(parsed, generated, policy, preferred)
    typer.echo(text)
    if html is not None:
        write_output(html, explanation_page(parsed, generated, target_named(target), text))
    if interpret:
        typer.echo(interpretation_text(interpret_counted(parsed, target_named(target), plan)))


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
