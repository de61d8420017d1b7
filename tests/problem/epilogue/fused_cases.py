"""40 chains of post-ops and 20 quantised problems, for every device."""

from __future__ import annotations

from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation import Defaults, allows_tf32, direction_named, types_named
from convloom.problem.notation.choose import parse_line
from convloom.problem.reference import Problem

ELTWISE = [
    *("abs", "clip:-1:2", "clip_v2:-3:1", "elu:0.5", "exp", "gelu_erf", "gelu_tanh", "hardsigmoid:0.25:0.5"),
    *("hardswish:0.25:0.5", "linear:2:1", "square+log", "logistic", "mish", "abs+pow:0.5:1.5", "relu", "relu:0.25"),
    *("round", "soft_relu:2", "abs+sqrt", "square", "swish:1.5", "tanh"),
]
CHAINS = [
    "sum",
    "sum:0.5",
    "relu+sum:0.25",
    "sum:0.25+relu",
    "add:f32:per_oc+relu",
    "relu+add:f32:per_oc",
    "sub:bf16:per_tensor",
    "mul:f16:per_tensor:axb",
    "div:f32:per_oc",
    "max:s8:1+min:u8:per_tensor",
    "ge:f32:per_tensor+gt:s32:per_oc+le:f32:common",
    "lt:f32:per_oc+eq:f32:common+ne:f32:8",
    "prelu:per_oc",
    "prelu:per_tensor:bf16+tanh",
    "linear:2:1+clip:0:6",
    "mul:f32:12+add:f32:3",
    "gelu_tanh+mul:f32:per_oc+sum:2+swish:1",
    "add:s32:per_oc+relu:0.5+sum:0.25+prelu:per_oc+mul:f32:per_tensor:axb",
]
QUANTISED = [  # types, post-ops, scales, zero points
    ("s8:s8:s32", "", "", "src:common:3"),
    ("u8:s8:s32", "", "", "src:common:131:u8+wei:per_oc"),
    ("u8:u8:f32", "", "", "src:per_dim_1+wei:common:2"),
    ("s8:s8:s8", "", "dst:common:2", ""),
    ("s8:s8:s8", "", "dst:per_oc", "dst:common:5"),
    ("s8:s8:s8", "sum", "", ""),
    ("s8:s8:u8", "sum:1:0:s8+relu", "", ""),
    ("u8:s8:s8", "sum:0.5:3:u8", "src:common:0.5", ""),
    ("u8:s8:u8", "relu", "src:common:0.5+wei:per_oc+dst:common:0.25", "dst:common:128"),
    ("s8:s8:f32", "gelu_erf", "src:common:0.25+wei:per_oc", ""),
    ("s8:s8:bf16", "add:bf16:per_tensor", "wei:per_oc", "src:common:-2"),
    ("s8:s8:f16", "swish:1", "src:common:0.125", "src:per_dim_1:*:s8"),
    (
        "s8:s8:s8",
        "sum:1:2+clip:-10:20",
        "src:common:0.25+wei:per_oc+dst:common:2",
        "src:common:3+wei:common:-1+dst:common:2",
    ),
    ("u8:s8:u8", "linear:0.5:1+round", "wei:common:0.5", "wei:per_oc"),
    ("u8:s8:s8", "prelu:per_oc", "dst:per_oc", "src:common:7"),
    ("f32:f32:s8", "linear:3:0.5", "", ""),
    ("f32:f32:u8", "relu", "", ""),
    ("f16:f16:s8", "tanh+linear:200:0", "", ""),
    ("s8:s8:s32", "relu+add:s32:per_oc", "", "src:common:1"),
    ("u8:s8:f32", "max:f32:per_tensor+sum:0.5", "src:common:0.25:bf16+wei:per_oc:*:f16", "src:common:8:u8"),
]

POST_OPS = [*ELTWISE, *CHAINS]


def problem(
    line: str,
    dtypes: str = "f32",
    post_ops: str = "",
    scales: str = "",
    zero_points: str = "",
    direction: str = "fwd",
    stag: str = "any",
) -> Problem:
    """A problem with attributes; src and dst in one layout."""
    defaults = Defaults(
        direction_named(direction),
        types_named(dtypes),
        src_tag=stag,
        dst_tag=stag,
        tf32=allows_tf32(dtypes),
        attributes=AttributeTexts(post_ops, scales, zero_points),
    )
    return parse_line(line, defaults)
