"""What a line of a notation leaves open: direction, element types, bias and layout names."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import F32, DType, dtype_named
from convloom.errors import IllegalProblem
from convloom.expr import Expr
from convloom.problem.conv import Direction
from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts
from convloom.problem.layout_tags import ANY

TF32_NAME = "tf32"
Types = tuple[DType, DType, DType]


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for what a line does not say; what it says itself wins. `dtypes`: of src, wei, dst (or a, b, c).

    `bias` is the type of a bias; for BWD_W that of the bias gradient.
    `tf32` holds for every line: products of f32 may be of tf32.
    """

    direction: Direction = Direction.FWD
    dtypes: Types = (F32, F32, F32)
    bias: DType | None = None
    src_tag: str = ANY
    wei_tag: str = ANY
    dst_tag: str = ANY
    tf32: bool = False
    attributes: AttributeTexts = NO_ATTRIBUTES


WITH_BIAS = "bwd_wb"
"""The weight gradient together with the bias gradient, as benchdnn calls it."""


def direction_named(name: str) -> Direction:
    """A direction by its text; IllegalProblem lists the known ones. `bwd_wb` is BWD_W; whoever asks adds the bias."""
    if name.lower() == WITH_BIAS:
        return Direction.BWD_W
    for direction in Direction:
        if direction.value == name.lower():
            return direction
    known = ", ".join(direction.value for direction in Direction)
    raise IllegalProblem(f"a direction must be one of {known}; got {name!r}; use one of these")


def types_named(text: str) -> Types:
    """Types of src, wei, dst: one name for all, or three joined by colons. IllegalProblem or IllegalType otherwise.

    `tf32` alone means tensors of f32 whose products may be of tf32 (`allows_tf32`).
    """
    names = text.split(":")
    if len(names) == 1:
        dtype = F32 if allows_tf32(text) else dtype_named(text)
        return dtype, dtype, dtype
    if len(names) != 3:
        raise IllegalProblem(f"element types are one name or src:wei:dst; got {text!r}; give e.g. f16:f16:f32")
    return dtype_named(names[0]), dtype_named(names[1]), dtype_named(names[2])


def allows_tf32(text: str) -> bool:
    """Whether a text of types is the word tf32."""
    return text == TF32_NAME


def bias_fields(direction: Direction, dtype: DType | None) -> dict[str, DType | None]:
    """The fields of a Conv that a bias of this type means: of BWD_W the type of the bias gradient."""
    return {"bias_grad" if direction is Direction.BWD_W else "bias": dtype}


def types_text(types: Types) -> str:
    """The inverse of `types_named`, short where all are one."""
    return types[0].name if types[0] is types[1] is types[2] else ":".join(dtype.name for dtype in types)


def refusal(notation: str, reason: str) -> IllegalProblem:
    """The error of a notation that has no words for a problem."""
    return IllegalProblem(f"the problem cannot be expressed in {notation} notation: {reason}; print it in another one")


def printed_size(notation: str, name: str, size: Expr, least: int = 0) -> int:
    """A size as a number; IllegalProblem if it is symbolic or too small for the notation."""
    if not size.is_const:
        raise refusal(notation, f"{name} is the symbolic size {size}")
    if size.value < least:
        raise refusal(notation, f"{name} is {size.value}, but it must be at least {least}")
    return size.value
