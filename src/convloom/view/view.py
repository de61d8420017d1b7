"""A view: named axes mapped to an element offset and a validity condition by a chain of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, cast, overload

import numpy as np

from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, Op, as_expr, evaluate, simplify, substitute
from convloom.view.flat import Check, Flat, flatten
from convloom.view.form import never_negative
from convloom.view.transform import (
    OFFSET,
    Affine,
    Axis,
    Guard,
    Index,
    IntArray,
    Transform,
    rebuild,
)


@dataclass(frozen=True, slots=True)
class Access(Generic[Index]):
    """Where a view leads: the element offset, and the 0/1 conditions that must all hold for it to be valid."""

    offset: Index
    conditions: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Named coordinates -> (element offset, validity).

    `transforms` run in order from the axes; each consumes names that exist and produces new ones. A coordinate may be
    used several times, none may be left unused (say Broadcast), and the last one standing is `offset`.
    IllegalProblem if the chain breaks these rules.
    """

    axes: tuple[Axis, ...]
    transforms: tuple[Transform, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.axes, self.transforms)))
        _check_chain(self.axes, self.transforms)

    def __hash__(self) -> int:
        return self._hash

    @property
    def extents(self) -> dict[str, Expr]:
        """Extent of each axis by name."""
        return {axis.name: axis.extent for axis in self.axes}

    @overload
    def access(self, coordinates: Mapping[str, ExprLike], sizes: None = None) -> Access[Expr]: ...
    @overload
    def access(
        self, coordinates: Mapping[str, IntArray], sizes: Mapping[str, int] | None = None
    ) -> Access[IntArray]: ...
    def access(
        self, coordinates: Mapping[str, ExprLike] | Mapping[str, IntArray], sizes: Mapping[str, int] | None = None
    ) -> Access[Expr] | Access[IntArray]:
        """The offset and conditions at coordinates given for every axis.

        On expressions (or ints) each coordinate must lie in 0 <= coordinate < extent wherever it is used; conditions
        that this makes true are left out. On NumPy arrays (broadcast together) every guard is evaluated, whatever is
        proved: that is the definition of the view; `sizes` then gives the values of symbols.
        """
        missing = [axis.name for axis in self.axes if axis.name not in coordinates]
        if missing or len(coordinates) != len(self.axes):
            names = ", ".join(axis.name for axis in self.axes)
            raise IllegalProblem(f"access needs one coordinate for each axis ({names}); got {', '.join(coordinates)}")
        if any(isinstance(value, np.ndarray) for value in coordinates.values()):
            return self._access_arrays(coordinates, sizes or {})
        return self._access_expressions(cast(Mapping[str, ExprLike], coordinates))

    def _access_arrays(self, coordinates: Mapping[str, object], sizes: Mapping[str, int]) -> Access[IntArray]:
        def read(value: Expr) -> IntArray:
            return np.asarray(evaluate(value, sizes), dtype=np.int64)

        given = {name: np.asarray(value, dtype=np.int64) for name, value in coordinates.items()}
        values = _run_arrays(self.transforms, given, read)
        conditions: list[IntArray] = []
        for guard in self.guards:
            value = values[guard.coordinate]
            inside = value < read(guard.size)
            conditions.append((inside & (value >= 0) if guard.lower else inside).astype(np.int64))
        return Access(values[OFFSET], tuple(conditions))

    def _access_expressions(self, coordinates: Mapping[str, ExprLike]) -> Access[Expr]:
        known = flat(self)
        given = {name: as_expr(value) for name, value in coordinates.items()}
        offset, guarded = _run_expressions(given, known)
        conditions: dict[Expr, None] = {}
        for check in known.checks:
            value = guarded[check.coordinate]
            if check.lower and not never_negative(value):
                conditions[value.ge(0)] = None
            if check.upper and not never_negative(check.size - value - 1):
                conditions[value.lt(check.size)] = None
        return Access(offset, tuple(conditions))

    @property
    def guards(self) -> tuple[Guard, ...]:
        """All conditions that the transforms state, proved or not, in order."""
        return tuple(guard for transform in self.transforms if (guard := transform.guard) is not None)

    def prepend(self, axes: Sequence[Axis], transforms: Sequence[Transform]) -> View:
        """The view with new axes on top: `transforms` lead from them to the old axes' names.

        An axis named as an old one passes straight through. Inner coordinates that clash with new names are renamed.
        """
        new_names = {axis.name for axis in axes}.union(*(transform.outputs for transform in transforms))
        inner = self._renamed_inside(new_names)
        return View(tuple(axes), (*transforms, *inner))

    def rename(self, names: Mapping[str, str]) -> View:
        """The view with axes renamed: old name -> new name; other axes keep theirs."""
        mapping = {axis.name: names.get(axis.name, axis.name) for axis in self.axes}
        axes = tuple(Axis(mapping[axis.name], axis.extent) for axis in self.axes)
        inner = self._renamed_inside(set(mapping.values()))
        return View(axes, tuple(_renamed(t, mapping) for t in inner))

    def substitute(self, replacements: Mapping[Expr, ExprLike]) -> View:
        """The view with symbols (or other expressions) replaced in every extent and parameter."""
        table = {old: as_expr(new) for old, new in replacements.items()}

        def replace(value: Expr) -> Expr:
            return substitute(value, table)

        axes = tuple(Axis(axis.name, replace(axis.extent)) for axis in self.axes)
        return View(axes, tuple(rebuild(transform, str, replace) for transform in self.transforms))

    def _renamed_inside(self, taken: set[str]) -> tuple[Transform, ...]:
        """The transforms with inner coordinates (neither axis nor offset) renamed where their name is taken."""
        own = {axis.name for axis in self.axes}
        inner = [name for transform in self.transforms for name in transform.outputs if name != OFFSET]
        if taken.isdisjoint(inner):
            return self.transforms
        used = taken | own | set(inner)
        mapping: dict[str, str] = {}
        for name in inner:
            if name in taken:
                mapping[name] = fresh_name(name, used)
        return tuple(_renamed(t, mapping) for t in self.transforms)


def compose(view: View, axis: str, outer: View) -> View:
    """The view with one axis fed by the offset of another view, whose axes take its place (validities are joined)."""
    if axis not in view.extents:
        raise IllegalProblem(f"compose needs an axis of the inner view ({', '.join(view.extents)}); got {axis!r}")
    axes: list[Axis] = []
    for own in view.axes:
        axes.extend(outer.axes if own.name == axis else (own,))
    renamed = tuple(_renamed(transform, {OFFSET: axis}) for transform in outer.transforms)
    return view.prepend(axes, renamed)


def strided(axes: Sequence[Axis], strides: Sequence[ExprLike], base: ExprLike = 0) -> View:
    """The view offset = base + sum(stride * coordinate), strides in elements, one per axis; any signs."""
    return View(tuple(axes), (Affine(tuple(axis.name for axis in axes), OFFSET, strides, base),))


@lru_cache(maxsize=4096)
def flat(view: View) -> Flat:
    """The view as linear forms (see `flat.flatten`); remembered."""
    return flatten(view.axes, view.transforms)


def checks(view: View) -> tuple[Check, ...]:
    """The tests that Pad and PadTo need for coordinates within the axes' extents, in order; needless ones left out."""
    return flat(view).checks


def fresh_name(name: str, used: set[str]) -> str:
    """`name` followed by as many underscores as it takes to be new; it is entered into `used`."""
    while name in used:
        name += "_"
    used.add(name)
    return name


def _run_arrays(
    transforms: Iterable[Transform], given: dict[str, IntArray], read: Callable[[Expr], IntArray]
) -> dict[str, IntArray]:
    values = dict(given)
    for transform in transforms:
        outputs = transform.index(tuple([values[name] for name in transform.inputs]), read)
        values.update(zip(transform.outputs, outputs, strict=True))
    return values


def _run_expressions(given: dict[str, Expr], known: Flat) -> tuple[Expr, dict[str, Expr]]:
    """(offset, guarded coordinates as they are before their guard).

    A coordinate whose form is a constant, or that of an earlier one, takes that one's expression. So what a Join puts
    together and a Split takes apart costs nothing, with symbolic extents too. Simplification of other quotients and
    remainders is left to numbers, where it is cheap.
    """
    values = dict(given)
    guarded: dict[str, Expr] = {}
    by_form = {known.values[name]: value for name, value in given.items()}
    for step in known.steps:
        outputs = step.transform.index(tuple([values[name] for name in step.inputs]), _same)
        if step.guarded:
            guarded[step.outputs[0][0]] = outputs[0]
        for (name, form), output in zip(step.outputs, outputs, strict=True):
            if not form.terms:
                values[name] = form.constant
                continue
            found = by_form.get(form)
            if found is None:
                found = by_form[form] = _tidied(output) if step.divides else output
            values[name] = found
    return values[OFFSET], guarded


def _tidied(value: Expr) -> Expr:
    """Quotients and remainders by numbers simplified."""
    numeric = value.op not in (Op.FLOORDIV, Op.MOD) or value.args[1].is_const
    return simplify(value) if numeric else value


def _renamed(transform: Transform, names: Mapping[str, str]) -> Transform:
    return rebuild(transform, lambda name: names.get(name, name), _same)


def _same(value: Expr) -> Expr:
    return value


def _check_chain(axes: tuple[Axis, ...], transforms: tuple[Transform, ...]) -> None:
    defined: set[str] = set()
    unused: dict[str, None] = {}
    for axis in axes:
        _define(axis.name, defined, unused)
    for transform in transforms:
        for name in transform.inputs:
            if name not in defined:
                raise IllegalProblem(
                    f"a transform may use only coordinates defined before it; got {name!r} in {transform}; reorder them"
                )
            unused.pop(name, None)
        for name in transform.outputs:
            _define(name, defined, unused)
    if list(unused) != [OFFSET]:
        left = ", ".join(unused) or "none"
        raise IllegalProblem(
            f"a view must end in the one coordinate 'offset'; got unused {left}; add Broadcast or a sum"
        )


def _define(name: str, defined: set[str], unused: dict[str, None]) -> None:
    if name in defined:
        raise IllegalProblem(f"coordinate names must be unique in a view; got {name!r} twice; rename one")
    defined.add(name)
    unused[name] = None
