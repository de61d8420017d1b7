"""Options that several commands share, and the problem that they describe."""

from __future__ import annotations

from typing import Annotated

import typer

from convloom.dtypes import F32, dtype_named
from convloom.errors import IllegalProblem
from convloom.problem.data import DataKind
from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts
from convloom.problem.layout_tags import ANY
from convloom.problem.notation import WITH_BIAS, Defaults, allows_tf32, direction_named, types_named

ProblemText = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM", help="A problem in benchdnn's, MIOpenDriver's or rocMLIR's notation; quote one with blanks."
    ),
]
DirectionName = Annotated[
    str,
    typer.Option(
        "--dir", help="fwd, bwd_d, bwd_w or bwd_wb (the bias gradient too), where the notation leaves it open."
    ),
]
TypeNames = Annotated[
    str, typer.Option("--dt", help="One element type, or src:wei:dst; tf32: f32 tensors, products of tf32 allowed.")
]
SourceTag = Annotated[
    str,
    typer.Option("--stag", help="Layout of src, such as nhwc or aBx16b; left out it is nchw, whatever the others are."),
]
WeightsTag = Annotated[str, typer.Option("--wtag", help="Layout of the weights, such as ohwi; left out it is oihw.")]
ResultTag = Annotated[str, typer.Option("--dtag", help="Layout of dst; left out it is nchw, also with --stag nhwc.")]
DeviceName = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:N, opencl, opencl:PLATFORM or interpret.")]
PlanText = Annotated[str | None, typer.Option("--plan", help="A plan's text; without it the planner chooses.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="Equal calls must give equal bits.")]
MaxWorkspace = Annotated[
    int | None, typer.Option("--max-workspace", metavar="BYTES", help="Most bytes of scratch memory; 0 always works.")
]
BiasType = Annotated[
    str | None,
    typer.Option(
        "--bias", help="Element type of a bias, or with bwd_w of the bias gradient; without it there is none."
    ),
]
Data = Annotated[DataKind, typer.Option("--data", help="int: exact equality; real: within the error bound.")]

PostOps = Annotated[
    str, typer.Option("--attr-post-ops", help="Steps behind the sum as in benchdnn, such as relu:0.5+add:f32:per_oc.")
]
Scales = Annotated[str, typer.Option("--attr-scales", help="As in benchdnn, such as src:common:0.25+wei:per_oc.")]
ZeroPoints = Annotated[str, typer.Option("--attr-zero-points", help="As in benchdnn, such as src:common:1+dst:common.")]

UNTAGGED = ANY


def not_negative(param: typer.CallbackParam, value: float | None) -> float | None:
    """The value of an option; IllegalProblem for a negative one and for nan."""
    if value is not None and not value >= 0:
        raise IllegalProblem(
            f"{param.opts[0]} must be a number of at least 0; got {value}; give another or leave it out"
        )
    return value


def defaults_of(
    direction: str,
    dtypes: str,
    stag: str = ANY,
    wtag: str = ANY,
    dtag: str = ANY,
    bias: str | None = None,
    attributes: AttributeTexts = NO_ATTRIBUTES,
) -> Defaults:
    """What a line of a notation leaves open. IllegalProblem for an unknown direction, type or tag."""
    if bias is None and direction.lower() == WITH_BIAS:
        bias = F32.name
    return Defaults(
        direction=direction_named(direction),
        dtypes=types_named(dtypes),
        src_tag=stag,
        wei_tag=wtag,
        dst_tag=dtag,
        bias=None if bias is None else dtype_named(bias),
        tf32=allows_tf32(dtypes),
        attributes=attributes,
    )
