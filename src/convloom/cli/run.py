"""`convloom run`: one problem, generated, run, compared and timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from convloom.cli.console import MISMATCH, output
from convloom.cli.problem_options import (
    UNTAGGED,
    BiasType,
    Data,
    Deterministic,
    DeviceName,
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
from convloom.frontend.compile import compile
from convloom.frontend.dynamic_twin import Twin, dynamic_twin
from convloom.frontend.problem_check import CheckOutcome, check_problem
from convloom.problem.conv import Scaling
from convloom.problem.data import DataKind
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation.choose import parse_line
from convloom.problem.reference import Problem
from convloom.report.problem_text import problem_text

MEASURE_SECONDS = 0.5


def run(
    problem: ProblemText,
    direction: DirectionName = "fwd",
    dtypes: TypeNames = "f32",
    stag: SourceTag = UNTAGGED,
    wtag: WeightsTag = UNTAGGED,
    dtag: ResultTag = UNTAGGED,
    device: DeviceName = "cpu",
    plan: PlanText = None,
    deterministic: Deterministic = False,
    max_workspace: MaxWorkspace = None,
    data: Data = DataKind.REAL,
    bias: BiasType = None,
    post_ops: PostOps = "",
    scales: Scales = "",
    zero_points: ZeroPoints = "",
    alpha: Annotated[bool, typer.Option("--alpha", help="The call scales the result.")] = False,
    beta: Annotated[bool, typer.Option("--beta", help="The call adds the scaled old result.")] = False,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="One kernel for all sizes, called with these.")] = False,
) -> None:
    """Generate the kernel of a problem, run it, compare with the reference, print time and error.

    Exit status 1 if the result is wrong.
    """
    attributes = AttributeTexts(post_ops, scales, zero_points)
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag, bias, attributes))
    parsed = replace(parsed, scaling=Scaling(alpha, beta))
    twin = dynamic_twin(parsed) if dynamic else Twin(parsed, parsed)
    kernel = compile(twin.dynamic, device, plan, deterministic=deterministic, max_workspace=max_workspace)
    outcome = check_problem(kernel, data, problem=twin.static, measure_seconds=MEASURE_SECONDS)
    console = output()
    console.print(f"problem  {problem_text(parsed)}")
    console.print(f"plan     {kernel.plan}")
    console.print(f"time     {_speed(parsed, outcome)}")
    console.print(f"error    {_error(outcome, data)}")
    console.print(_verdict(outcome))
    if not outcome.passed:
        raise typer.Exit(MISMATCH)


def _speed(problem: Problem, outcome: CheckOutcome) -> str:
    seconds = outcome.seconds
    if not seconds:
        return "not measured"
    return f"{seconds * 1e3:.4f} ms, {problem.ops / seconds * 1e-9:.1f} GFLOP/s"


def _error(outcome: CheckOutcome, data: DataKind) -> str:
    found = outcome.comparison
    if data is DataKind.INT:
        return f"{found.max_error:.3g} (must be 0), {outcome.nonzero_share:.0%} of the outputs non-zero"
    return f"{found.max_error:.3e}, {found.max_ratio:.4f} of its bound"


def _verdict(outcome: CheckOutcome) -> Text:
    return Text("passed", "green") if outcome.passed else Text(f"failed: {outcome.reason}", "bold red")
