"""Search for a certificate that an expression is never negative.

The expression is expanded to a polynomial over atoms. Known inequalities F >= 0 (of a floor quotient: 0 <= x - s*(x//s)
< s, of a minimum: each argument minus it, of a bounded atom: its distance to the bounds, and the assumptions) are
subtracted with non-negative multipliers until interval analysis shows that what remains is not negative. Then the
expression is a sum of non-negative things: a linear case of Farkas' lemma, with products of atoms as multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from convloom.expr.bounds import Bounds, bounds, plus, times, times_constant
from convloom.expr.node import Expr, Op, fold, intern, key_of
from convloom.expr.sums import linear_form, product_atoms

Monomial = tuple[Expr, ...]  # sorted atoms; () is the constant
Polynomial = Mapping[Monomial, int]

_MAX_MONOMIALS = 48
_MAX_DEPTH = 8
_EXPANDED: dict[Expr, Polynomial] = {}


def expand(e: Expr) -> Polynomial:
    """The expression as a polynomial over atoms, products of sums multiplied out (very large ones stay atoms)."""
    return fold(e, _EXPANDED, _expand_step)


def _expand_step(node: Expr, memo: Mapping[Expr, Polynomial]) -> Polynomial:
    if node.op is Op.CONST:
        return {(): node.value} if node.value else {}
    if node.op is Op.ADD:
        result: dict[Monomial, int] = {}
        for arg in node.args:
            _add_into(result, memo[arg], 1, ())
        return result
    if node.op is Op.MUL:
        return _expand_product(node, memo)
    return {(node,): 1}


def _expand_product(node: Expr, memo: Mapping[Expr, Polynomial]) -> Polynomial:
    result = memo[node.args[0]]
    for arg in node.args[1:]:
        other = memo[arg]
        if len(result) * len(other) > _MAX_MONOMIALS:
            return {(node,): 1}
        product: dict[Monomial, int] = {}
        for monomial, coefficient in other.items():
            _add_into(product, result, coefficient, monomial)
        result = product
    return result


def _add_into(target: dict[Monomial, int], other: Polynomial, factor: int, multiplier: Monomial) -> None:
    """Adds factor * multiplier * other to the target."""
    for monomial, coefficient in other.items():
        key = tuple(sorted(monomial + multiplier, key=key_of)) if multiplier else monomial
        total = target.get(key, 0) + factor * coefficient
        if total:
            target[key] = total
        else:
            target.pop(key, None)


def _monomial_bounds(monomial: Monomial) -> Bounds:
    result = Bounds(1, 1)
    for atom in monomial:
        result = times(result, bounds(atom))
    if (result.lo is None or result.lo < 0) and all(monomial.count(atom) % 2 == 0 for atom in monomial):
        return Bounds(0, result.hi)
    return result


def _lower(polynomial: Polynomial) -> tuple[int | None, list[Monomial]]:
    """(lower bound, the monomials to blame): those without a bound if there are any, else all that vary."""
    total: Bounds = Bounds(0, 0)
    endless: list[Monomial] = []
    varying: list[Monomial] = []
    for monomial, coefficient in polynomial.items():
        part = times_constant(_monomial_bounds(monomial), coefficient)
        total = plus(total, part)
        if part.lo is None:
            endless.append(monomial)
        elif part.lo != part.hi:
            varying.append(monomial)
    return total.lo, endless or varying


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


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Quotient monomial / part, or None if it is not a multiple."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


@dataclass(slots=True)
class _Search:
    """One search: the assumptions, what is left of the budget, and the polynomials already tried."""

    assumptions: Sequence[Polynomial]
    budget: int
    tried: set[frozenset[tuple[Monomial, int]]] = field(default_factory=set[frozenset[tuple[Monomial, int]]])

    def succeeds(self, polynomial: Polynomial, depth: int) -> bool:
        """Whether the polynomial is shown to be non-negative."""
        lo, blamed = _lower(polynomial)
        if lo is not None and lo >= 0:
            return True
        identity = frozenset(polynomial.items())
        if depth == 0 or identity in self.tried or len(polynomial) > _MAX_MONOMIALS:
            return False
        self.tried.add(identity)
        for sufficient in self._sufficient(polynomial, blamed):
            if self.budget <= 0:
                return False
            self.budget -= 1
            if self.succeeds(sufficient, depth - 1):
                return True
        return False

    def _sufficient(self, polynomial: Polynomial, blamed: list[Monomial]) -> Iterator[Polynomial]:
        """Polynomials each of which, if not negative, shows the same of the given one."""
        shared = [fact for atom in _structured_atoms(polynomial) for fact in _facts_of_atom(atom)]
        shared.extend(self.assumptions)
        for monomial in blamed:
            for fact in shared:
                yield from _subtractions(polynomial, monomial, fact)
            for fact in _bound_facts(monomial):
                yield from _subtractions(polynomial, monomial, fact)
        for monomial in blamed:
            yield from _scalings(polynomial, monomial)


def _structured_atoms(polynomial: Polynomial) -> list[Expr]:
    atoms = {atom: None for monomial in polynomial for atom in monomial}
    return [atom for atom in atoms if atom.op not in (Op.SYM, Op.SELECT)]


def _scalings(polynomial: Polynomial, monomial: Monomial) -> Iterator[Polynomial]:
    """For a quotient by s >= 1: s*p + s - 1, since integers with s*p > -s have p >= 0; then s*(x//s) is close to x."""
    for atom in monomial:
        if atom.op is Op.FLOORDIV and _positive(atom.args[1]) and atom.args[1] not in monomial:
            divisor = expand(atom.args[1])
            scaled: dict[Monomial, int] = {}
            for part, coefficient in divisor.items():
                _add_into(scaled, polynomial, coefficient, part)
            _add_into(scaled, divisor, 1, ())
            _add_into(scaled, {(): -1}, 1, ())
            yield scaled


def _subtractions(polynomial: Polynomial, monomial: Monomial, fact: Polynomial) -> Iterator[Polynomial]:
    """Positive multiples of the polynomial minus multiples of the fact such that the monomial cancels."""
    wanted = polynomial[monomial]
    for part, coefficient in fact.items():
        if not part or (coefficient > 0) != (wanted > 0):
            continue
        multiplier = _without(monomial, part)
        if multiplier is None or not all(_at_least(atom, 0) for atom in multiplier):
            continue
        common = math.gcd(wanted, coefficient)
        remaining = {key: value * (abs(coefficient) // common) for key, value in polynomial.items()}
        _add_into(remaining, fact, -abs(wanted) // common, multiplier)
        yield remaining


def nonnegative(e: Expr, assumptions: Sequence[Polynomial] = (), budget: int = 40) -> bool:
    """Whether e >= 0 is shown for all values that satisfy the facts and the assumptions (polynomials that are >= 0).

    False means not shown. `budget` limits the number of subtractions tried.
    """
    lo = bounds(e).lo
    if lo is not None and lo >= 0:
        return True
    if not assumptions and not _has_structure(e):
        return False
    return _Search(assumptions, budget).succeeds(expand(e), _MAX_DEPTH)


_STRUCTURED = frozenset((Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.MUL, Op.ADD))


def _has_structure(e: Expr) -> bool:
    """Whether anything beyond intervals is known: a plain linear combination of symbols has nothing to offer."""
    return any(factor.op in _STRUCTURED for atom, _ in linear_form(e).terms for factor in (atom, *product_atoms(atom)))
