"""Matchers of the rules about comparisons, minimum, maximum and their connectives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from convloom.expr.bounds import bounds
from convloom.expr.congruence import congruence, divisor
from convloom.expr.logic import all_of, any_of, difference_of, maximum, minimum
from convloom.expr.node import ONE, ZERO, Expr, Op, const, key_of
from convloom.expr.splitting import (
    coarse_and_fine,
    common_factor,
    exact_division,
    is_at_least,
    is_nonzero,
    is_ordered,
)
from convloom.expr.sums import Terms

Binding = tuple[Expr, ...]


def smaller_part(node: Expr) -> Binding | None:
    """(x, y, z) with x <= y and z the minimum of all parts but y."""
    for x, y in permutations(node.args, 2):
        if is_ordered(x, y):
            return x, y, minimum(*[arg for arg in node.args if arg is not y])
    return None


def larger_part(node: Expr) -> Binding | None:
    """(x, y, z) with y <= x and z the maximum of all parts but y."""
    for x, y in permutations(node.args, 2):
        if is_ordered(y, x):
            return x, y, maximum(*[arg for arg in node.args if arg is not y])
    return None


def _strict(node: Expr) -> int:
    return 1 if node.op is Op.LT else 0


_Form = tuple[int, frozenset[tuple[Expr, int]]]  # constant and terms of a difference
_FORMS: dict[Expr, _Form] = {}


def _below_zero(part: Expr) -> _Form:
    """The difference d such that the comparison says d < 0."""
    found = _FORMS.get(part)
    if found is None:
        constant, terms = difference_of(*part.args)
        found = _FORMS[part] = (constant - 1 + _strict(part), frozenset(terms.items()))
    return found


def certain(node: Expr) -> Binding | None:
    """(x, y) where the comparison certainly holds."""
    x, y = node.args
    return (x, y) if is_ordered(x, y, _strict(node)) else None


def impossible(node: Expr) -> Binding | None:
    """(x, y) where the comparison fails by intervals; the prover searches further."""
    x, y = node.args
    lo, hi = bounds(x).lo, bounds(y).hi
    return (x, y) if lo is not None and hi is not None and lo - hi >= 1 - _strict(node) else None


def different(node: Expr) -> Binding | None:
    """(x, y) that differ by congruence or intervals."""
    x, y = node.args
    difference = x - y
    modulus, residue = congruence(difference)
    if residue if modulus == 0 else residue % modulus:
        return x, y
    return (x, y) if is_at_least(difference, 1) or is_at_least(-difference, 1) else None


def _quotient_alone(e: Expr) -> bool:
    """A floor quotient by a positive constant, which the other side can absorb without new arithmetic."""
    return e.op is Op.FLOORDIV and e.args[1].is_const and is_at_least(e.args[1], 1)


def quotient_left(node: Expr) -> Binding | None:
    """(x, c, y) with the left side x // c."""
    left, y = node.args
    return (left.args[0], left.args[1], y) if _quotient_alone(left) else None


def quotient_right(node: Expr) -> Binding | None:
    """(x, c, y) with the right side x // c."""
    y, right = node.args
    return (right.args[0], right.args[1], y) if _quotient_alone(right) else None


def quotient_zero(node: Expr) -> Binding | None:
    """(x, c) with x // c compared with 0, x not negative and c positive."""
    left, right = node.args
    quotient = left if right is ZERO else right
    if ZERO not in (left, right) or quotient.op is not Op.FLOORDIV:
        return None
    x, c = quotient.args
    return (x, c) if is_at_least(x, 0) and is_at_least(c, 1) else None


def _granules(terms: Terms) -> list[Expr]:
    """Candidates for a common step of most terms: their coefficients and their symbolic factors."""
    sizes = {abs(coefficient) * divisor(atom) for atom, coefficient in terms} - {0, 1}
    factors = {factor for atom, _ in terms if atom.op is Op.MUL for factor in atom.args if is_at_least(factor, 1)}
    return [const(size) for size in sorted(sizes, reverse=True)] + sorted(factors, key=key_of)


def fine_part(node: Expr) -> Binding | None:
    """(x, r, y, g): the comparison says x + r < y with multiples x and y of g, 0 <= r < g."""
    constant, unordered = _below_zero(node)
    terms = tuple(unordered)
    for granule in _granules(terms):
        parts = coarse_and_fine(constant, terms, granule)
        if parts is not None:
            return parts[0], parts[1], ZERO, granule
    return None


def shared_factor(node: Expr) -> Binding | None:
    """(x, y, g) with sides g * x and g * y; the sign of g must be known for an order."""
    left, right = node.args
    factor = common_factor(left, right)
    if factor is ONE:
        return None
    if not (is_nonzero(factor) if node.op in (Op.EQ, Op.NE) else is_at_least(factor, 1)):
        return None
    x, y = exact_division(left, factor), exact_division(right, factor)
    return None if x is None or y is None else (x, y, factor)


def _related(node: Expr, sign: int) -> Iterator[tuple[Expr, Expr, int]]:
    """(p, q, constant): part p says d < 0, part q says sign * d + constant < 0."""
    known: dict[frozenset[tuple[Expr, int]], list[tuple[Expr, int]]] = {}  # terms -> (part, constant)
    for part in node.args:
        if part.op in (Op.LT, Op.LE):
            constant, terms = _below_zero(part)
            known.setdefault(terms, []).append((part, constant))
    if sign > 0 and len(known) == len(node.args):
        return
    for terms, group in known.items():
        same = terms if sign > 0 else frozenset([(atom, -coefficient) for atom, coefficient in terms])
        for other, other_constant in known.get(same, ()):
            for part, constant in group:
                if other is not part:
                    yield part, other, other_constant - sign * constant


def _one_sided(part: Expr) -> Expr:
    return part.args[0] - part.args[1] - 1 + _strict(part)


def _others(node: Expr, *parts: Expr) -> list[Expr]:
    return [arg for arg in node.args if arg not in parts]


def implied_part(node: Expr) -> Binding | None:
    """(x, y, k, p): the part x < y makes x < y + k superfluous."""
    for part, other, constant in _related(node, 1):
        if constant <= 0:
            return _one_sided(part), ZERO, const(-constant), all_of(*_others(node, part, other))
    return None


def contradiction(node: Expr) -> Binding | None:
    """(x, y, k, p): the parts x < y and y < x + k exclude each other."""
    for part, other, constant in _related(node, -1):
        if -constant <= 1:
            return _one_sided(part), ZERO, const(-constant), all_of(*_others(node, part, other))
    return None


def exhaustion(node: Expr) -> Binding | None:
    """(x, y, k, p): one of the parts x < y and y < x + k always holds."""
    for part, other, constant in _related(node, -1):
        if -constant >= 1:
            return _one_sided(part), ZERO, const(-constant), any_of(*_others(node, part, other))
    return None
