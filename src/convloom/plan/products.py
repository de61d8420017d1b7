"""The types that a contraction multiplies."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from convloom.dtypes import DType
from convloom.expr import local_sym, simplify
from convloom.problem.contraction import Contraction, Operand


class Products(NamedTuple):
    """Types of the factors and of their sum; `tf32`: f32 factors may be cut."""

    a: DType
    b: DType
    acc: DType
    tf32: bool


def products_of(contraction: Contraction) -> Products:
    """What a contraction multiplies: operands, or in the sum's type what is left of them without their zero points.

    Differences of 8-bit numbers have 9 bits; but some zero points can be taken off the sums (`lower.zero_sums`).
    """
    acc = contraction.acc
    without = contraction.zero_a is None and contraction.zero_b is None
    if without or zeros_leave_sums(contraction):
        return Products(contraction.a.dtype, contraction.b.dtype, acc, contraction.tf32)
    a = contraction.a.dtype if contraction.zero_a is None else acc
    b = contraction.b.dtype if contraction.zero_b is None else acc
    return Products(a, b, acc, contraction.tf32)


@lru_cache(maxsize=1024)
def zeros_leave_sums(contraction: Contraction) -> bool:
    """Whether the zero points can be taken off sums of raw numbers: each is one number for all of its operand.

    Padding is filled with it, and so is the end of K if both operands have one: it must be a number of the operand's
    type. That is certain of zero points of the same type alone.
    """
    pairs = ((contraction.a, contraction.zero_a), (contraction.b, contraction.zero_b))
    given = [(operand, zero) for operand, zero in pairs if zero is not None]
    fillable = [zero.dtype is operand.dtype for operand, zero in given]
    if not all(
        _is_single(zero) and (fits or not _is_padded(operand))
        for (operand, zero), fits in zip(given, fillable, strict=True)
    ):
        return False
    return len(given) < 2 or any(fillable)


def _is_single(zero: Operand) -> bool:
    """Whether every index reaches the same number."""
    indices = {axis.name: local_sym(axis.name, lo=0) for axis in zero.view.axes}
    return simplify(zero.view.access(indices).offset).is_const


def _is_padded(operand: Operand) -> bool:
    indices = {axis.name: local_sym(axis.name, lo=0) for axis in operand.view.axes}
    return bool(operand.view.access(indices).conditions)
