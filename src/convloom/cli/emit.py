"""`convloom emit`: one stage of the way from a problem to a kernel, as text or as a binary file."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from convloom.artifact import KernelSource, Language
from convloom.cli.generation import TargetName, generated_for
from convloom.cli.problem_options import (
    UNTAGGED,
    DirectionName,
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
from convloom.compiler import Generated
from convloom.errors import IllegalProblem
from convloom.ir.text import kernel_text
from convloom.plan.families import plan_text
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation.choose import parse_line
from convloom.report.explanation import contraction_lines
from convloom.report.output_file import write_output
from convloom.runtime.nvrtc import Nvrtc, current_nvrtc


class Stage(Enum):
    """The stages on the way to a kernel; the last three are of CUDA targets and need NVRTC, but no GPU."""

    CONTRACTION = "contraction"
    PLAN = "plan"
    IR = "ir"
    SOURCE = "source"
    PTX = "ptx"
    CUBIN = "cubin"
    SASS = "sass"


def _contraction(generated: Generated) -> str:
    return "\n".join(contraction_lines(generated.contraction))


_TEXTS: dict[Stage, Callable[[Generated], str]] = {
    Stage.CONTRACTION: _contraction,
    Stage.PLAN: lambda generated: plan_text(generated.plan),
    Stage.IR: lambda generated: "\n".join(map(kernel_text, generated.kernels)),
    Stage.SOURCE: lambda generated: "\n".join(launch.text for launch in generated.program.launches),
}

_COMPILED: dict[Stage, Callable[[Nvrtc, KernelSource], bytes]] = {
    Stage.PTX: lambda nvrtc, source: nvrtc.ptx(source).encode(),
    Stage.CUBIN: lambda nvrtc, source: nvrtc.compile(source).payload,
    Stage.SASS: lambda nvrtc, source: nvrtc.disassemble(nvrtc.compile(source)).encode(),
}


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
    post_ops: PostOps = "",
    scales: Scales = "",
    zero_points: ZeroPoints = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write here instead; a second launch's cubin goes beside it, numbered.")
    ] = None,
) -> None:
    """Print one stage of the way from a problem to a kernel. A cubin is binary: it needs --out FILE.

    ptx, cubin and sass are compiled by NVRTC for a CUDA target, without a GPU; sass also needs nvdisasm.
    """
    if stage is Stage.CUBIN and out is None:
        raise IllegalProblem("a cubin is binary and goes to a file; got no --out; give --out FILE")
    attributes = AttributeTexts(post_ops, scales, zero_points)
    parsed = parse_line(problem, defaults_of(direction, dtypes, stag, wtag, dtag, attributes=attributes))
    contents = _contents(generated_for(parsed, target, plan), stage, target)
    if out is None:
        typer.echo(b"\n".join(contents).decode().rstrip("\n"))
    elif stage is Stage.CUBIN:
        for number, content in enumerate(contents, start=1):
            write_output(out if number == 1 else out.with_name(f"{out.stem}.{number}{out.suffix}"), content)
    else:
        write_output(out, b"\n".join(contents))


def _contents(generated: Generated, stage: Stage, target: str) -> list[bytes]:
    """One text of all launches; of a compiled stage one content for each launch."""
    if stage in _TEXTS:
        return [_TEXTS[stage](generated).encode()]
    if generated.source.language is not Language.CUDA:
        raise IllegalProblem(
            f"stage {stage.value} is made for CUDA targets; got target {target}; give for example --target sm_90a"
        )
    return [_COMPILED[stage](current_nvrtc(), launch) for launch in generated.program.launches]
