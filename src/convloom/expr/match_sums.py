"""Matchers of the rules about sums that hold quotients and remainders of the same division."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.expr.congruence import congruence
from convloom.expr.node import Expr, Op
from convloom.expr.splitting import exact_division, is_at_least, is_nonzero
from convloom.expr.sums import combine, content_of, divide_exactly, linear_form, product, product_atoms

Binding = tuple[Expr, ...]


def _occurrences(e: Expr, op: Op) -> Iterator[tuple[Expr, Expr]]:
    """(factor, cofactor) for each term of the sum that has a factor with the operator."""
    for atom, coefficient in linear_form(e).terms:
        factors = product_atoms(atom)
        for place, factor in enumerate(factors):
            if factor.op is op:
                yield factor, product(factors[:place] + factors[place + 1 :]) * coefficient


def _remaining(e: Expr, *parts: Expr) -> Expr | None:
    """The sum without these parts, each of which it must hold term by term; else None."""
    constant, terms = linear_form(e)
    rest = dict(terms)
    for part in parts:
        part_constant, part_terms = linear_form(part)
        constant -= part_constant
        for atom, coefficient in part_terms:
            if rest.get(atom) != coefficient:
                return None
            del rest[atom]
    return combine(constant, rest)


def quotient_and_remainder(node: Expr) -> Binding | None:
    """(k, x, c, y) with the sum k * c * (x // c) + k * (x % c) + y."""
    divisions = {quotient.args for quotient, _ in _occurrences(node, Op.FLOORDIV)}
    for remainder, k in _occurrences(node, Op.MOD) if divisions else ():
        x, c = remainder.args
        known = remainder.args in divisions and is_nonzero(c)
        y = _remaining(node, k * remainder, k * c * (x // c)) if known else None
        if y is not None:
            return k, x, c, y
    return None


def digits(node: Expr) -> Binding | None:
    """(k, x, c, d, y) with the sum k * c * ((x // c) % d) + k * (x % c) + y."""
    for upper, factor in _occurrences(node, Op.MOD):
        quotient, d = upper.args
        if quotient.op is not Op.FLOORDIV:
            continue
        x, c = quotient.args
        k = exact_division(factor, c) if is_at_least(c, 1) and is_at_least(d, 1) else None
        y = None if k is None else _remaining(node, factor * upper, k * (x % c))
        if k is not None and y is not None:
            return k, x, c, d, y
    return None


def excess(node: Expr) -> Binding | None:
    """(k, x, c, y) with the sum k * x - k * c * (x // c) + y."""
    for quotient, factor in _occurrences(node, Op.FLOORDIV):
        x, c = quotient.args
        k = exact_division(-factor, c) if is_nonzero(c) else None
        y = None if k is None else _remaining(node, factor * quotient, k * x)
        if k is not None and y is not None:
            return k, x, c, y
    return None


def exact_quotient(node: Expr) -> Binding | None:
    """(k, x, c, y) with the sum k * c * (x // c) + y, x a known multiple of c."""
    for quotient, factor in _occurrences(node, Op.FLOORDIV):
        x, c = quotient.args
        modulus, residue = congruence(x)
        if not c.is_const or not c.value or modulus % c.value or residue % c.value:
            continue
        # A multiple of c by its coefficient only: f * (f // 4) with 4 | f would only be turned round.
        if content_of(linear_form(factor)) % c.value == 0:
            return divide_exactly(factor, c.value), x, c, node - factor * quotient
    return None
