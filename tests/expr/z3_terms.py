"""Expressions as z3 terms, with floor semantics for divisors of either sign."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import z3

from convloom.expr import Expr, Op

Term = int | z3.ArithRef


def floordiv(a: Term, b: Term) -> Term:
    """Floor quotient; z3's own rounds so that the remainder is not negative."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    a = z3.IntVal(a) if isinstance(a, int) else a
    if isinstance(b, int):
        return a / b if b > 0 else -a / -b
    return z3.If(b > 0, a / b, -a / -b)


def _truth(p) -> Term:
    return int(p) if isinstance(p, bool) else z3.If(p, z3.IntVal(1), z3.IntVal(0))


def _smaller(a: Term, b: Term) -> Term:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else z3.If(a <= b, a, b)


def _select(condition: Term, a: Term, b: Term) -> Term:
    return (a if condition else b) if isinstance(condition, int) else z3.If(condition != 0, a, b)


def _nonzero(args) -> list[Term]:
    return [_truth(arg != 0) for arg in args]


_OPERATORS = {
    Op.ADD: lambda *args: reduce(lambda a, b: a + b, args),
    Op.MUL: lambda *args: reduce(lambda a, b: a * b, args),
    Op.FLOORDIV: floordiv,
    Op.MOD: lambda a, b: a - b * floordiv(a, b),
    Op.MIN: lambda *args: reduce(_smaller, args),
    Op.MAX: lambda *args: -reduce(_smaller, [-arg for arg in args]),
    Op.LT: lambda a, b: _truth(a < b),
    Op.LE: lambda a, b: _truth(a <= b),
    Op.EQ: lambda a, b: _truth(a == b),
    Op.NE: lambda a, b: _truth(a != b),
    Op.AND: lambda *args: reduce(_smaller, _nonzero(args)),
    Op.OR: lambda *args: -reduce(_smaller, [-arg for arg in _nonzero(args)]),
    Op.NOT: lambda a: _truth(a == 0),
    Op.SELECT: _select,
}


def translate(e: Expr, values: Mapping[Expr, Term], divisors: list[Term]) -> Term:
    """The term under values for the symbols; every divisor on the way is appended to `divisors`."""
    if e.op is Op.CONST:
        return e.value
    if e.op is Op.SYM:
        return values[e]
    args = [translate(arg, values, divisors) for arg in e.args]
    if e.op in (Op.FLOORDIV, Op.MOD):
        divisors.append(args[1])
        if isinstance(args[1], int) and args[1] == 0:
            raise ZeroDivisionError
    return _OPERATORS[e.op](*args)
