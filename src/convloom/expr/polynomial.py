"""Expressions multiplied out: polynomials over atoms, with interval bounds of their monomials."""

from __future__ import annotations

from collections.abc import Mapping

from convloom.expr.bounds import Bounds, bounds, times
from convloom.expr.node import Expr, Op, fold, key_of

Monomial = tuple[Expr, ...]  # sorted atoms; () is the constant
Polynomial = Mapping[Monomial, int]

MAX_MONOMIALS = 48
_EXPANDED: dict[Expr, Polynomial] = {}
_BOUNDS: dict[Monomial, Bounds] = {}


def expand(e: Expr) -> Polynomial:
    """The expression as a polynomial over atoms, products of sums multiplied out (very large ones stay atoms)."""
    return fold(e, _EXPANDED, _expand_step)


def _expand_step(node: Expr, memo: Mapping[Expr, Polynomial]) -> Polynomial:
    if node.op is Op.CONST:
        return {(): node.value} if node.value else {}
    if node.op is Op.ADD:
        result: dict[Monomial, int] = {}
        for arg in node.args:
            add_into(result, memo[arg], 1)
        return result
    if node.op is Op.MUL:
        return _expand_product(node, memo)
    return {(node,): 1}


def _expand_product(node: Expr, memo: Mapping[Expr, Polynomial]) -> Polynomial:
    result = memo[node.args[0]]
    for arg in node.args[1:]:
        other = memo[arg]
        if len(result) * len(other) > MAX_MONOMIALS:
            return {(node,): 1}
        result = multiplied(result, other)
    return result


def multiplied(a: Polynomial, b: Polynomial) -> dict[Monomial, int]:
    """The product of two polynomials."""
    result: dict[Monomial, int] = {}
    for monomial, coefficient in b.items():
        add_into(result, a, coefficient, monomial)
    return result


def add_into(target: dict[Monomial, int], other: Polynomial, factor: int, multiplier: Monomial = ()) -> None:
    """Adds factor * multiplier * other to the target."""
    for monomial, coefficient in other.items():
        key = tuple(sorted(monomial + multiplier, key=key_of)) if multiplier else monomial
        total = target.get(key, 0) + factor * coefficient
        if total:
            target[key] = total
        else:
            target.pop(key, None)


def monomial_bounds(monomial: Monomial) -> Bounds:
    """Interval of a product of atoms; a product of squares is not negative."""
    found = _BOUNDS.get(monomial)
    if found is None:
        found = _BOUNDS[monomial] = _monomial_bounds(monomial)
    return found


def _monomial_bounds(monomial: Monomial) -> Bounds:
    result = bounds(monomial[0]) if monomial else Bounds(1, 1)
    for atom in monomial[1:]:
        result = times(result, bounds(atom))
    if (result.lo is None or result.lo < 0) and all(monomial.count(atom) % 2 == 0 for atom in monomial):
        return Bounds(0, result.hi)
    return result


def quotient(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Quotient monomial / part, or None if it is not a multiple."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
