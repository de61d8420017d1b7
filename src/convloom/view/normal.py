"""Normal form of a view: each axis split once into the digits it needs, then an Affine per check and for the offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from convloom.expr import Expr
from convloom.view.domain import divisor_chain, quotient_of
from convloom.view.flat import Check, Flat
from convloom.view.form import ONE, Form, Source, Swizzle
from convloom.view.structure import strides
from convloom.view.transform import OFFSET, Affine, Broadcast, Pad, PadTo, Split, Transform, Xor
from convloom.view.view import View, flat, fresh_name

Key = tuple[Any, ...]


@lru_cache(maxsize=4096)
def normal_form(view: View) -> View:
    """The same axes, and where valid the same offset, through a chain that depends on the access pattern alone.

    Axes of extent 1 contribute nothing, Affine chains are one sum, splits whose parts continue each other below vanish,
    Join and Split cancel, checks that cannot fail or that others imply are gone and the rest are sorted. Equal access
    patterns over static sizes have equal normal forms wherever the chain is made of digits (transposes, reshapes,
    windows, slices, tiles); where it splits sums that do not divide, equality may be missed.
    """
    return _Builder(flat(view)).build()


class _Builder:
    """Writes forms back as transforms; every source is split once, at all scales that any form needs."""

    def __init__(self, view: Flat) -> None:
        self._view = view
        self._positions = {axis.name: position for position, axis in enumerate(view.axes)}
        self._used_names = {OFFSET, *self._positions}
        self._transforms: list[Transform] = []
        self._scales: dict[Source, set[Expr]] = {}
        self._parts: dict[Source, tuple[tuple[Expr, str], ...]] = {}

    def build(self) -> View:
        """The view of the builder's forms."""
        checks = sorted(self._two_sided(self._view.checks), key=self._check_key)
        forms = [self._view.offset, *(check.form for check in checks)]
        for form in forms:
            self._collect(form)
        for axis in self._view.axes:
            if axis.name in self._scales:
                self._split(axis.name, axis.name)
        for check in checks:
            self._check(check)
        self._affine(self._view.offset, OFFSET)
        return View(self._view.axes, (*self._transforms, *self._leftovers()))

    def _two_sided(self, checks: tuple[Check, ...]) -> list[Check]:
        """Checks with both limits of one form (up to a constant) joined, and sizes of one-sided ones made canonical."""
        joined: list[Check] = []
        for check in checks:
            partner = next((own for own in joined if _completes(own, check)), None)
            if partner is None:
                joined.append(check)
                continue
            lower, upper = (partner, check) if partner.lower else (check, partner)
            size = upper.size + lower.form.constant - upper.form.constant
            joined[joined.index(partner)] = Check(lower.coordinate, lower.form, True, True, size)
        return [self._natural_size(check) for check in joined]

    def _natural_size(self, check: Check) -> Check:
        """A check from below only says nothing of the size: let it be the least that never fails."""
        high = None if check.upper else self._view.domain.range(check.form)[1]
        return check if high is None else replace(check, size=high + ONE)

    def _collect(self, form: Form) -> None:
        for atom in form.terms:
            self._scales.setdefault(atom.source, set()).add(atom.scale)
            for inner in _forms_of(atom.source):
                self._collect(inner)

    def _check(self, check: Check) -> None:
        coordinate = self._coordinate(check.form, "check")
        output = fresh_name("checked", self._used_names)
        guard = Pad(coordinate, output, 0, check.size) if check.lower else PadTo(coordinate, output, check.size)
        self._transforms.append(guard)

    def _coordinate(self, form: Form, name: str) -> str:
        """A coordinate that holds the form: an existing one, or a new sum."""
        if len(form.terms) == 1 and form.constant.is_const and form.constant.value == 0:
            ((atom, coefficient),) = form.terms.items()
            parts = dict(self._split_source(atom.source))
            if coefficient is ONE and len(parts) == 1 and atom.scale in parts:
                return parts[atom.scale]
        output = fresh_name(name, self._used_names)
        self._affine(form, output)
        return output

    def _affine(self, form: Form, output: str) -> None:
        inputs: list[str] = []
        coefficients: list[Expr] = []
        for source in sorted({atom.source for atom in form.terms}, key=self._source_key):
            terms = {atom.scale: own for atom, own in form.terms.items() if atom.source == source}
            parts = self._split_source(source)
            for (_, name), stride in zip(parts, self._weights(source, terms, parts), strict=True):
                if not (stride.is_const and stride.value == 0):
                    inputs.append(name)
                    coefficients.append(stride)
        self._transforms.append(Affine(inputs, output, coefficients, form.constant))

    def _weights(
        self, source: Source, terms: dict[Expr, Expr], parts: tuple[tuple[Expr, str], ...]
    ) -> tuple[Expr, ...]:
        if self._chain(source) is None:
            return tuple(terms.get(scale, ONE - ONE) for scale, _ in parts)
        return strides(terms, tuple(scale for scale, _ in reversed(parts)))

    def _chain(self, source: Source) -> tuple[Expr, ...] | None:
        return divisor_chain(frozenset(self._scales[source]) | {ONE})

    def _split_source(self, source: Source) -> tuple[tuple[Expr, str], ...]:
        """(scale, coordinate) of the source's digits (or quotients, where scales form no chain), outermost first."""
        if source not in self._parts:
            self._split(source, self._source_coordinate(source))
        return self._parts[source]

    def _source_coordinate(self, source: Source) -> str:
        if isinstance(source, Form):
            return self._coordinate(source, "sum")
        if isinstance(source, Swizzle):
            sides = [self._coordinate(side, "sum") for side in (source.left, source.right)]
            output = fresh_name("xor", self._used_names)
            self._transforms.append(Xor(sides, output))
            return output
        return source

    def _split(self, source: Source, coordinate: str) -> None:
        chain = self._chain(source)
        if chain is None:
            self._parts[source] = tuple(self._quotients(source, coordinate))
        elif len(chain) == 1:
            self._parts[source] = ((ONE, coordinate),)
        else:
            names = [fresh_name(f"{coordinate}_{number}", self._used_names) for number in range(len(chain))]
            inner = [quotient_of(slow, fast) for fast, slow in pairwise(chain)]
            outermost = self._view.domain.slowest_extent(source, chain[-1])
            self._transforms.append(Split(coordinate, names, (outermost, *reversed(inner))))
            self._parts[source] = tuple(zip(reversed(chain), names, strict=True))

    def _quotients(self, source: Source, coordinate: str) -> Iterable[tuple[Expr, str]]:
        for number, scale in enumerate(sorted(self._scales[source], key=lambda own: own.key, reverse=True)):
            if scale is ONE:
                yield scale, coordinate
                continue
            names = [fresh_name(f"{coordinate}_{kind}{number}", self._used_names) for kind in "qr"]
            extent = self._view.domain.slowest_extent(source, scale)
            self._transforms.append(Split(coordinate, names, (extent, scale)))
            yield scale, names[0]

    def _leftovers(self) -> list[Transform]:
        """A Broadcast for every coordinate that no transform uses."""
        names = dict.fromkeys(axis.name for axis in self._view.axes)
        for transform in self._transforms:
            names.update(dict.fromkeys(transform.outputs))
        for transform in self._transforms:
            for name in transform.inputs:
                names.pop(name, None)
        return [Broadcast(name) for name in names if name != OFFSET]

    def _check_key(self, check: Check) -> Key:
        return (self._form_key(check.form), check.size.key, check.lower, check.upper)

    def _form_key(self, form: Form) -> Key:
        terms = [
            (self._source_key(atom.source), atom.scale.key, coefficient.key) for atom, coefficient in form.terms.items()
        ]
        return (tuple(sorted(terms)), form.constant.key)

    def _source_key(self, source: Source) -> Key:
        if isinstance(source, str):
            return (0, self._positions[source], ())
        return (1, len(_forms_of(source)), tuple(self._form_key(form) for form in _forms_of(source)))


def _completes(own: Check, other: Check) -> bool:
    """Whether one has the lower and the other the upper limit of the same form, up to a constant."""
    one_sided = own.lower != own.upper and other.lower != other.upper and own.lower != other.lower
    return one_sided and own.form.shift(other.form) is not None


def _forms_of(source: Source) -> tuple[Form, ...]:
    if isinstance(source, str):
        return ()
    return (source,) if isinstance(source, Form) else (source.left, source.right)
