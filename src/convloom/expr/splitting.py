"""Splitting of sums by a divisor, and the small proofs that rewriting rules ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

from convloom.expr.bounds import bounds
from convloom.expr.congruence import congruence, divisor
from convloom.expr.node import ONE, ZERO, Expr, Op
from convloom.expr.positivity import may_have_certificate, nonnegative
from convloom.expr.sums import (
    MEMO_SIZE,
    Terms,
    combine,
    content_of,
    divide_exactly,
    linear_form,
    product,
    product_atoms,
    sum_of,
)


def is_nonzero(e: Expr) -> bool:
    """Whether the value is certainly not zero."""
    lo, hi = bounds(e)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return True
    modulus, residue = congruence(e)
    return residue != 0 and (modulus == 0 or residue % modulus != 0)


def is_at_least(e: Expr, least: int) -> bool:
    """Whether the interval of the value lies at or above `least`."""
    lo = bounds(e).lo
    return lo is not None and lo >= least


@lru_cache(maxsize=MEMO_SIZE)
def is_ordered(x: Expr, y: Expr, distance: int = 0) -> bool:
    """Whether x + distance <= y is certain, by intervals and a short search."""
    lo, hi = bounds(y).lo, bounds(x).hi
    if lo is not None and hi is not None and hi + distance <= lo:
        return True
    return may_have_certificate(y, x) and nonnegative(y - x - distance)


def is_remainder(r: Expr, modulus: Expr) -> bool:
    """Whether 0 <= r < modulus is certain."""
    if modulus.is_const:  # intervals know all that there is to know
        hi = bounds(r).hi
        return hi is not None and hi < modulus.value and is_at_least(r, 0)
    return is_at_least(r, 0) and is_ordered(r, modulus, 1)


def factors_of(e: Expr) -> tuple[int, tuple[Expr, ...]]:
    """(content, atoms) whose product is e; the atoms of a constant are empty, a sum is one atom."""
    if e.op is Op.CONST:
        return e.value, ()
    if e.op is Op.ADD:
        content = content_of(linear_form(e))
        return content, (divide_exactly(e, content),)
    atom, coefficient = linear_form(e).terms[0]
    return coefficient, product_atoms(atom)


def without(factors: tuple[Expr, ...], part: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The factors left after taking out `part` (with multiplicity), None if it is not contained."""
    rest = list(factors)
    for factor in part:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def term_quotient(atom: Expr, coefficient: int, by: Expr) -> Expr | None:
    """Quotient coefficient * atom / by, where `by` divides visibly (also: if 16 | n then n / 4 is n // 4)."""
    content, needed = factors_of(by)
    rest = without(product_atoms(atom), needed)
    if rest is None:
        return None
    if coefficient % content == 0:
        return product(rest) * (coefficient // content)
    return _known_multiple(product(rest), coefficient, content)


def is_multiple(atom: Expr, coefficient: int, by: Expr) -> bool:
    """Whether `by` visibly divides coefficient * atom."""
    if by.is_const:
        return coefficient * divisor(atom) % by.value == 0
    return term_quotient(atom, coefficient, by) is not None


def _known_multiple(atom: Expr, coefficient: int, by: int) -> Expr | None:
    common = math.gcd(coefficient, by)
    if by < 0 or divisor(atom) % (by // common):
        return None
    return (atom // (by // common)) * (coefficient // common)


def split(a: Expr, by: Expr) -> tuple[Expr, Expr] | None:
    """(q, r) with a == q * by + r and q not zero, r without visible multiples of `by`; None if there is no such q."""
    constant, terms = linear_form(a)
    quotients: list[Expr] = []
    rest: dict[Expr, int] = {}
    for atom, coefficient in terms:
        quotient = term_quotient(atom, coefficient, by)
        if quotient is not None:
            quotients.append(quotient)
        elif by.is_const and abs(coefficient) >= abs(by.value):
            whole = int(math.copysign(abs(coefficient) // abs(by.value), coefficient * by.value))
            quotients.append(atom * whole)
            rest[atom] = coefficient - whole * by.value
        else:
            rest[atom] = coefficient
    quotient = sum_of(quotients)
    if by.op is Op.ADD:
        return _split_sum(combine(constant, rest), by, quotient)
    return None if quotient is ZERO else (quotient, combine(constant, rest))


def _split_sum(a: Expr, by: Expr, found: Expr) -> tuple[Expr, Expr] | None:
    """Continues a split by a sum: takes out the integer multiple of the whole sum that a contains term by term."""
    constant, terms = linear_form(a)
    coefficients = dict(terms)
    by_constant, by_terms = linear_form(by)
    whole, remainder = divmod(coefficients.get(by_terms[0][0], 0), by_terms[0][1])
    complete = remainder == 0 and all(coefficients.get(atom, 0) == whole * part for atom, part in by_terms)
    if not complete or whole == 0:
        return None if found is ZERO else (found, a)
    rest = {atom: part for atom, part in terms if atom not in dict(by_terms)}
    return found + whole, combine(constant - whole * by_constant, rest)


def exact_division(a: Expr, by: Expr) -> Expr | None:
    """Quotient a / by, where `by` divides every term visibly; else None."""
    constant, terms = linear_form(a)
    if constant and not (by.is_const and constant % by.value == 0):
        return _equal_multiple(a, by)
    quotients = [term_quotient(atom, coefficient, by) for atom, coefficient in terms]
    found = [quotient for quotient in quotients if quotient is not None]
    if len(found) < len(quotients):
        return _equal_multiple(a, by)
    return sum_of(found) + (constant // by.value if constant else 0)


def _equal_multiple(a: Expr, by: Expr) -> Expr | None:
    if by.op is not Op.ADD:
        return None
    parts = _split_sum(a, by, ZERO)
    return parts[0] if parts is not None and parts[1] is ZERO else None


def common_factor(a: Expr, b: Expr) -> Expr:
    """The largest visible common factor of every term of both (1 if there is none); positive content."""
    forms = [linear_form(a), linear_form(b)]
    content = math.gcd(*[content_of(form) for form in forms])
    shared = _shared_factors([product_atoms(atom) for form in forms for atom, _ in form.terms])
    if any(form.constant for form in forms):
        shared = ()
    return product(shared) * content


def _shared_factors(products: list[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    shared: list[Expr] = []
    rests = products
    for factor in products[0] if products else ():
        reduced = [without(rest, (factor,)) for rest in rests]
        kept = [rest for rest in reduced if rest is not None]
        if len(kept) == len(rests):
            shared.append(factor)
            rests = kept
    return tuple(shared)


def granules(terms: Terms, limit: Expr) -> Iterator[Expr]:
    """Candidates g that divide `limit` and some term, coarsest first."""
    content, factors = factors_of(limit)
    if not factors:
        known = {math.gcd(coefficient * divisor(atom), content) for atom, coefficient in terms}
        yield from (ONE * size for size in sorted(known, reverse=True) if size > 1)
        return
    for size in range(len(factors), 0, -1):
        for part in combinations(factors, size):
            yield product(part)


def coarse_and_fine(constant: int, terms: Terms, granule: Expr) -> tuple[Expr, Expr] | None:
    """(x, r) whose sum is that of the terms, x a multiple of the granule, 0 <= r < granule, r not zero; else None."""
    coarse: dict[Expr, int] = {}
    fine: dict[Expr, int] = {}
    for atom, coefficient in terms:
        if is_multiple(atom, coefficient, granule):
            coarse[atom] = coefficient
        elif None in bounds(atom) and granule.is_const:
            return None
        else:
            fine[atom] = coefficient
    if not coarse or not (constant or fine):
        return None
    rest = combine(constant, fine)
    if granule.is_const:
        return _whole_bucket(combine(0, coarse), rest, granule.value)
    return (combine(0, coarse), rest) if is_remainder(rest, granule) else None


def _whole_bucket(coarse: Expr, fine: Expr, granule: int) -> tuple[Expr, Expr] | None:
    lo, hi = bounds(fine)
    if lo is None or hi is None or lo // granule != hi // granule:
        return None
    shift = lo // granule * granule
    return (coarse + shift, fine - shift) if fine - shift is not ZERO else None
