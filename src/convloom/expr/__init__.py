"""Index arithmetic: interned immutable expressions, facts, bounds, divisibility, simplification, proof."""

from __future__ import annotations

from convloom.expr.bounds import Bounds, bounds
from convloom.expr.congruence import Congruence, congruence, divisor
from convloom.expr.evaluate import evaluate
from convloom.expr.logic import all_of, any_of, maximum, minimum, negate, select
from convloom.expr.node import ONE, ZERO, Expr, ExprLike, Facts, Op, as_expr, const, free_symbols, local_sym, sym
from convloom.expr.prove import Truth, prove
from convloom.expr.quotients import ceil_div, fast_div, multiplier_of, shift_of
from convloom.expr.rebuild import build, rebuild, substitute
from convloom.expr.simplify import simplify
from convloom.expr.sums import LinearForm, linear_form, sum_of
from convloom.expr.text import parse, to_text
from convloom.magic import magic_multiplier, magic_numbers, magic_shift

__all__ = [
    "ONE",
    "ZERO",
    "Bounds",
    "Congruence",
    "Expr",
    "ExprLike",
    "Facts",
    "LinearForm",
    "Op",
    "Truth",
    "all_of",
    "any_of",
    "as_expr",
    "bounds",
    "build",
    "ceil_div",
    "congruence",
    "const",
    "divisor",
    "evaluate",
    "fast_div",
    "free_symbols",
    "linear_form",
    "local_sym",
    "magic_multiplier",
    "magic_numbers",
    "magic_shift",
    "maximum",
    "minimum",
    "multiplier_of",
    "negate",
    "parse",
    "prove",
    "rebuild",
    "select",
    "shift_of",
    "simplify",
    "substitute",
    "sum_of",
    "sym",
    "to_text",
]
