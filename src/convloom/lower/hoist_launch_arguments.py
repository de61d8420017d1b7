"""Index math that depends only on the problem's symbols is computed by the host and passed as launch arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from convloom.expr import Expr, Op, bounds, divisor, free_symbols, local_sym, rebuild
from convloom.ir.ops import Kernel, LaunchScalar
from convloom.ir.rewrite import map_statements


def hoist_launch_arguments(kernel: Kernel, problem_symbols: frozenset[Expr]) -> Kernel:
    """Replaces every maximal sub-expression over problem symbols by a launch argument.

    before:  x = bid % ((n + 63) // 64)        after:  x = bid % arg0, launch argument arg0 = (n + 63) // 64
    ensures: the body mentions no problem symbol.
    """
    if not problem_symbols:
        return kernel
    hoister = _Hoister(problem_symbols)
    body = map_statements(kernel.body, hoister.rewrite)
    return replace(kernel, body=body, scalars=kernel.scalars + tuple(hoister.scalars.values()))


class _Hoister:
    """Rewrites expressions, sharing one launch argument among equal sub-expressions."""

    def __init__(self, problem_symbols: frozenset[Expr]) -> None:
        self._problem_symbols = problem_symbols
        self._done: dict[Expr, Expr] = {}
        self.scalars: dict[Expr, LaunchScalar] = {}

    def rewrite(self, expression: Expr) -> Expr:
        found = self._done.get(expression)
        if found is None:
            found = self._done[expression] = self._rewrite(expression)
        return found

    def _rewrite(self, expression: Expr) -> Expr:
        symbols = free_symbols(expression)
        if not symbols & self._problem_symbols:
            return expression
        if symbols <= self._problem_symbols:
            return self._argument(expression)
        return rebuild(expression, tuple(self.rewrite(argument) for argument in self._grouped(expression)))

    def _grouped(self, expression: Expr) -> tuple[Expr, ...]:
        """The arguments, those of a sum or product that only the host needs joined into one."""
        if expression.op not in (Op.ADD, Op.MUL):
            return expression.args
        host = [argument for argument in expression.args if free_symbols(argument) <= self._problem_symbols]
        symbolic = [argument for argument in host if argument.op is not Op.CONST]
        if len(symbolic) < 2:
            return expression.args
        rest = tuple(argument for argument in expression.args if argument not in host)
        return (*rest, _joined(expression.op, host))

    def _argument(self, expression: Expr) -> Expr:
        limits = bounds(expression)
        argument = local_sym(f"arg{len(self.scalars)}", divisor=max(divisor(expression), 1), lo=limits.lo, hi=limits.hi)
        self.scalars[expression] = LaunchScalar(argument.name, expression, None)
        return argument


def _joined(op: Op, parts: Iterable[Expr]) -> Expr:
    first, *rest = parts
    for part in rest:
        first = first + part if op is Op.ADD else first * part
    return first
