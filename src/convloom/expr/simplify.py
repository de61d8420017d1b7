"""Rewriting of expressions to simpler equal ones by the table of rules."""

from __future__ import annotations

from collections.abc import Mapping

from convloom.expr.bounds import bounds
from convloom.expr.node import Expr, ExprLike, Op, as_expr, const, fold
from convloom.expr.rebuild import rebuild
from convloom.expr.rules import RULES_OF

_MEMO: dict[Expr, Expr] = {}


def simplify(e: ExprLike) -> Expr:
    """An equal expression, for all values that the facts allow and no divisor zero, that is cheaper to compute.

    Simplified expressions are fixed points, and the result is remembered for every node on the way.
    """
    return fold(as_expr(e), _MEMO, _step)


def _step(node: Expr, memo: Mapping[Expr, Expr]) -> Expr:
    if node.op is Op.CONST:
        return node
    lo, hi = bounds(node)
    if lo is not None and lo == hi:
        return const(lo)
    rebuilt = rebuild(node, tuple([memo[arg] for arg in node.args]))
    if rebuilt is not node:
        return simplify(rebuilt)
    for rule in RULES_OF[node.op]:
        rewritten = rule.apply(node)
        if rewritten is not None:
            return simplify(rewritten)
    return node
