"""Constructors of 0/1-valued expressions, of minimum and maximum, and of select.

Comparisons are brought to one form: the difference of both sides is divided by its content and its negative terms
change sides, so that `i - p >= 0`, `p <= i` and `2*p < 2*i + 1` are one node.
"""

from __future__ import annotations

import math
from functools import lru_cache

from convloom.expr.bounds import bounds
from convloom.expr.node import (
    BINARY,
    ONE,
    TRUTH_OPS,
    ZERO,
    Expr,
    ExprLike,
    Op,
    as_expr,
    intern,
    key_of,
)
from convloom.expr.sums import MEMO_SIZE, combine, linear_form


def _truth(value: bool) -> Expr:
    return ONE if value else ZERO


def difference_of(a: Expr, b: Expr) -> tuple[int, dict[Expr, int]]:
    """(constant, terms) of a - b, without building it."""
    constant, terms = linear_form(a)
    other_constant, other_terms = linear_form(b)
    result = dict(terms)
    for atom, coefficient in other_terms:
        total = result.get(atom, 0) - coefficient
        if total:
            result[atom] = total
        else:
            del result[atom]
    return constant - other_constant, result


def _sides(constant: int, terms: dict[Expr, int], divisor: int) -> tuple[Expr, Expr]:
    """(left, right) without negative coefficients, left - right being constant + terms / divisor."""
    left: dict[Expr, int] = {}
    right: dict[Expr, int] = {}
    for atom, coefficient in terms.items():
        reduced = coefficient // divisor
        if reduced > 0:
            left[atom] = reduced
        else:
            right[atom] = -reduced
    if not left or (constant > 0 and right):  # an empty side shows the constant
        return combine(constant, left), combine(0, right)
    return combine(0, left), combine(-constant, right)


@lru_cache(maxsize=MEMO_SIZE)
def less(a: Expr, b: Expr) -> Expr:
    """1 where a < b, else 0."""
    constant, terms = difference_of(a, b)
    if not terms:
        return _truth(constant < 0)
    content = math.gcd(*terms.values())
    constant = -((-constant - 1) // content) - 1  # content*L + c < 0  <=>  L <= floor((-c - 1) / content)
    if constant == -1:
        return intern(Op.LE, _sides(0, terms, content))
    return intern(Op.LT, _sides(constant, terms, content))


def less_equal(a: Expr, b: Expr) -> Expr:
    """1 where a <= b, which is a < b + 1."""
    return less(a, b + ONE)


@lru_cache(maxsize=MEMO_SIZE)
def equal(a: Expr, b: Expr) -> Expr:
    """1 where a equals b, else 0."""
    constant, terms = difference_of(a, b)
    if not terms:
        return _truth(constant == 0)
    content = math.gcd(*terms.values())
    if constant % content:
        return ZERO
    first = min(terms, key=key_of)
    if len(terms) == 1 and first.op in TRUTH_OPS and constant in (0, -terms[first]):
        return first if constant else negate(first)
    if terms[first] < 0:
        content = -content
    return intern(Op.EQ, _sides(constant // content, terms, content))


def unequal(a: Expr, b: Expr) -> Expr:
    """1 where a differs from b, else 0."""
    return negate(equal(a, b))


def is_truth(e: Expr) -> bool:
    """True if the expression is certainly 0 or 1."""
    if e.op in TRUTH_OPS:
        return True
    lo, hi = bounds(e)
    return lo is not None and hi is not None and lo >= 0 and hi <= 1


def as_truth(e: ExprLike) -> Expr:
    """The expression as 0/1: itself if it is certainly that, else whether it differs from zero."""
    node = as_expr(e)
    return node if is_truth(node) else unequal(node, ZERO)


@lru_cache(maxsize=MEMO_SIZE)
def negate(p: ExprLike) -> Expr:
    """1 if p is zero, else 0; pushed through comparisons, and, or."""
    node = as_expr(p)
    if node.op is Op.CONST:
        return _truth(node.value == 0)
    match node.op:
        case Op.LT:
            return less_equal(node.args[1], node.args[0])
        case Op.LE:
            return less(node.args[1], node.args[0])
        case Op.EQ:
            return intern(Op.NE, node.args)
        case Op.NE:
            return intern(Op.EQ, node.args)
        case Op.AND:
            return any_of(*[negate(arg) for arg in node.args])
        case Op.OR:
            return all_of(*[negate(arg) for arg in node.args])
        case Op.NOT:
            return node.args[0]
        case _:
            return intern(Op.NOT, (node,)) if is_truth(node) else equal(node, ZERO)


_ORDERS = frozenset((Op.LT, Op.LE))  # their complements are left to the simplifier, to keep this cheap


def _connect(op: Op, neutral: Expr, absorbing: Expr, parts: tuple[ExprLike, ...]) -> Expr:
    seen: set[Expr] = set()
    stack = [as_truth(part) for part in parts]
    while stack:
        part = stack.pop()
        if part is absorbing or (part.op not in _ORDERS and negate(part) in seen):
            return absorbing
        if part.op is op:
            stack.extend(part.args)
        elif part is not neutral:
            seen.add(part)
    if len(seen) < 2:
        return seen.pop() if seen else neutral
    return intern(op, tuple(sorted(seen, key=key_of)))


def all_of(*parts: ExprLike) -> Expr:
    """1 if every part is non-zero (so for no parts), else 0."""
    return _connect(Op.AND, ONE, ZERO, parts)


def any_of(*parts: ExprLike) -> Expr:
    """1 if some part is non-zero, else 0."""
    return _connect(Op.OR, ZERO, ONE, parts)


def _extreme(op: Op, parts: tuple[Expr, ...]) -> Expr:
    """Minimum or maximum; parts that differ by a constant from another one are dropped or drop it."""
    sign = 1 if op is Op.MIN else -1
    kept: dict[Expr, Expr] = {}  # the part without its constant -> the best part
    for part in (leaf for whole in parts for leaf in (whole.args if whole.op is op else (whole,))):
        constant = linear_form(part).constant
        base = part - constant
        best = kept.get(base)
        if best is None or sign * (constant - linear_form(best).constant) < 0:
            kept[base] = part
    if len(kept) == 1:
        return next(iter(kept.values()))
    return intern(op, tuple(sorted(kept.values(), key=key_of)))


@lru_cache(maxsize=MEMO_SIZE)
def _minimum(a: Expr, b: Expr) -> Expr:
    return _extreme(Op.MIN, (a, b))


@lru_cache(maxsize=MEMO_SIZE)
def _maximum(a: Expr, b: Expr) -> Expr:
    return _extreme(Op.MAX, (a, b))


def minimum(first: ExprLike, *others: ExprLike) -> Expr:
    """The smallest of the arguments."""
    result = as_expr(first)
    for other in others:
        result = _minimum(result, as_expr(other))
    return result


def maximum(first: ExprLike, *others: ExprLike) -> Expr:
    """The largest of the arguments."""
    result = as_expr(first)
    for other in others:
        result = _maximum(result, as_expr(other))
    return result


def select(condition: ExprLike, if_true: ExprLike, if_false: ExprLike) -> Expr:
    """if_true where the condition is non-zero, else if_false."""
    return _select(as_truth(condition), as_expr(if_true), as_expr(if_false))


@lru_cache(maxsize=MEMO_SIZE)
def _select(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    if if_true is if_false or condition is ONE:
        return if_true
    if condition is ZERO:
        return if_false
    if if_true is ONE and if_false is ZERO:
        return condition
    if if_true is ZERO and if_false is ONE:
        return negate(condition)
    return intern(Op.SELECT, (condition, if_true, if_false))


COMPARISONS = {Op.LT: less, Op.LE: less_equal, Op.EQ: equal, Op.NE: unequal}
BINARY.update(COMPARISONS)
