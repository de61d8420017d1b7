"""The rules that convolutions and products share: windows, sizes, groups, element types, places in memory."""

from __future__ import annotations

import math

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8, DType
from convloom.errors import IllegalProblem, IllegalType
from convloom.expr import Expr, Truth, bounds, const, prove
from convloom.problem.given import check_largest
from convloom.problem.layout import Layout, overlaps_itself
from convloom.problem.size_rules import SizeRule

_INTEGER_BIASES = (F32, F16, BF16, S32, S8, U8)  # of 8-bit operands


def check_windows(kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> None:
    """IllegalProblem unless kernel, stride and dilation are at least 1 everywhere, and index math has room for them."""
    for name, values in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            raise IllegalProblem(f"{name} must be at least 1 in every dimension; got {values}; give integers >= 1")
        check_largest((name, value) for value in values)
    check_largest(
        (f"the effective kernel, dilation * (kernel - 1) + 1 = {gap} * {extent - 1} + 1,", gap * (extent - 1) + 1)
        for extent, gap in zip(kernel, dilation, strict=True)
    )


def not_negative(named: tuple[str, Expr]) -> SizeRule:
    """The rule that a named size is not negative."""
    name, size = named
    return SizeRule(size.ge(0), f"{name} = {size} must not be negative", "pass larger sizes")


def check_size(name: str, size: Expr) -> None:
    """IllegalProblem if the size is known to be negative, or too large for index math."""
    check_largest(((name, _least(size)),))
    highest = size.value if size.is_const else bounds(size).hi
    if highest is not None and highest < 0:
        raise IllegalProblem(f"{name} must not be negative; got {size}; allowed are sizes >= 0")


def group_rules(in_channels: Expr, out_channels: Expr, groups: Expr) -> list[SizeRule]:
    """The rules that groups divide both channel counts."""
    return [
        SizeRule(
            (channels % groups).eq(0),
            f"groups must divide the channels; {name} is {channels} and groups {groups}",
            "pass a number of channels that groups divide",
        )
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels))
    ]


def check_groups(in_channels: Expr, out_channels: Expr, groups: Expr) -> None:
    """IllegalProblem unless groups may be positive and may divide both channel counts."""
    highest = bounds(groups).hi
    if highest is not None and highest < 1:
        raise IllegalProblem(f"groups must be positive; got {groups}; allowed are divisors of both channel counts")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if prove((channels % groups).eq(0)) is Truth.NO:
            raise IllegalProblem(
                f"groups must divide the channels; {name}={channels} is not divisible by groups={groups}; "
                f"use a common divisor of {in_channels} and {out_channels}"
            )


def check_types(a: DType, b: DType, result: DType, bias: DType | None) -> None:
    """IllegalType unless a product of a and b may be stored as `result`, with this bias added."""
    if S32 in (a, b) or a.is_float is not b.is_float:
        raise IllegalType(f"operands must be two float types or two of s8, u8; got {a} and {b}; convert one of them")
    if F64 in (a, b, result) and not a is b is result:
        raise IllegalType(f"f64 goes with f64 alone; got {a} x {b} -> {result}; convert the tensors to one type")
    if a.is_float and result not in (S8, U8) and not result.is_float:
        raise IllegalType(f"float products are stored as a float type, s8 or u8; got {result}; choose one of these")
    if bias is not None:
        _check_bias(a, bias)


def check_tf32(allowed: bool, a: DType, b: DType) -> None:
    """IllegalType if tf32 is allowed where no f32 factors are."""
    if allowed and not a is b is F32:
        raise IllegalType(f"tf32 stands for products of f32; got {a} and {b}; leave it out or convert both to f32")


def _check_bias(operand: DType, bias: DType) -> None:
    if operand.is_float and not bias.is_float:
        raise IllegalType(f"the bias of float operands must be a float type; got {bias}; convert it")
    if not operand.is_float and bias not in _INTEGER_BIASES:
        listed = ", ".join(map(str, _INTEGER_BIASES))
        raise IllegalType(f"the bias of 8-bit operands must be one of {listed}; got {bias}; convert it")


def check_storage(name: str, layout: Layout, shape: tuple[Expr, ...]) -> None:
    """IllegalProblem for a tensor of more elements, or spread over more memory, than index math has room for."""
    if any(extent is const(0) for extent in shape):
        return
    check_largest(((f"the number of elements of {name}", math.prod(map(_least, shape))),))
    lowest, highest = layout.storage_range(shape)
    check_largest((f"the offset of an element of {name}", end) for end in (-_least(-lowest), _least(highest)))


def check_result_layout(name: str, layout: Layout, shape: tuple[Expr, ...]) -> None:
    """IllegalProblem if two elements of a produced tensor share memory."""
    if any(extent.is_const and extent.value == 0 for extent in shape):
        return
    if overlaps_itself(layout, shape):
        strides, extents = (", ".join(map(str, numbers)) for numbers in (layout.strides, shape))
        raise IllegalProblem(
            f"elements of an output must not share memory; {name} has strides ({strides}) for shape ({extents}); "
            "give it strides without overlap"
        )


def _least(size: Expr) -> int:
    """The least value that a size is known to have; 0 where nothing is known."""
    return bounds(size).lo or 0
