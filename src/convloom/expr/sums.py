"""Canonical sums and products: linear combinations of atoms, merged and sorted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from convloom.expr.node import BINARY, ONE, ZERO, Expr, ExprLike, Op, as_expr, const, intern, key_of

MEMO_SIZE = 1 << 17


class LinearForm(NamedTuple):
    """`constant + sum(coefficient * atom)`; atoms are distinct, sorted, and neither constants, sums nor scaled."""

    constant: int
    terms: tuple[tuple[Expr, int], ...]


_LINEAR: dict[Expr, LinearForm] = {}


def linear_form(e: ExprLike) -> LinearForm:
    """The expression as a linear combination of atoms; complete: rebuilding it gives the same node."""
    node = as_expr(e)
    found = _LINEAR.get(node)
    if found is None:
        found = _LINEAR[node] = _linear_form(node)
    return found


def _linear_form(node: Expr) -> LinearForm:
    if node.op is Op.CONST:
        return LinearForm(node.value, ())
    if node.op is not Op.ADD:
        return LinearForm(0, (_term(node),))
    last = node.args[-1]
    if last.op is Op.CONST:
        return LinearForm(last.value, tuple([_term(arg) for arg in node.args[:-1]]))
    return LinearForm(0, tuple([_term(arg) for arg in node.args]))


def _term(node: Expr) -> tuple[Expr, int]:
    if node.op is Op.MUL:
        last = node.args[-1]
        if last.op is Op.CONST:
            return node.args[0], last.value
    return node, 1


def scaled(atom: Expr, coefficient: int) -> Expr:
    """The node of coefficient * atom, for an atom of a linear form and a non-zero coefficient."""
    return atom if coefficient == 1 else intern(Op.MUL, (atom, const(coefficient)))


def combine(constant: int, terms: dict[Expr, int]) -> Expr:
    """The node of a linear combination of atoms; zero coefficients are dropped."""
    kept = [atom for atom, coefficient in terms.items() if coefficient]
    if not kept:
        return const(constant)
    if len(kept) == 1 and not constant:
        return scaled(kept[0], terms[kept[0]])
    kept.sort(key=key_of)
    args = [scaled(atom, terms[atom]) for atom in kept]
    if constant:
        args.append(const(constant))
    return intern(Op.ADD, tuple(args))


@lru_cache(maxsize=MEMO_SIZE)
def add(a: Expr, b: Expr) -> Expr:
    """Sum a + b, like terms merged."""
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    left, right = linear_form(a), linear_form(b)
    terms = dict(left.terms)
    for atom, coefficient in right.terms:
        terms[atom] = terms.get(atom, 0) + coefficient
    return combine(left.constant + right.constant, terms)


def sum_of(parts: Iterable[Expr]) -> Expr:
    """The sum of any number of expressions."""
    constant, terms = 0, dict[Expr, int]()
    for part in parts:
        form = linear_form(part)
        constant += form.constant
        for atom, coefficient in form.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
    return combine(constant, terms)


@lru_cache(maxsize=MEMO_SIZE)
def multiply(a: Expr, b: Expr) -> Expr:
    """Product a * b; a constant is distributed over a sum, two non-constants become a sorted product of atoms."""
    if b.op is Op.CONST:
        return _scale(a, b.value)
    if a.op is Op.CONST:
        return _scale(b, a.value)
    left, left_factors = _factors(a)
    right, right_factors = _factors(b)
    factors = sorted(left_factors + right_factors, key=key_of)
    return scaled(intern(Op.MUL, tuple(factors)), left * right)


def _scale(e: Expr, factor: int) -> Expr:
    if factor == 0:
        return ZERO
    if factor == 1:
        return e
    if e.op is Op.CONST:
        return const(e.value * factor)
    if e.op is not Op.ADD:
        atom, coefficient = _term(e)
        return scaled(atom, coefficient * factor)
    constant, terms = linear_form(e)
    args = [scaled(atom, coefficient * factor) for atom, coefficient in terms]
    if constant:
        args.append(const(constant * factor))
    return intern(Op.ADD, tuple(args))


def _factors(e: Expr) -> tuple[int, tuple[Expr, ...]]:
    """(content, atoms whose product times content is e); a sum gives its content and the primitive sum."""
    if e.op is Op.ADD:
        content = content_of(linear_form(e))
        return content, (divide_exactly(e, content),)
    atom, coefficient = _term(e)
    return coefficient, product_atoms(atom)


def product_atoms(atom: Expr) -> tuple[Expr, ...]:
    """The factors of an atom: of a product its sorted factors, else itself."""
    return atom.args if atom.op is Op.MUL else (atom,)


def product(factors: tuple[Expr, ...]) -> Expr:
    """The product of atoms (1 for none)."""
    if len(factors) == 1:
        return factors[0]
    return intern(Op.MUL, tuple(sorted(factors, key=key_of))) if factors else ONE


def content_of(form: LinearForm) -> int:
    """The greatest common divisor of all coefficients, with the sign of the first term."""
    content = math.gcd(form.constant, *[coefficient for _, coefficient in form.terms])
    return -content if form.terms and form.terms[0][1] < 0 else content


def divide_exactly(e: Expr, divisor: int) -> Expr:
    """Quotient e / divisor, where the divisor divides every coefficient."""
    if divisor == 1:
        return e
    constant, terms = linear_form(e)
    return combine(constant // divisor, {atom: coefficient // divisor for atom, coefficient in terms})


BINARY[Op.ADD] = add
BINARY[Op.MUL] = multiply
