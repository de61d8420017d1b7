"""An access pattern as sums of axes: by how much each axis moves the offset, and what each range check adds up."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.expr import Expr, Op, const, free_symbols, linear_form
from convloom.problem.access_pattern import AccessPattern, RangeCheck

Strides = dict[Expr, Expr]
"""Axis or phase symbol -> by how many elements one step of it moves the offset."""


@dataclass(frozen=True, slots=True)
class LinearAccess:
    """offset = base + sum(strides[s] * s) over axis and phase symbols; `checks` are linear with whole coefficients."""

    base: Expr
    strides: Strides
    checks: tuple[LinearCheck, ...]


@dataclass(frozen=True, slots=True)
class LinearCheck:
    """0 <= constant + sum(coefficients[s] * s) < size; `size` None: nothing is above, `lower` False: nothing below."""

    constant: Expr
    coefficients: dict[Expr, int]
    size: Expr | None
    lower: bool


def linear_access(pattern: AccessPattern, symbols: frozenset[Expr]) -> LinearAccess | str:
    """The pattern over `symbols`, or in words why it is not linear in them."""
    found = _linear(pattern.offset, symbols)
    if found is None:
        return "its offset divides an axis"
    checks: list[LinearCheck] = []
    for check in pattern.checks:
        read = _check(check, symbols)
        if read is None:
            return f"its check {check.text} is no sum of whole multiples of axes"
        checks.append(read)
    return LinearAccess(*found, tuple(checks))


def _check(check: RangeCheck, symbols: frozenset[Expr]) -> LinearCheck | None:
    found = _linear(check.value, symbols)
    if found is None or not all(stride.is_const for stride in found[1].values()):
        return None
    if check.size is not None and free_symbols(check.size) & symbols:
        return None
    return LinearCheck(found[0], {s: c.value for s, c in found[1].items()}, check.size, check.lower)


def _linear(expression: Expr, symbols: frozenset[Expr]) -> tuple[Expr, Strides] | None:
    """(constant part, strides); None where a symbol stands under a division or beside another one."""
    constant, terms = linear_form(expression)
    base, strides = const(constant), Strides()
    for atom, number in terms:
        inside = free_symbols(atom) & symbols
        if not inside:
            base = base + atom * number
            continue
        factors = atom.args if atom.op is Op.MUL else (atom,)
        axes = [factor for factor in factors if factor in symbols]
        if len(axes) != 1 or len(inside) != 1:
            return None
        stride = const(number)
        for factor in factors:
            stride = stride if factor is axes[0] else stride * factor
        strides[axes[0]] = strides.get(axes[0], const(0)) + stride
    return base, strides
