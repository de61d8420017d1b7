"""Linear forms over quotients of axes: the canonical values that every analysis of a view works on.

Any coordinate of a view is written as `constant + sum(coefficient * (source // scale))`, where a source is an axis or,
where nothing simpler exists, another form. `i % n` is `i - n * (i // n)`, so what a split takes apart and a join puts
together again cancels by itself, and two chains that compute the same index usually have the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias

from convloom.expr import Expr, Op, bounds, const, divisor, linear_form

ZERO = const(0)
ONE = const(1)


@dataclass(frozen=True, slots=True)
class Quotient:
    """The atom `source // scale`; the source is an axis name, a form, or a swizzle of two forms."""

    source: Source
    scale: Expr


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The exclusive or of two forms."""

    left: Form
    right: Form


class Form:
    """An immutable `constant + sum(coefficient * quotient)` without zero terms; equal as a function of its atoms."""

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, constant: Expr, terms: Mapping[Quotient, Expr]) -> None:
        self.constant = constant
        self.terms = terms
        self._hash = hash((constant, frozenset(terms.items())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Form):
            return NotImplemented
        return self is other or (
            self._hash == other._hash and self.constant is other.constant and self.terms == other.terms
        )

    def shift(self, other: Form) -> Expr | None:
        """The constant by which self exceeds other, None if their terms differ."""
        return self.constant - other.constant if self.terms == other.terms else None

    def __repr__(self) -> str:
        parts = [f"{c}*({q.source!r}//{q.scale})" for q, c in self.terms.items()]
        return " + ".join([*parts, str(self.constant)])


NOTHING = Form(ZERO, {})


Source: TypeAlias = str | Form | Swizzle


@dataclass(frozen=True, slots=True)
class Digit:
    """`source // scale % extent` and its stride in a form; the slowest digit has no extent. Range: low .. high."""

    source: Source
    scale: Expr
    low: Expr | None
    high: Expr | None
    extent: Expr | None
    stride: Expr


Range: TypeAlias = tuple[Expr | None, Expr | None]


def axis_form(name: str) -> Form:
    """The form of an axis itself."""
    return Form(ZERO, {Quotient(name, ONE): ONE})


def constant_form(value: Expr) -> Form:
    """A form without terms."""
    return Form(value, {})


def combine(parts: Iterable[tuple[Form, Expr]], constant: Expr = ZERO) -> Form:
    """The sum of form * coefficient over the parts, plus the constant."""
    terms: dict[Quotient, Expr] = {}
    for form, coefficient in parts:
        constant = constant + form.constant * coefficient
        for atom, own in form.terms.items():
            before = terms.get(atom)
            product = own * coefficient
            terms[atom] = product if before is None else before + product
    return Form(constant, {atom: total for atom, total in terms.items() if total is not ZERO})


@lru_cache(maxsize=65536)
def exact_quotient(value: Expr, by: Expr) -> Expr | None:
    """The quotient value / by where `by` (>= 1) is known to divide value, else None; divisor facts count."""
    if by is ONE:
        return value
    if by.is_const and divisor(value) % by.value == 0:
        return value // by
    content, atoms = _factors(by)
    whole = _cancel(value, content, atoms)
    if whole is not None or value.op is not Op.ADD:
        return whole
    constant, terms = linear_form(value)
    parts = [_cancel(const(constant), content, atoms), *(_cancel(a * c, content, atoms) for a, c in terms)]
    known = [part for part in parts if part is not None]
    return sum(known, ZERO) if len(known) == len(parts) else None


def _factors(value: Expr) -> tuple[int, list[Expr]]:
    """(content, atoms) with value == content * product(atoms)."""
    constant, terms = linear_form(value)
    if len(terms) == 1 and constant == 0:
        ((atom, content),) = terms
        return content, list(atom.args) if atom.op is Op.MUL else [atom]
    content = gcd(constant, *(coefficient for _, coefficient in terms))
    return (content, [value // content]) if terms else (constant, [])


def _cancel(value: Expr, content: int, atoms: list[Expr]) -> Expr | None:
    if value is ZERO:
        return ZERO
    own, left = _factors(value)
    if content == 0 or own % content:
        return None
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return prod(left, start=const(own // content))


def constant_value(value: Expr) -> int | None:
    """The value of a constant expression, else None."""
    return value.value if value.is_const else None


def never_negative(value: Expr) -> bool:
    """Whether value >= 0 is known from the facts alone."""
    low = bounds(value).lo
    return low is not None and low >= 0


def never_positive(value: Expr) -> bool:
    """Whether value <= 0 is known from the facts alone."""
    high = bounds(value).hi
    return high is not None and high <= 0
