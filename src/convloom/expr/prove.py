"""The prover: whether a predicate holds for all values that the facts allow."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from convloom.expr.bounds import bounds
from convloom.expr.node import ONE, ZERO, Expr, ExprLike, Op, as_expr
from convloom.expr.simplify import simplify


class Truth(Enum):
    """The answer of the prover: true for all values, false for all values, or not known."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def prove(p: ExprLike, assuming: Sequence[Expr] = ()) -> Truth:
    """Whether p is non-zero (YES) or zero (NO) for all values of its symbols that satisfy facts and assumptions."""
    goal = simplify(as_expr(p))
    if goal is ZERO:
        return Truth.NO
    if goal is ONE:
        return Truth.YES
    if goal.op in (Op.LT, Op.LE):
        return _compare(goal)
    return Truth.UNKNOWN


def _compare(goal: Expr) -> Truth:
    lo, hi = bounds(simplify(goal.args[1] - goal.args[0]))
    least = 1 if goal.op is Op.LT else 0
    if lo is not None and lo >= least:
        return Truth.YES
    return Truth.NO if hi is not None and hi < least else Truth.UNKNOWN
