"""Division by a value that the host knows becomes a multiplication and a shift."""

from __future__ import annotations

from dataclasses import replace

from convloom.expr import Expr, Op, bounds, fast_div, free_symbols, multiplier_of, rebuild, shift_of
from convloom.ir.ops import Kernel
from convloom.ir.rewrite import map_statements


def lower_division(kernel: Kernel, problem_symbols: frozenset[Expr]) -> Kernel:
    """Replaces floor division and remainder by a symbolic divisor over problem symbols.

    before:  q = bid // n ; r = bid % n        after:  q = (bid * m) >> s ; r = bid - q * n   with m, s from the host
    requires: 32-bit index math (the dividend stays below 2**31); 64-bit kernels keep the division.
    """
    if kernel.index_bits != 32 or not problem_symbols:
        return kernel
    done: dict[Expr, Expr] = {}

    def rewrite(expression: Expr) -> Expr:
        found = done.get(expression)
        if found is None:
            found = done[expression] = _rewrite(expression)
        return found

    def _rewrite(expression: Expr) -> Expr:
        if not free_symbols(expression) & problem_symbols or free_symbols(expression) <= problem_symbols:
            return expression
        args = tuple(rewrite(argument) for argument in expression.args)
        if expression.op not in (Op.FLOORDIV, Op.MOD) or not _applies(expression, problem_symbols):
            return rebuild(expression, args)
        dividend, by = args
        quotient = fast_div(dividend, multiplier_of(by), shift_of(by))
        return quotient if expression.op is Op.FLOORDIV else dividend - quotient * by

    return replace(kernel, body=map_statements(kernel.body, rewrite))


def _applies(expression: Expr, problem_symbols: frozenset[Expr]) -> bool:
    dividend, by = expression.args
    lowest = bounds(dividend).lo
    return by.op is not Op.CONST and free_symbols(by) <= problem_symbols and lowest is not None and lowest >= 0
