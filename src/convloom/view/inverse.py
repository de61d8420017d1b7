"""Inverses: of single transforms, and of a view that maps its coordinates one to one to offsets."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.expr import Expr
from convloom.view.domain import divisor_chain, provable
from convloom.view.form import ONE, ZERO, constant_value, never_negative, never_positive
from convloom.view.structure import structure
from convloom.view.transform import OFFSET, Affine, Broadcast, Const, Join, Pass, Slice, Split, Transform
from convloom.view.view import View, flat, fresh_name


def invert(transform: Transform) -> Transform | None:
    """The transform from outputs back to inputs, None where there is none.

    Pass, Split and Join (for digits within their extents), Slice by step 1, and Affine of one input by 1 or -1.
    """
    match transform:
        case Pass(source, output):
            return Pass(output, source)
        case Split(source, outputs, extents):
            return Join(outputs, source, extents)
        case Join(inputs, output, extents):
            return Split(output, inputs, extents)
        case Slice() if transform.step is ONE:
            return Slice(transform.output, transform.input, -transform.begin)
        case Affine((source,), output, (coefficient,), constant) if constant_value(coefficient) in (1, -1):
            return Affine((output,), source, (coefficient,), -coefficient * constant)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Place:
    """One digit of an axis: its place among all digits, outermost first, extent, stride without sign and coordinate."""

    axis: str
    position: int
    extent: Expr
    stride: Expr
    reversed: bool
    name: str


def inverse(view: View) -> tuple[Transform, ...] | None:
    """Transforms from `offset` back to the axes, or None.

    Post-condition: for every coordinate of the axes, running them on the view's offset gives the coordinate. Exists
    where no check is needed, every axis has a structure, and strides nest: in some order each is larger than the
    distance that all faster digits span (gaps allowed). Offsets that the view does not reach give meaningless
    coordinates.
    """
    places = _places(view)
    if places is None or flat(view).checks:
        return None
    ordered = _slowest_first(places)
    if ordered is None:
        return None
    span = ZERO
    for place in reversed(ordered):
        if not provable(span.lt(place.stride)):
            return None
        span = span + place.extent * place.stride - place.stride
    return _transforms(view, ordered)


def _slowest_first(places: list[_Place]) -> list[_Place] | None:
    """By descending stride: numbers by value, symbols by divisibility; None where neither orders them."""
    if all(place.stride.is_const for place in places):
        return sorted(places, key=lambda place: -place.stride.value)
    chain = divisor_chain(frozenset(place.stride for place in places))
    return None if chain is None else sorted(places, key=lambda place: -chain.index(place.stride))


def _places(view: View) -> list[_Place] | None:
    used = {OFFSET, *view.extents}
    places: list[_Place] = []
    for axis, digits in structure(view).items():
        if digits is None:
            return None
        for extent, stride in digits:
            if extent is ONE:
                continue
            backwards = never_positive(stride)
            if not (backwards or never_negative(stride)) or stride is ZERO:
                return None
            name = fresh_name(axis + "_", used)
            places.append(_Place(axis, len(places), extent, -stride if backwards else stride, backwards, name))
    return places


def _transforms(view: View, ordered: list[_Place]) -> tuple[Transform, ...]:
    used = {OFFSET, *view.extents, *(place.name for place in ordered)}
    falling = [place.stride * (place.extent - ONE) for place in ordered if place.reversed]
    rest = fresh_name("distance", used)
    chain: list[Transform] = [Slice(OFFSET, rest, sum(falling, -flat(view).offset.constant))]
    digits: dict[str, list[str]] = {axis.name: [] for axis in view.axes}
    for place in ordered:
        above, rest = rest, fresh_name("distance", used)
        chain.append(Split(above, (place.name, rest), (place.extent, place.stride)))
    chain.append(Broadcast(rest))
    for place in sorted(ordered, key=lambda place: place.position):
        digits[place.axis].append(fresh_name(place.name, used) if place.reversed else place.name)
        if place.reversed:
            chain.append(Affine((place.name,), digits[place.axis][-1], (-1,), place.extent - ONE))
    return (*chain, *(_joined(axis.name, digits[axis.name], ordered) for axis in view.axes))


def _joined(axis: str, digits: list[str], places: list[_Place]) -> Transform:
    if not digits:
        return Const(axis, 0)
    extents = [place.extent for place in sorted(places, key=lambda place: place.position) if place.axis == axis]
    return Join(digits, axis, extents)
