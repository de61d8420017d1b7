"""A chain of transforms as forms: the offset, and the checks that its guards need over the axes' extents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from convloom.expr import Expr
from convloom.view.domain import Domain, provable
from convloom.view.form import ONE, ZERO, Form, Quotient, Swizzle, axis_form, combine, constant_form
from convloom.view.transform import (
    OFFSET,
    Affine,
    Axis,
    Broadcast,
    Const,
    Join,
    Modulo,
    Pad,
    PadTo,
    Pass,
    Slice,
    Split,
    Transform,
    Xor,
)


@dataclass(frozen=True, slots=True)
class Check:
    """What must be tested about a guarded coordinate: form >= 0 (if `lower`) and form < size (if `upper`)."""

    coordinate: str
    form: Form
    lower: bool
    upper: bool
    size: Expr


@dataclass(frozen=True, slots=True)
class Step:
    """One transform as `View.access` runs it: its names, the forms of its outputs, whether it guards or divides."""

    transform: Transform
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, Form], ...]
    guarded: bool
    divides: bool


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """A view as forms over its axes, of every coordinate by name; checks that nothing can violate are left out."""

    axes: tuple[Axis, ...]
    steps: tuple[Step, ...]
    values: dict[str, Form]
    checks: tuple[Check, ...]
    domain: Domain

    @property
    def offset(self) -> Form:
        """The form of the offset."""
        return self.values[OFFSET]


_DIVIDING = (Split, Modulo)


def flatten(axes: tuple[Axis, ...], transforms: tuple[Transform, ...]) -> Flat:
    """Run the chain on forms.

    A check is needed unless it is proved from the axes' extents and from the guards before it (those are tested too, so
    leaving out what they imply does not change the conjunction).
    """
    domain = Domain({axis.name: axis.extent for axis in axes})
    values = {axis.name: constant_form(ZERO) if axis.extent is ONE else axis_form(axis.name) for axis in axes}
    checks: list[Check] = []
    steps: list[Step] = []
    for transform in transforms:
        inputs = tuple(values[name] for name in transform.inputs)
        values.update(zip(transform.outputs, _outputs(transform, inputs, domain), strict=True))
        guard = transform.guard
        if guard is not None:
            form = values[guard.coordinate]
            lower, upper = domain.guard(form, guard.lower, guard.size)
            least, most = domain.range(form)
            if least is not None and least is most:
                values[guard.coordinate] = constant_form(least)
            if lower or upper:
                checks.append(Check(guard.coordinate, form, lower, upper, guard.size))
        outputs = tuple((name, values[name]) for name in transform.outputs)
        steps.append(Step(transform, transform.inputs, outputs, guard is not None, isinstance(transform, _DIVIDING)))
    return Flat(axes, tuple(steps), values, tuple(_independent(checks)), domain)


def _independent(checks: list[Check]) -> list[Check]:
    """The checks without those limits that another check of the same form, up to a constant, implies."""
    kept = list(checks)
    for position, check in enumerate(checks):
        others = [(other, other.form.shift(check.form)) for other in kept if other is not check]
        same = [(other, shift) for other, shift in others if shift is not None]
        lower = check.lower and not any(other.lower and provable(shift.le(ZERO)) for other, shift in same)
        upper = check.upper and not any(
            other.upper and provable((other.size - shift).le(check.size)) for other, shift in same
        )
        if (lower, upper) != (check.lower, check.upper):
            kept[position] = replace(check, lower=lower, upper=upper)
    return [check for check in kept if check.lower or check.upper]


def _outputs(transform: Transform, inputs: tuple[Form, ...], domain: Domain) -> tuple[Form, ...]:
    match transform:
        case Pass() | PadTo():
            return inputs
        case Affine():
            return (combine(zip(inputs, transform.coefficients, strict=True), transform.constant),)
        case Split():
            return _split(inputs[0], transform.extents, domain)
        case Join():
            return (_join(inputs, transform.extents),)
        case Pad():
            return (combine(((inputs[0], ONE),), -transform.left),)
        case Slice():
            return (combine(((inputs[0], transform.step),), transform.begin),)
        case Broadcast():
            return ()
        case Modulo():
            return (domain.remainder(inputs[0], transform.extent),)
        case Const():
            return (constant_form(transform.value),)
        case Xor():
            return (_xor(inputs[0], inputs[1]),)
    assert_never(transform)


def _split(form: Form, extents: tuple[Expr, ...], domain: Domain) -> tuple[Form, ...]:
    digits: list[Form] = []
    for extent in reversed(extents[1:]):
        slower = domain.quotient(form, extent)
        digits.append(combine(((form, ONE), (slower, -extent))))
        form = slower
    return (form, *reversed(digits))


def _join(inputs: tuple[Form, ...], extents: tuple[Expr, ...]) -> Form:
    weight = ONE
    parts: list[tuple[Form, Expr]] = []
    for form, extent in zip(reversed(inputs), reversed(extents), strict=True):
        parts.append((form, weight))
        weight = weight * extent
    return combine(parts)


def _xor(left: Form, right: Form) -> Form:
    if left == right:
        return constant_form(ZERO)
    zero = constant_form(ZERO)
    if right == zero:
        return left
    return right if left == zero else Form(ZERO, {Quotient(Swizzle(left, right), ONE): ONE})
