"""Vector width: how many consecutive elements of an axis can be moved by one aligned access.

For a candidate width V = 2**k the coordinate of the axis is written as V*q + j, and j by its bits. Every form of the
view is then `base + sum(weight[b] * bit b of j)`, with a base that does not depend on j and has a known divisor. The
rules are gcd and divides only, so the known divisor of a symbol stands in for its value. They contain the corrected
rules for transform chains (of rocMLIR's getMaxVectorization) as special cases: Affine and Join are sums, Split and
Modulo are quotients, Slice is an Affine, Pad is a check.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from convloom.errors import IllegalProblem
from convloom.expr import Expr, const, divisor
from convloom.view.flat import Check, Flat
from convloom.view.form import ONE, ZERO, Form, Quotient, Source, Swizzle, constant_value, exact_quotient
from convloom.view.view import View, flat


@dataclass(frozen=True, slots=True)
class _Lanes:
    """`base + sum(weights[b] * bit b)`, one weight per bit of j; base == constant modulo align (align 0: equal)."""

    align: int
    constant: Expr
    weights: tuple[Expr, ...]

    @property
    def varies(self) -> bool:
        """Whether the lanes differ."""
        return any(weight is not ZERO for weight in self.weights)

    def aligned_to(self, origin: Expr) -> int:
        """A divisor of base - origin; 0 if they are equal."""
        return gcd(self.align, divisor(self.constant - origin))


@lru_cache(maxsize=16384)
def vector_width(view: View, axis: str, limit: int) -> int:
    """Largest power of two V <= limit such that V lanes from every V-aligned coordinate of the axis form one vector.

    That is: the axis' extent is a multiple of V; with the other axes fixed, lanes are valid all or none; and where
    valid, their offsets are consecutive and the first is a multiple of V (elements; the base pointer's alignment is
    the caller's matter). Never too large; smaller than possible where nothing is known. 1 for a broadcast axis.
    """
    if axis not in view.extents:
        raise IllegalProblem(f"vector_width needs an axis of the view ({', '.join(view.extents)}); got {axis!r}")
    width = 1 << (max(limit, 1).bit_length() - 1)
    while width > 1 and not _holds(flat(view), axis, view.extents[axis], width):
        width //= 2
    return width


def _holds(view: Flat, axis: str, extent: Expr, width: int) -> bool:
    if divisor(extent) % width != 0 or extent is ZERO:
        return False
    lanes = _Analysis(view, axis, width)
    offset = lanes.form(view.offset)
    return (
        offset is not None
        and offset.aligned_to(ZERO) % width == 0
        and all(constant_value(weight) == 1 << bit for bit, weight in enumerate(offset.weights))
        and all(lanes.uniform(check) for check in view.checks)
    )


class _Analysis:
    """Lanes of the forms of one view, for one axis and width; None where lanes depend on j in another way."""

    def __init__(self, view: Flat, axis: str, width: int) -> None:
        self._axis = axis
        self._bits = width.bit_length() - 1
        whole = constant_value(view.domain.extents[axis]) == width
        self._start = _Lanes(0 if whole else width, ZERO, tuple(ONE * (1 << bit) for bit in range(self._bits)))
        self._memo: dict[Form, _Lanes | None] = {}

    def form(self, form: Form) -> _Lanes | None:
        """Lanes of a form."""
        if form not in self._memo:
            self._memo[form] = self._sum(form)
        return self._memo[form]

    def uniform(self, check: Check) -> bool:
        """Whether the check has one outcome for all lanes of a vector.

        Lanes span least .. most around the base. A limit is crossed by none or all of them if base + least lies a
        multiple of some g above or below it and most - least < g.
        """
        lanes = self.form(check.form)
        if lanes is None:
            return False
        span = _span(lanes.weights)
        if span is None:
            return not lanes.varies
        limits = ([ZERO] if check.lower else []) + ([check.size] if check.upper else [])
        gaps = [lanes.aligned_to(limit - span[0]) for limit in limits]
        return all(gap == 0 or span[1] - span[0] < gap for gap in gaps)

    def _sum(self, form: Form) -> _Lanes | None:
        align, constant = 0, form.constant
        weights = [ZERO] * self._bits
        for atom, coefficient in form.terms.items():
            lanes = self._quotient(atom)
            if lanes is None:
                return None
            align = gcd(align, divisor(coefficient) * lanes.align)
            constant = constant + coefficient * lanes.constant
            weights = [own + coefficient * weight for own, weight in zip(weights, lanes.weights, strict=True)]
        return _Lanes(align, constant, tuple(weights))

    def _quotient(self, atom: Quotient) -> _Lanes | None:
        lanes = self._source(atom.source)
        return lanes if lanes is None or atom.scale is ONE else _divided(lanes, atom.scale)

    def _source(self, source: Source) -> _Lanes | None:
        if isinstance(source, Form):
            return self.form(source)
        if isinstance(source, Swizzle):
            return self._swizzle(source)
        return self._start if source == self._axis else _Lanes(1, ZERO, (ZERO,) * self._bits)

    def _swizzle(self, source: Swizzle) -> _Lanes | None:
        """Lanes of a ^ b where only one side has lanes, below the lowest set bit of both bases: (base ^ b) + lanes."""
        left, right = self.form(source.left), self.form(source.right)
        if left is None or right is None or (left.varies and right.varies):
            return None
        granule = _power_of_two(gcd(left.aligned_to(ZERO), right.aligned_to(ZERO)))
        moving = left if left.varies else right
        span = _span(moving.weights)
        if span is None or span[0] < 0 or (granule and span[1] >= granule):
            return None
        return _Lanes(granule, ZERO, moving.weights)


def _divided(lanes: _Lanes, by: Expr) -> _Lanes | None:
    """Lanes of value // by: weights that `by` divides go out; the others must never carry over a multiple of `by`."""
    out: list[Expr] = []
    left: list[Expr] = []
    for weight in lanes.weights:
        exact = exact_quotient(weight, by)
        out.append(ZERO if exact is None else exact)
        left.append(weight if exact is None else ZERO)
    span = _span(tuple(left))
    constant, number = constant_value(lanes.constant), constant_value(by)
    align = lanes.align if constant is not None else lanes.aligned_to(ZERO)
    room = gcd(align, divisor(by))
    offset = (constant or 0) % room
    if span is None or offset + span[0] < 0 or offset + span[1] >= room:
        return None
    if number is not None and align % number == 0:
        return _Lanes(align // number, const((constant or 0) // number), tuple(out))
    return _Lanes(1, ZERO, tuple(out))


def _span(weights: tuple[Expr, ...]) -> tuple[int, int] | None:
    """Lowest and highest value of the weighted bits, None if a weight is symbolic."""
    least = most = 0
    for weight in weights:
        number = constant_value(weight)
        if number is None:
            return None
        least, most = least + min(number, 0), most + max(number, 0)
    return least, most


def _power_of_two(value: int) -> int:
    """The largest power of two that divides the value; 0 for 0."""
    return value & -value
