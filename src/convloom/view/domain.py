"""Ranges and floor division of forms over the axes of one view, with what the view's guards have made known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd

from convloom.expr import Expr, Truth, bounds, ceil_div, const, evaluate, free_symbols, prove
from convloom.view.form import (
    NOTHING,
    ONE,
    ZERO,
    Digit,
    Form,
    Quotient,
    Range,
    Source,
    Swizzle,
    axis_form,
    combine,
    constant_value,
    exact_quotient,
    never_negative,
    never_positive,
)


@lru_cache(maxsize=65536)
def provable(predicate: Expr) -> bool:
    """Whether the predicate is proved for every value of its symbols.

    A few values of the symbols are tried first: most predicates that cannot be proved fail there, and that is much
    cheaper than a search for a proof.
    """
    known = constant_value(predicate)
    if known is not None:
        return known != 0
    return not _fails_somewhere(predicate) and prove(predicate) is Truth.YES


_SAMPLES = (0, 1, 4)  # how many steps above its least value a symbol is tried; the next symbol gets one more


def _fails_somewhere(predicate: Expr) -> bool:
    symbols = sorted(free_symbols(predicate), key=lambda symbol: symbol.key)
    for step in _SAMPLES:
        values = {
            symbol.name: _sample(symbol, step + (position if step else 0)) for position, symbol in enumerate(symbols)
        }
        try:
            if not evaluate(predicate, values):
                return True
        except ZeroDivisionError:  # a divisor of zero is outside the predicate's domain
            continue
    return False


def _sample(symbol: Expr, steps: int) -> int:
    """A value that the symbol's facts allow: positive if possible, `steps` multiples of its divisor above the least."""
    facts = symbol.facts
    least = facts.divisor if facts.lo is None or facts.lo < 1 else facts.lo
    value = -(-least // facts.divisor) * facts.divisor + steps * facts.divisor
    return value if facts.hi is None else min(value, facts.hi // facts.divisor * facts.divisor)


@lru_cache(maxsize=16384)
def divisor_chain(scales: frozenset[Expr]) -> tuple[Expr, ...] | None:
    """The scales ordered so that each divides the next, or None."""
    left = list(scales)
    ordered: list[Expr] = []
    while left:
        first = next((s for s in left if all(exact_quotient(t, s) is not None for t in left)), None)
        if first is None:
            return None
        ordered.append(first)
        left.remove(first)
    return tuple(ordered)


def _form_of(source: Form | Swizzle) -> Form:
    return source if isinstance(source, Form) else Form(ZERO, {Quotient(source, ONE): ONE})


def digit_form(digit: Digit) -> Form:
    """The form of the digit's value (without its stride)."""
    terms = {Quotient(digit.source, digit.scale): ONE}
    if digit.extent is not None:
        terms[Quotient(digit.source, digit.scale * digit.extent)] = -digit.extent
    return Form(ZERO, terms)


class Domain:
    """Analyses of forms whose axes run over their extents; one per view, as it remembers the guards passed so far."""

    def __init__(self, extents: Mapping[str, Expr]) -> None:
        self.extents = extents
        self._ranges: dict[Form, Range] = {}
        self._quotients: dict[tuple[Form, Expr], Form] = {}

    def guard(self, form: Form, lower: bool, size: Expr) -> tuple[bool, bool]:
        """Which of the checks form >= 0 (if `lower`) and form < size are needed; from here on both count as known."""
        low, high = self.range(form)
        need_lower = lower and not (low is not None and provable(low.ge(ZERO)))
        need_upper = not (high is not None and provable(high.lt(size)))
        self._ranges[form] = (ZERO if need_lower else low, size - ONE if need_upper else high)
        return need_lower, need_upper

    def range(self, form: Form) -> Range:
        """Inclusive bounds of the form as expressions in the sizes; None where unknown."""
        found = self._ranges.get(form)
        if found is None:
            found = self._ranges[form] = self._sum_ranges(form)
        return found

    def _sum_ranges(self, form: Form) -> Range:
        low: Expr | None = form.constant
        high: Expr | None = form.constant
        for digit in self.digits(form):
            least, most = _scaled(digit)
            low = None if low is None or least is None else low + least
            high = None if high is None or most is None else high + most
        return low, high

    def digits(self, form: Form) -> list[Digit]:
        """The form's terms as independent mixed-radix digits; where an axis' scales form no chain, its quotients."""
        if len(form.terms) == 1:
            ((atom, coefficient),) = form.terms.items()
            return [self._slowest(atom.source, atom.scale, coefficient)]
        by_source: dict[Source, dict[Expr, Expr]] = {}
        for atom, coefficient in form.terms.items():
            by_source.setdefault(atom.source, {})[atom.scale] = coefficient
        return [digit for source, terms in by_source.items() for digit in self.source_digits(source, terms)]

    def source_digits(self, source: Source, terms: Mapping[Expr, Expr]) -> list[Digit]:
        """Digits of one source, fastest first, from its scale -> coefficient; digits of stride 0 are left out."""
        chain = divisor_chain(frozenset(terms))
        if chain is None:
            return [self._slowest(source, scale, coefficient) for scale, coefficient in terms.items()]
        digits: list[Digit] = []
        for position, scale in enumerate(chain):
            stride = digit_stride(terms, chain[: position + 1], scale)
            if stride is ZERO:
                continue
            if position + 1 == len(chain):
                digits.append(self._slowest(source, scale, stride))
            else:
                extent = quotient_of(chain[position + 1], scale)
                digits.append(Digit(source, scale, ZERO, extent - ONE, extent, stride))
        return digits

    def _slowest(self, source: Source, scale: Expr, stride: Expr) -> Digit:
        low, high = self._source_range(source)
        return Digit(
            source,
            scale,
            None if low is None else _floor(low, scale),
            None if high is None else _highest(high, scale),
            None,
            stride,
        )

    def _source_range(self, source: Source) -> Range:
        if isinstance(source, str):
            return ZERO, self.extents[source] - ONE
        if isinstance(source, Form):
            return self.range(source)
        return ZERO, self._swizzle_high(source)

    def _swizzle_high(self, source: Swizzle) -> Expr | None:
        highs = [self.range(side)[1] for side in (source.left, source.right)]
        known = [bounds(high).hi for high in highs if high is not None]
        if len(known) != 2 or known[0] is None or known[1] is None:
            return None
        return const((1 << max(known[0], known[1]).bit_length()) - 1)

    def slowest_extent(self, source: Source, scale: Expr) -> Expr:
        """Number of values of source // scale; the source must have a known highest value (axes have)."""
        if isinstance(source, str):
            extent = self.extents[source]
            exact = exact_quotient(extent, scale)
            return ceil_div(extent, scale) if exact is None else exact
        high = self._source_range(source)[1]
        return ONE if high is None else _highest(high, scale) + ONE

    def remainder(self, form: Form, by: Expr) -> Form:
        """The form of form % by (by > 0)."""
        return combine(((form, ONE), (self.quotient(form, by), -by)))

    def quotient(self, form: Form, by: Expr) -> Form:
        """The form of form // by (by > 0).

        Exact terms come out: (n*a + b) // n = a + b//n. What is left is 0 where its range lies in [0, n), a slower
        digit where it is one digit, or (h*c + l) // n = h // (n/c) where c divides n and l lies in [0, c). Else it
        is an opaque quotient.
        """
        if by is ONE:
            return form
        key = (form, by)
        found = self._quotients.get(key)
        if found is None:
            found = self._quotients[key] = self._divide(form, by)
        return found

    def _divide(self, form: Form, by: Expr) -> Form:
        whole = self._constant_quotient(form, by)
        if whole is not None:
            return whole
        exact: list[tuple[Form, Expr]] = []
        rest: list[Digit] = []
        for digit in self.digits(form):
            factor = exact_quotient(digit.stride, by)
            if factor is None:
                rest.append(digit)
            else:
                exact.append((digit_form(digit), factor))
        outside, inside = _divide_constant(form.constant, by)
        if not exact and outside is ZERO:
            return self._divide_rest(form, rest, by)
        residue = combine(((digit_form(d), d.stride) for d in rest), inside)
        return combine([*exact, (self._divide_residue(residue, rest, by), ONE)], outside)

    def _divide_residue(self, residue: Form, rest: list[Digit], by: Expr) -> Form:
        whole = self._constant_quotient(residue, by)
        return self._divide_rest(residue, rest, by) if whole is None else whole

    def _divide_signed(self, form: Form, rest: list[Digit], by: Expr) -> Form | None:
        """Falling forms as -((-u + n - 1) // n); numeric strides s as s // n outside and s % n inside; else None."""
        if all(never_positive(digit.stride) for digit in rest):
            turned = self.quotient(combine(((form, -ONE),), by - ONE), by)
            return combine(((turned, -ONE),))
        outside: list[tuple[Form, Expr]] = []
        inside: list[tuple[Form, Expr]] = []
        for digit in rest:
            whole, left = _divide_constant(digit.stride, by)
            outside.append((digit_form(digit), whole))
            inside.append((digit_form(digit), left))
        if all(whole is ZERO for _, whole in outside):
            return None
        return combine([*outside, (self.quotient(combine(inside, form.constant), by), ONE)])

    def _constant_quotient(self, form: Form, by: Expr) -> Form | None:
        low, high = self.range(form)
        if low is None or high is None:
            return None
        if never_negative(low) and never_negative(by - high - ONE):
            return NOTHING
        first, last, step = constant_value(low), constant_value(high), constant_value(by)
        if first is None or last is None or step is None or first // step != last // step:
            return None
        return Form(const(first // step), {})

    def _divide_rest(self, form: Form, rest: list[Digit], by: Expr) -> Form:
        if not rest:
            return Form(form.constant // by, {})
        signed = self._divide_signed(form, rest, by)
        if signed is not None:
            return signed
        single = self._divide_digit(form, rest, by)
        if single is not None:
            return single
        for factor in _common_factors(rest):
            reduced = self._divide_by_factor(form, rest, by, factor)
            if reduced is not None:
                return reduced
        nested = self._divide_nested(form, by)
        return Form(ZERO, {Quotient(form, by): ONE}) if nested is None else nested

    def _divide_nested(self, form: Form, by: Expr) -> Form | None:
        """(a + b // m) // n as (m*a + b) // (m*n), so that dividing in steps and at once give the same form."""
        candidates = [atom for atom, own in form.terms.items() if own is ONE and atom.scale is not ONE]
        if not candidates:
            return None
        inner = max(candidates, key=lambda atom: (isinstance(atom.source, Form), atom.scale.key, repr(atom.source)))
        source = axis_form(inner.source) if isinstance(inner.source, str) else _form_of(inner.source)
        rest = Form(form.constant, {atom: own for atom, own in form.terms.items() if atom != inner})
        return self.quotient(combine(((rest, inner.scale), (source, ONE))), inner.scale * by)

    def _divide_digit(self, form: Form, rest: list[Digit], by: Expr) -> Form | None:
        if len(rest) != 1 or rest[0].stride is not ONE or form.constant is not ZERO:
            return None
        digit = rest[0]
        quotient = self._source_quotient(digit.source, digit.scale * by)
        if digit.extent is None:
            return quotient
        slower = exact_quotient(digit.extent, by)
        if slower is None:
            return None
        return combine(((quotient, ONE), (self._source_quotient(digit.source, digit.scale * digit.extent), -slower)))

    def _source_quotient(self, source: Source, scale: Expr) -> Form:
        """The form of source // scale; a form may divide by a product of scales better than by one after another."""
        return self.quotient(source, scale) if isinstance(source, Form) else Form(ZERO, {Quotient(source, scale): ONE})

    def _divide_by_factor(self, form: Form, rest: list[Digit], by: Expr, factor: Expr) -> Form | None:
        smaller = exact_quotient(by, factor)
        if smaller is None:
            return None
        outside, inside = _divide_constant(form.constant, factor)
        high: list[tuple[Form, Expr]] = []
        low: list[tuple[Form, Expr]] = []
        for digit in rest:
            times = exact_quotient(digit.stride, factor)
            if times is None:
                low.append((digit_form(digit), digit.stride))
            else:
                high.append((digit_form(digit), times))
        least, most = self.range(combine(low, inside))
        if least is None or most is None or not (never_negative(least) and never_negative(factor - most - ONE)):
            return None
        return self.quotient(combine(high, outside), smaller)


def digit_stride(terms: Mapping[Expr, Expr], faster: Iterable[Expr], scale: Expr) -> Expr:
    """What a step of the digit at `scale` adds, given scale -> coefficient: quotients at faster scales step too."""
    total = ZERO
    for own in faster:
        coefficient = terms.get(own)
        if coefficient is not None:
            total = total + coefficient * quotient_of(scale, own)
    return total


def quotient_of(value: Expr, by: Expr) -> Expr:
    """The quotient value / by, which must be exact."""
    found = exact_quotient(value, by)
    return value // by if found is None else found


def _floor(value: Expr, by: Expr) -> Expr:
    return value if by is ONE or value is ZERO else value // by


def _highest(high: Expr, scale: Expr) -> Expr:
    """The quotient high // scale, in the simple form n - 1 where high + 1 == n * scale."""
    if scale is ONE or high is ZERO:
        return high
    whole = exact_quotient(high + ONE, scale)
    return high // scale if whole is None else whole - ONE


def _scaled(digit: Digit) -> Range:
    """Bounds of stride * digit."""
    if never_negative(digit.stride):
        least, most = digit.low, digit.high
    elif never_positive(digit.stride):
        least, most = digit.high, digit.low
    else:
        return None, None
    return _product(least, digit.stride), _product(most, digit.stride)


def _product(end: Expr | None, stride: Expr) -> Expr | None:
    """As (end + 1) * stride - stride, because an end is an extent - 1 and products of extents are to stay whole."""
    if end is None or end.is_const or stride.is_const:
        return None if end is None else end * stride
    return (end + ONE) * stride - stride


def _divide_constant(value: Expr, by: Expr) -> tuple[Expr, Expr]:
    """(q, r) with value == q * by + r, and 0 <= r < by where both are numbers."""
    number, divisor = constant_value(value), constant_value(by)
    if number is not None and divisor is not None:
        return const(number // divisor), const(number % divisor)
    exact = exact_quotient(value, by)
    return (ZERO, value) if exact is None else (exact, ZERO)


def _common_factors(digits: list[Digit]) -> list[Expr]:
    """Candidates for the factor of a division: the strides, and the greatest common divisor of numeric ones."""
    numbers = [constant_value(digit.stride) for digit in digits]
    known = [number for number in numbers if number is not None]
    candidates = dict.fromkeys(digit.stride for digit in digits if never_negative(digit.stride))
    if known and len(known) == len(digits):
        candidates[const(gcd(*known))] = None
    candidates.pop(ONE, None)
    return list(candidates)
