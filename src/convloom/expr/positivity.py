"""Search for a certificate that an expression is never negative.

The expression is expanded to a polynomial over atoms. Known inequalities F >= 0 (of a floor quotient: 0 <= x - s*(x//s)
< s, of a minimum: each argument minus it, of a bounded atom: its distance to the bounds, and the assumptions) are
subtracted with non-negative multipliers until interval analysis shows that what remains is not negative. Then the
expression is a sum of non-negative things: a linear case of Farkas' lemma, with products of atoms as multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from convloom.expr.bounds import bounds
from convloom.expr.node import Expr, Op, intern
from convloom.expr.polynomial import (
    MAX_MONOMIALS,
    Monomial,
    Polynomial,
    add_into,
    expand,
    monomial_bounds,
    multiplied,
    quotient,
)
from convloom.expr.sums import linear_form, product_atoms


class Effort(NamedTuple):
    """How long to search: subtractions tried in all, subtractions in a row, whether to scale by divisors."""

    budget: int
    depth: int
    scale: bool


QUICK = Effort(8, 3, False)
THOROUGH = Effort(300, 8, True)


def _facts_of_atom(atom: Expr) -> list[Polynomial]:
    """Polynomials known to be >= 0 that mention the atom beyond its numeric bounds."""
    found = _ATOM_FACTS.get(atom)
    if found is None:
        found = _ATOM_FACTS[atom] = [expand(fact) for fact in _inequalities(atom)]
    return found


_ATOM_FACTS: dict[Expr, list[Polynomial]] = {}


def _inequalities(atom: Expr) -> Iterator[Expr]:
    match atom.op:
        case Op.FLOORDIV:
            yield from _quotient_inequalities(atom)
        case Op.MOD:
            yield from _remainder_inequalities(atom)
        case Op.MIN:
            yield from (arg - atom for arg in atom.args)
        case Op.MAX:
            yield from (atom - arg for arg in atom.args)
        case _:
            return


def _quotient_inequalities(atom: Expr) -> Iterator[Expr]:
    dividend, divisor = atom.args
    if not _positive(divisor):
        return
    remainder = bounds(intern(Op.MOD, (dividend, divisor)))
    excess = dividend - divisor * atom
    yield excess if remainder.lo is None else excess - remainder.lo
    yield (divisor - 1 if remainder.hi is None else remainder.hi) - excess
    if not divisor.is_const and _at_least(dividend, 0):
        yield dividend - atom


def _remainder_inequalities(atom: Expr) -> Iterator[Expr]:
    dividend, divisor = atom.args
    if not _positive(divisor):
        return
    if not divisor.is_const:
        yield divisor - 1 - atom
    if _at_least(dividend, 0):
        yield dividend - atom


def _at_least(e: Expr, least: int) -> bool:
    lo = bounds(e).lo
    return lo is not None and lo >= least


def _positive(e: Expr) -> bool:
    return _at_least(e, 1)


def _bound_facts(monomial: Monomial) -> Iterator[Polynomial]:
    """Yields atom - lo and hi - atom; only products need them, intervals know them for a single atom."""
    if len(monomial) < 2:
        return
    for atom in monomial:
        lo, hi = bounds(atom)
        if lo is not None:
            yield {(atom,): 1, (): -lo}
        if hi is not None:
            yield {(atom,): -1, (): hi}


class _Assessment(NamedTuple):
    """Lower bound of a polynomial; its monomials without a lower bound; those that have one and vary."""

    lo: int
    endless: list[Monomial]
    varying: list[Monomial]


def _assess(polynomial: Polynomial) -> _Assessment:
    total = 0
    endless: list[Monomial] = []
    varying: list[Monomial] = []
    for monomial, coefficient in polynomial.items():
        lo, hi = monomial_bounds(monomial)
        least = lo if coefficient > 0 else hi
        if least is None:
            endless.append(monomial)
            continue
        total += least * coefficient
        if lo != hi:
            varying.append(monomial)
    return _Assessment(total, endless, varying)


class _Cancellation(NamedTuple):
    """A multiple of a fact that cancels a monomial of the polynomial: part * multiplier is the monomial."""

    monomial: Monomial
    fact: Polynomial
    part: Monomial
    multiplier: Monomial

    def applied(self, polynomial: Polynomial) -> Polynomial:
        """A positive multiple of the polynomial minus a non-negative multiple of the fact."""
        wanted, coefficient = polynomial[self.monomial], self.fact[self.part]
        common = math.gcd(wanted, coefficient)
        scale = abs(coefficient) // common
        remaining = {key: value * scale for key, value in polynomial.items()}
        add_into(remaining, self.fact, -abs(wanted) // common, self.multiplier)
        return remaining


def _cancellations(polynomial: Polynomial, monomial: Monomial, facts: Sequence[Polynomial]) -> list[_Cancellation]:
    rising = polynomial[monomial] > 0
    found: list[_Cancellation] = []
    for fact in (*facts, *_bound_facts(monomial)):
        for part, coefficient in fact.items():
            if part and (coefficient > 0) == rising:
                multiplier = quotient(monomial, part)
                if multiplier is not None and all(_at_least(atom, 0) for atom in multiplier):
                    found.append(_Cancellation(monomial, fact, part, multiplier))
    return found


def _scalings(polynomial: Polynomial, monomial: Monomial) -> Iterator[Polynomial]:
    """For a quotient by s >= 1: s*p + s - 1, since integers with s*p > -s have p >= 0; then s*(x//s) is close to x."""
    for atom in monomial:
        if atom.op is Op.FLOORDIV and _positive(atom.args[1]) and atom.args[1] not in monomial:
            divisor = expand(atom.args[1])
            scaled = multiplied(polynomial, divisor)
            add_into(scaled, divisor, 1)
            add_into(scaled, {(): -1}, 1)
            yield scaled


def _structured_atoms(polynomial: Polynomial) -> list[Expr]:
    atoms = {atom: None for monomial in polynomial for atom in monomial}
    return [atom for atom in atoms if atom.op in _INFORMATIVE]


_COVERAGE: dict[Expr, frozenset[tuple[Expr, bool]]] = {}


def _coverage(atom: Expr) -> frozenset[tuple[Expr, bool]]:
    """(atom, positive): what the facts of this atom, and of the atoms in them, hold as terms or factors of terms."""
    found = _COVERAGE.get(atom)
    if found is None:
        terms = [
            (factor, coefficient > 0)
            for fact in _facts_of_atom(atom)
            for monomial, coefficient in fact.items()
            for factor in monomial
        ]
        inner = {factor for factor, _ in terms if factor is not atom and factor.op in _INFORMATIVE}
        found = _COVERAGE[atom] = frozenset(terms).union(*[_coverage(factor) for factor in inner])
    return found


def may_have_certificate(upper: Expr, lower: Expr) -> bool:
    """False if a search for upper - lower >= 0 without assumptions is certainly in vain; much cheaper than the search.

    It is if some term drives the difference to minus infinity and the facts of no atom can stop it. Only atoms that
    occur in no product are judged: multiples of facts may bring in the others.
    """
    polynomial = dict(expand(upper))
    add_into(polynomial, expand(lower), -1)
    return not _hopeless(polynomial)


def _hopeless(polynomial: Polynomial) -> bool:
    endless = [monomial[0] for monomial in _assess(polynomial).endless if len(monomial) == 1]
    if not endless:
        return False
    in_products = {atom for monomial in polynomial if len(monomial) > 1 for atom in monomial}
    covered = frozenset[tuple[Expr, bool]]().union(*[_coverage(atom) for atom in _structured_atoms(polynomial)])
    return any(atom not in in_products and (atom, polynomial[atom,] > 0) not in covered for atom in endless)


@dataclass(slots=True)
class _Search:
    """One search: the assumptions, what is left of the budget, and the polynomials already tried."""

    assumptions: Sequence[Polynomial]
    budget: int
    scale: bool
    tried: set[frozenset[tuple[Monomial, int]]] = field(default_factory=set[frozenset[tuple[Monomial, int]]])

    def succeeds(self, polynomial: Polynomial, depth: int) -> bool:
        """Whether the polynomial is shown to be non-negative."""
        assessment = _assess(polynomial)
        if not assessment.endless and assessment.lo >= 0:
            return True
        if depth == 0 or len(polynomial) > MAX_MONOMIALS:
            return False
        identity = frozenset(polynomial.items())
        if identity in self.tried:
            return False
        self.tried.add(identity)
        for sufficient in self._sufficient(polynomial, assessment):
            if self.budget <= 0:
                return False
            self.budget -= 1
            if self.succeeds(sufficient, depth - 1):
                return True
        return False

    def _sufficient(self, polynomial: Polynomial, assessment: _Assessment) -> Iterator[Polynomial]:
        """Polynomials each of which, if not negative, shows the same of the given one."""
        facts = [fact for atom in _structured_atoms(polynomial) for fact in _facts_of_atom(atom)]
        facts.extend(self.assumptions)
        if assessment.endless:
            # Each must go. Highest degree first, since multiples of facts leave lower ones behind; if one has no way,
            # the search is in vain.
            degree = max([len(monomial) for monomial in assessment.endless])
            highest = [monomial for monomial in assessment.endless if len(monomial) == degree]
            choices = [(_cancellations(polynomial, monomial, facts), monomial) for monomial in highest]
            ways, monomial = min(choices, key=lambda choice: len(choice[0]))
            blamed = [monomial]
        else:
            blamed = assessment.varying
            ways = [way for monomial in blamed for way in _cancellations(polynomial, monomial, facts)]
        yield from (way.applied(polynomial) for way in ways)
        if self.scale:
            for monomial in blamed:
                yield from _scalings(polynomial, monomial)


def nonnegative(e: Expr, assumptions: Sequence[Polynomial] = (), effort: Effort = QUICK) -> bool:
    """Whether e >= 0 is shown for all values that satisfy the facts and the assumptions (polynomials that are >= 0).

    False means not shown.
    """
    lo = bounds(e).lo
    if lo is not None and lo >= 0:
        return True
    if not assumptions and not _has_structure(e):
        return False
    return _Search(assumptions, effort.budget, effort.scale).succeeds(expand(e), effort.depth)


_INFORMATIVE = frozenset((Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX))
_STRUCTURE = frozenset((Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.MUL, Op.ADD))


def _has_structure(e: Expr) -> bool:
    """Whether anything beyond intervals is known: a plain linear combination of symbols has nothing to offer."""
    return any(factor.op in _STRUCTURE for atom, _ in linear_form(e).terms for factor in (atom, *product_atoms(atom)))
