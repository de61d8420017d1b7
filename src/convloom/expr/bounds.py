"""Interval analysis: bounds of every value of an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from convloom.expr.congruence import congruence
from convloom.expr.node import TRUTH_OPS, Expr, ExprLike, Op, as_expr, fold


class Bounds(NamedTuple):
    """lo <= value <= hi; None: unbounded on that side."""

    lo: int | None
    hi: int | None


Memo = Mapping[Expr, Bounds]
ANY = Bounds(None, None)
BIT = Bounds(0, 1)
_INFINITY = float("inf")


def plus(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a sum."""
    return Bounds(
        None if a.lo is None or b.lo is None else a.lo + b.lo,
        None if a.hi is None or b.hi is None else a.hi + b.hi,
    )


def negated(a: Bounds) -> Bounds:
    """Bounds of the negative."""
    return Bounds(None if a.hi is None else -a.hi, None if a.lo is None else -a.lo)


def times_constant(a: Bounds, factor: int) -> Bounds:
    """Bounds of a multiple."""
    if factor < 0:
        return times_constant(negated(a), -factor)
    if factor == 0:
        return Bounds(0, 0)
    return Bounds(None if a.lo is None else a.lo * factor, None if a.hi is None else a.hi * factor)


def times(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a product: the extremes over the four corners; a corner at infinity times zero is zero."""
    corners = [_corner(x, y) for x in (_low(a), _high(a)) for y in (_low(b), _high(b))]
    return Bounds(_finite(min(corners)), _finite(max(corners)))


def _low(a: Bounds) -> int | float:
    return -_INFINITY if a.lo is None else a.lo


def _high(a: Bounds) -> int | float:
    return _INFINITY if a.hi is None else a.hi


def _corner(x: int | float, y: int | float) -> int | float:
    if x == 0 or y == 0:
        return 0
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return _INFINITY if (x > 0) == (y > 0) else -_INFINITY


def _finite(x: int | float) -> int | None:
    return x if isinstance(x, int) else None


def over(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a floor quotient; unbounded if the divisor may be zero."""
    if b.hi is not None and b.hi < 0:
        return over(negated(a), negated(b))  # a // b == -a // -b
    if b.lo is None or b.lo <= 0:
        return ANY
    lo = hi = None
    if a.lo is not None:  # for a positive divisor the quotient rises with a, and falls in b where a >= 0
        lo = _quotient(a.lo, b.hi if a.lo >= 0 else b.lo)
    if a.hi is not None:
        hi = _quotient(a.hi, b.lo if a.hi >= 0 else b.hi)
    return Bounds(lo, hi)


def _quotient(a: int, b: int | None) -> int:
    if b is None:
        return 0 if a >= 0 else -1
    return a // b


def remainder(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a modulus; unbounded if the divisor may be zero."""
    if b.hi is not None and b.hi < 0:
        return negated(remainder(negated(a), negated(b)))  # a % b == -(-a % -b)
    if b.lo is None or b.lo <= 0:
        return ANY
    if b.lo == b.hi and a.lo is not None and a.hi is not None and a.lo // b.lo == a.hi // b.lo:
        return Bounds(a.lo % b.lo, a.hi % b.lo)
    top = None if b.hi is None else b.hi - 1
    if a.lo is None or a.lo < 0:
        return Bounds(0, top)
    if a.hi is not None and a.hi < b.lo:
        return a
    return Bounds(0, a.hi if top is None or (a.hi is not None and a.hi < top) else top)


def union(parts: list[Bounds]) -> Bounds:
    """Bounds of one value out of several."""
    lows = [part.lo for part in parts if part.lo is not None]
    highs = [part.hi for part in parts if part.hi is not None]
    return Bounds(
        min(lows) if len(lows) == len(parts) else None,
        max(highs) if len(highs) == len(parts) else None,
    )


def smallest(parts: list[Bounds]) -> Bounds:
    """Bounds of the minimum of several values."""
    highs = [part.hi for part in parts if part.hi is not None]
    return Bounds(union(parts).lo, min(highs) if highs else None)


def largest(parts: list[Bounds]) -> Bounds:
    """Bounds of the maximum of several values."""
    return negated(smallest([negated(part) for part in parts]))


def _add(node: Expr, memo: Memo) -> Bounds:
    lo: int | None = 0
    hi: int | None = 0
    for arg in node.args:
        low, high = memo[arg]
        lo = None if lo is None or low is None else lo + low
        hi = None if hi is None or high is None else hi + high
    return Bounds(lo, hi)


def _multiply(node: Expr, memo: Memo) -> Bounds:
    last = node.args[-1]
    if last.op is Op.CONST:
        return times_constant(memo[node.args[0]], last.value)
    result, previous = memo[node.args[0]], node.args[0]
    for arg in node.args[1:]:
        result = times(result, memo[arg])
    if len(node.args) == 2 and node.args[1] is previous and (result.lo is None or result.lo < 0):
        return Bounds(0, result.hi)  # a square
    return result


def _fast_div(node: Expr, memo: Memo) -> Bounds:
    x, multiplier, shift = [memo[arg] for arg in node.args]
    product = times(x, multiplier)
    if shift.lo is None or shift.lo < 0 or product.lo is None or product.lo < 0:
        return ANY
    lo = 0 if shift.hi is None else product.lo >> shift.hi
    return Bounds(lo, None if product.hi is None else product.hi >> shift.lo)


def _parts(node: Expr, memo: Memo) -> list[Bounds]:
    return [memo[arg] for arg in node.args]


_STEPS: dict[Op, Callable[[Expr, Memo], Bounds]] = {
    Op.CONST: lambda node, memo: Bounds(node.value, node.value),
    Op.SYM: lambda node, memo: Bounds(node.facts.lo, node.facts.hi),
    Op.ADD: _add,
    Op.MUL: _multiply,
    Op.FLOORDIV: lambda node, memo: over(memo[node.args[0]], memo[node.args[1]]),
    Op.MOD: lambda node, memo: remainder(memo[node.args[0]], memo[node.args[1]]),
    Op.MIN: lambda node, memo: smallest(_parts(node, memo)),
    Op.MAX: lambda node, memo: largest(_parts(node, memo)),
    Op.SELECT: lambda node, memo: union([memo[node.args[1]], memo[node.args[2]]]),
    Op.FAST_DIV: _fast_div,
    Op.MAGIC_MULTIPLIER: lambda node, memo: Bounds(1 << 31, (1 << 32) - 1),
    Op.MAGIC_SHIFT: lambda node, memo: Bounds(31, 62),
    **dict.fromkeys(TRUTH_OPS, lambda node, memo: BIT),
}
_MEMO: dict[Expr, Bounds] = {}


def _step(node: Expr, memo: Memo) -> Bounds:
    lo, hi = _STEPS[node.op](node, memo)
    modulus, residue = congruence(node)
    if modulus > 1:  # the nearest values of the residue class
        lo = None if lo is None else lo + (residue - lo) % modulus
        hi = None if hi is None else hi - (hi - residue) % modulus
    return Bounds(lo, hi)


def bounds(e: ExprLike) -> Bounds:
    """Bounds that hold for every value of the symbols that satisfies their facts."""
    return fold(as_expr(e), _MEMO, _step)
