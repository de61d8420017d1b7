"""Division by a value that the host knows becomes a multiplication and a shift."""

from __future__ import annotations

from dataclasses import replace

from convloom.expr import Expr, Op, bounds, fast_div, free_symbols, maximum, multiplier_of, rebuild, shift_of
from convloom.ir.ops import Kernel
from convloom.ir.rewrite import map_statements


def lower_division(kernel: Kernel, problem_symbols: frozenset[Expr]) -> Kernel:
    """Replaces floor division and remainder by a symbolic divisor over problem symbols.

    before:  q = bid // n ; r = bid % n        after:  q = (bid * m) >> s ; r = bid - q * n   with m, s from the host
    64-bit index math keeps the division, as the multiplication needs a dividend below 2**31. A divisor that may be 0 is
    taken as 1 then: sums over nothing divide too, and use the quotient nowhere.
    """
    if not problem_symbols:
        return kernel
    lowering = _Lowering(problem_symbols, multiply=kernel.index_bits == 32)
    return replace(kernel, body=map_statements(kernel.body, lowering.rewrite))


class _Lowering:
    """Rewrites expressions; remembers what it has done."""

    def __init__(self, problem_symbols: frozenset[Expr], *, multiply: bool) -> None:
        self._symbols, self._multiply = problem_symbols, multiply
        self._done: dict[Expr, Expr] = {}

    def rewrite(self, expression: Expr) -> Expr:
        """The expression with its divisions lowered; parts that the host computes stay."""
        found = self._done.get(expression)
        if found is None:
            found = self._done[expression] = self._rewritten(expression)
        return found

    def _rewritten(self, expression: Expr) -> Expr:
        symbols = free_symbols(expression)
        if not symbols & self._symbols or symbols <= self._symbols:
            return expression
        args = tuple(self.rewrite(argument) for argument in expression.args)
        if expression.op not in (Op.FLOORDIV, Op.MOD) or not free_symbols(expression.args[1]) & self._symbols:
            return rebuild(expression, args)
        return self._divided(expression.op, args[0], args[1])

    def _divided(self, op: Op, dividend: Expr, by: Expr) -> Expr:
        least, lowest = bounds(by).lo, bounds(dividend).lo
        known = free_symbols(by) <= self._symbols
        if known and (least is None or least < 1):
            by = maximum(by, 1)
        if not (self._multiply and known and lowest is not None and lowest >= 0):
            return dividend // by if op is Op.FLOORDIV else dividend % by
        quotient = fast_div(dividend, multiplier_of(by), shift_of(by))
        return quotient if op is Op.FLOORDIV else dividend - quotient * by
