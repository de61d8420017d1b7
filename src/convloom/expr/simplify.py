"""Rewriting of expressions to simpler equal ones."""

from __future__ import annotations

from collections.abc import Mapping

from convloom.expr.bounds import bounds
from convloom.expr.node import Expr, ExprLike, as_expr, const, fold
from convloom.expr.rebuild import rebuild

_MEMO: dict[Expr, Expr] = {}


def simplify(e: ExprLike) -> Expr:
    """An equal expression, for all values that the facts allow and no divisor zero, that is cheaper to compute."""
    return fold(as_expr(e), _MEMO, _step)


def _step(node: Expr, memo: Mapping[Expr, Expr]) -> Expr:
    rebuilt = rebuild(node, tuple([memo[arg] for arg in node.args]))
    lo, hi = bounds(rebuilt)
    return const(lo) if lo is not None and lo == hi else rebuilt
