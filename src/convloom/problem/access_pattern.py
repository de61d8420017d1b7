"""Access patterns: what an operand's view computes, as one offset expression and range checks over the axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convloom.errors import NotYetSupported
from convloom.expr import (
    Expr,
    Op,
    bounds,
    const,
    free_symbols,
    linear_form,
    local_sym,
    maximum,
    minimum,
    sum_of,
    to_text,
)
from convloom.view import OFFSET, Affine, Axis, Broadcast, Check, Pad, PadTo, Split, Transform, View, Xor
from convloom.view.form import Form, Source
from convloom.view.view import flat


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """`0 <= value < size`; one side alone where `lower` is False or `size` is None."""

    value: Expr
    size: Expr | None
    lower: bool

    @property
    def text(self) -> str:
        """Canonical words of the check."""
        above = "" if self.size is None else f"<{compact(self.size)}"
        return f"{'0<=' if self.lower else ''}{compact(self.value)}{above}"


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """Offset in elements and checks, in terms of `axis_symbol` of each axis; equal accesses are equal patterns."""

    offset: Expr
    checks: tuple[RangeCheck, ...]


def axis_symbol(axis: Axis) -> Expr:
    """The coordinate of an axis as a symbol with its range as facts."""
    hi = bounds(axis.extent).hi
    return local_sym(axis.name, lo=0, hi=None if hi is None else max(hi - 1, 0))


def compact(expression: Expr) -> str:
    """The expression's text without blanks (those around words stay)."""
    text = to_text(expression)
    return text if " and " in text or " or " in text or "not " in text else text.replace(" ", "")


# --- from a view ----------------------------------------------------------------------------------------------------


def access_pattern(view: View) -> AccessPattern:
    """The pattern of a view: forms of its offset and of the checks that are not proved."""
    found = flat(view)
    symbols = {axis.name: axis_symbol(axis) for axis in view.axes}
    checks = set(_range_checks(found.checks, lambda form: _expression(form, symbols)))
    if any(map(_never_holds, checks)):
        return NEVER
    return AccessPattern(_expression(found.offset, symbols), tuple(sorted(checks, key=lambda check: check.text)))


NEVER = AccessPattern(const(0), (RangeCheck(const(0), const(0), False),))
"""No element is valid, so that the offset says nothing."""


def _never_holds(check: RangeCheck) -> bool:
    value = bounds(check.value)
    too_low = check.lower and value.hi is not None and value.hi < 0
    if check.size is None or too_low:
        return too_low
    most = bounds(check.size - check.value).hi
    return most is not None and most <= 0


def _range_checks(checks: Iterable[Check], read: Callable[[Form], Expr]) -> Iterable[RangeCheck]:
    """One-sided checks turned to the canonical sign, sides of one value joined, constants moved to the size."""
    below: dict[Expr, Expr] = {}  # value without constant -> least value of the constant-free part
    above: dict[Expr, Expr] = {}  # value without constant -> what it stays under
    for check in checks:
        value = read(check.form)
        constant = const(linear_form(value).constant)
        terms = value - constant
        if check.lower:
            _note(below, above, terms, -constant, from_below=True)
        if check.upper:
            _note(below, above, terms, check.size - constant, from_below=False)
    for terms, size in above.items():
        least = below.pop(terms, None)
        yield RangeCheck(terms, size, False) if least is None else RangeCheck(terms - least, size - least, True)
    for terms, least in below.items():
        yield RangeCheck(terms - least, None, True)


def _note(below: dict[Expr, Expr], above: dict[Expr, Expr], terms: Expr, limit: Expr, *, from_below: bool) -> None:
    """Records `terms >= limit` or `terms < limit`, with the sign that has fewer negative terms.

    Several limits of one value: all hold, so the tighter one is kept where that is known, else the joint expression.
    """
    if _is_negative(terms):
        terms, limit, from_below = -terms, 1 - limit, not from_below
    table, joint = (below, maximum) if from_below else (above, minimum)
    table[terms] = joint(table[terms], limit) if terms in table else limit


def _is_negative(terms: Expr) -> bool:
    signs = [coefficient < 0 for _, coefficient in linear_form(terms).terms]
    negative = sum(signs)
    return 2 * negative > len(signs) or (2 * negative == len(signs) and bool(signs) and signs[0])


def _expression(form: Form, symbols: dict[str, Expr]) -> Expr:
    return sum_of([form.constant, *(_source(atom.source, symbols) // atom.scale * c for atom, c in form.terms.items())])


def _source(source: Source, symbols: dict[str, Expr]) -> Expr:
    if isinstance(source, str):
        return symbols[source]
    if isinstance(source, Form):
        return _expression(source, symbols)
    raise NotYetSupported(
        f"operands of a contraction have no swizzled addresses; got {Xor.__name__}; lay the tensor out anew"
    )


# --- to a view ------------------------------------------------------------------------------------------------------


def pattern_view(axes: tuple[Axis, ...], pattern: AccessPattern) -> View:
    """A view over exactly these axes that computes the pattern: one Affine per sum, one Split per division."""
    writer = _ViewWriter(axes)
    for check in pattern.checks:
        writer.check(check)
    writer.affine(pattern.offset, OFFSET)
    return writer.view()


class _ViewWriter:
    """Turns expressions over axis symbols into transforms; equal sub-expressions become one coordinate."""

    def __init__(self, axes: tuple[Axis, ...]) -> None:
        self._axes = axes
        self._names: dict[Expr, str] = {axis_symbol(axis): axis.name for axis in axes}
        self._symbols = frozenset(self._names)
        self._transforms: list[Transform] = []
        self._count = 0

    def view(self) -> View:
        """The chain written so far; coordinates that nothing uses are dropped explicitly."""
        names = dict.fromkeys(axis.name for axis in self._axes)
        for transform in self._transforms:
            names.update(dict.fromkeys(transform.outputs))
        for transform in self._transforms:
            for name in transform.inputs:
                names.pop(name, None)
        return View(self._axes, (*self._transforms, *(Broadcast(name) for name in names if name != OFFSET)))

    def check(self, check: RangeCheck) -> None:
        """A guard on the value: Pad for both sides, PadTo for one (0 <= v is -v < 1)."""
        if check.size is not None and check.lower:
            self._transforms.append(Pad(self._coordinate(check.value), self._fresh(), 0, check.size))
        elif check.size is not None:
            self._transforms.append(PadTo(self._coordinate(check.value), self._fresh(), check.size))
        else:
            self._transforms.append(PadTo(self._coordinate(-check.value), self._fresh(), 1))

    def affine(self, expression: Expr, output: str) -> None:
        """The sum as one Affine."""
        inputs: list[str] = []
        coefficients: list[Expr] = []
        constant, terms = linear_form(expression)
        shift = const(constant)
        for atom, number in terms:
            coordinate, factor = self._coordinate_factor(atom)
            if coordinate is None:
                shift = shift + factor * number
            else:
                inputs.append(self._coordinate(coordinate))
                coefficients.append(factor * number)
        self._transforms.append(Affine(inputs, output, coefficients, shift))

    def _coordinate_factor(self, atom: Expr) -> tuple[Expr | None, Expr]:
        """An atom as (part that depends on axes, factor that does not)."""
        if not self._depends(atom):
            return None, atom
        if atom.op is not Op.MUL:
            return atom, const(1)
        depending = [factor for factor in atom.args if self._depends(factor)]
        if len(depending) != 1:
            raise NotYetSupported(f"offsets are linear in the axes; got the product {atom!r}; use plain strides")
        rest = const(1)
        for factor in atom.args:
            rest = rest if factor is depending[0] else rest * factor
        return depending[0], rest

    def _depends(self, expression: Expr) -> bool:
        return not self._symbols.isdisjoint(free_symbols(expression))

    def _coordinate(self, expression: Expr) -> str:
        found = self._names.get(expression)
        if found is not None:
            return found
        if expression.op in (Op.FLOORDIV, Op.MOD):
            self._split(*expression.args)
            return self._names[expression]
        name = self._fresh()
        self.affine(expression, name)
        self._names[expression] = name
        return name

    def _split(self, dividend: Expr, divisor: Expr) -> None:
        source = self._coordinate(dividend)
        quotient, rest = self._fresh(), self._fresh()
        hi = bounds(dividend // divisor).hi
        self._transforms.append(Split(source, (quotient, rest), (const(1 if hi is None else hi + 1), divisor)))
        self._names[dividend // divisor] = quotient
        self._names[dividend % divisor] = rest

    def _fresh(self) -> str:
        self._count += 1
        return f"c{self._count}"
