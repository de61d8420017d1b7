"""Canonical sums and products: linear combinations of atoms, merged and sorted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from convloom.expr.node import (
    BINARY,
    ONE,
    ZERO,
    Expr,
    ExprLike,
    Op,
    as_expr,
    const,
    intern,
    intern_scaled,
    is_scaled,
    key_of,
)

MEMO_SIZE = 1 << 17


Terms = tuple[tuple[Expr, int], ...]  # atom and coefficient


class LinearForm(NamedTuple):
    """`constant + sum(coefficient * atom)`; atoms are distinct, sorted, and neither constants, sums nor scaled."""

    constant: int
    terms: Terms


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
    return (node.args[0], node.args[1].value) if is_scaled(node) else (node, 1)


def scaled(atom: Expr, coefficient: int) -> Expr:
    """The node of coefficient * atom, for an atom of a linear form and a non-zero coefficient."""
    return atom if coefficient == 1 else intern_scaled(atom, const(coefficient))


def combine(constant: int, terms: dict[Expr, int]) -> Expr:
    """The node of a linear combination of atoms; zero coefficients are dropped."""
    nodes = [scaled(atom, coefficient) for atom, coefficient in terms.items() if coefficient]
    if len(nodes) > 1:
        nodes.sort(key=key_of)
    return _sum_node(tuple(nodes), constant)


def add(a: Expr, b: Expr) -> Expr:
    """Sum a + b, like terms merged."""
    if b.op is Op.CONST:
        return _add_constant(a, b.value) if b.value else a
    if a.op is Op.CONST:
        return _add_constant(b, a.value) if a.value else b
    return _add_sums(a, b)


def _add_constant(e: Expr, constant: int) -> Expr:
    if e.op is not Op.ADD:
        return const(e.value + constant) if e.op is Op.CONST else intern(Op.ADD, (e, const(constant)))
    terms, last = e.args, e.args[-1]
    if last.op is Op.CONST:
        terms = terms[:-1]
        constant += last.value
    return _sum_node(terms, constant)


def _sum_node(terms: tuple[Expr, ...], constant: int) -> Expr:
    """The node of sorted, merged terms and a constant."""
    if constant:
        return intern(Op.ADD, (*terms, const(constant))) if terms else const(constant)
    if len(terms) == 1:
        return terms[0]
    return intern(Op.ADD, terms) if terms else ZERO


@lru_cache(maxsize=MEMO_SIZE)
def _add_sums(a: Expr, b: Expr) -> Expr:
    terms: dict[Expr, Expr] = {}  # atom -> term
    constant = _collect(a, terms) + _collect(b, terms)
    return _sum_node(tuple(sorted(terms.values(), key=key_of)), constant)


def _collect(e: Expr, terms: dict[Expr, Expr]) -> int:
    """Adds the terms of e to the terms, returns its constant."""
    constant = 0
    for term in e.args if e.op is Op.ADD else (e,):
        if term.op is Op.CONST:
            constant = term.value
            continue
        atom = term.args[0] if is_scaled(term) else term
        present = terms.get(atom)
        if present is None:
            terms[atom] = term
        else:
            total = _term(present)[1] + _term(term)[1]
            if total:
                terms[atom] = scaled(atom, total)
            else:
                del terms[atom]
    return constant


def sum_of(parts: Iterable[Expr]) -> Expr:
    """The sum of any number of expressions."""
    terms: dict[Expr, Expr] = {}
    constant = sum([_collect(part, terms) for part in parts])
    return _sum_node(tuple(sorted(terms.values(), key=key_of)), constant)


def multiply(a: Expr, b: Expr) -> Expr:
    """Product a * b; a constant is distributed over a sum, two non-constants become a sorted product of atoms."""
    if b.op is Op.CONST:
        return _scale(a, b.value)
    if a.op is Op.CONST:
        return _scale(b, a.value)
    return _multiply_sums(a, b)


@lru_cache(maxsize=MEMO_SIZE)
def _multiply_sums(a: Expr, b: Expr) -> Expr:
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
    return _scale_sum(e, factor)


@lru_cache(maxsize=MEMO_SIZE)
def _scale_sum(e: Expr, factor: int) -> Expr:
    return intern(Op.ADD, tuple([_scale(term, factor) for term in e.args]))


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
