"""The normal form of a contraction: equal access functions become equal contractions, whatever graph led to them.

Axes are refined to the digits that any operand needs, unit axes dropped, axes of one kind merged where every operand
and every check treats them as one, ordered by stride, renamed, and the pairs (A, M) and (B, N) put in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import permutations

from convloom.expr import Expr, ceil_div, const, free_symbols, local_sym, substitute
from convloom.problem.access_pattern import AccessPattern, access_pattern, axis_symbol, compact, pattern_view
from convloom.problem.contraction import (
    AxisKind,
    Contraction,
    ContractionAxis,
    Operand,
    PhaseParameter,
    exchange,
)
from convloom.view import Axis, Const, Join, PadTo, Split, Transform, View
from convloom.view.domain import divisor_chain
from convloom.view.form import Form, Quotient, exact_quotient
from convloom.view.structure import radixes
from convloom.view.view import flat

ViewMap = Callable[[View], View]


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A contraction with canonical names, and the tensor behind each of its operands: (("a", "wei"), ..)."""

    contraction: Contraction
    tensors: tuple[tuple[str, str], ...]


def normal_form(contraction: Contraction) -> NormalForm:
    """The canonical contraction; normalising it again changes nothing."""
    refined = _with_one_empty_axis(_refined(_canonical_phases(contraction)))
    simple = _merged(_without_unused_axes(_without_unit_axes(refined)))
    forms = [_named(candidate) for candidate in (simple, exchange(simple))]
    return min(forms, key=lambda form: _order_text(form.contraction))


def _mapped(contraction: Contraction, axes: Iterable[ContractionAxis], on_view: ViewMap) -> Contraction:
    """The contraction with other axes and every operand's view mapped."""

    def mapped(operand: Operand) -> Operand:
        return replace(operand, view=on_view(operand.view))

    return replace(contraction, axes=tuple(axes)).map_operands(mapped)


# --- phases ---------------------------------------------------------------------------------------------------------


def _canonical_phases(contraction: Contraction) -> Contraction:
    """Parameters that never change become constants, equal ones become one; the rest are p0, p1 .."""
    replacements: dict[Expr, Expr] = {}
    kept: dict[tuple[int, ...], PhaseParameter] = {}
    for parameter in contraction.phases:
        values = parameter.values
        if len(set(values)) == 1:
            replacements[parameter.symbol] = const(values[0])
            continue
        if values not in kept:
            kept[values] = PhaseParameter(_renamed(parameter.symbol, f"p{len(kept)}"), values)
        replacements[parameter.symbol] = kept[values].symbol
    if not replacements:
        return contraction
    axes = (replace(axis, extent=substitute(axis.extent, replacements)) for axis in contraction.axes)
    changed = _mapped(contraction, axes, lambda view: view.substitute(replacements))
    return replace(changed, phases=tuple(kept.values()))


def _renamed(symbol: Expr, name: str) -> Expr:
    facts = symbol.facts
    return local_sym(name, divisor=facts.divisor, lo=facts.lo, hi=facts.hi)


# --- refinement -----------------------------------------------------------------------------------------------------


def _refined(contraction: Contraction) -> Contraction:
    """Splits each axis at every scale at which some operand divides it, where the scales nest."""
    for axis in contraction.axes:
        chain = divisor_chain(_scales(contraction, axis.name) | {const(1)})
        if chain is not None and len(chain) > 1:
            contraction = _split_axis(contraction, axis, chain)
    return contraction


def _scales(contraction: Contraction, name: str) -> frozenset[Expr]:
    found: set[Expr] = set()
    for operand in contraction.operands:
        forms = flat(operand.view)
        for form in (forms.offset, *(check.form for check in forms.checks)):
            found |= _form_scales(form, name)
    return frozenset(found)


def _form_scales(form: Form, name: str) -> set[Expr]:
    found: set[Expr] = set()
    for atom in form.terms:
        if atom.source == name:
            found.add(atom.scale)
        elif isinstance(atom.source, Form):
            found |= _form_scales(atom.source, name)
    return found


def _split_axis(contraction: Contraction, axis: ContractionAxis, chain: tuple[Expr, ...]) -> Contraction:
    """The axis as digits, outermost first; where they do not fit its extent, operands that have it check the end."""
    exact = exact_quotient(axis.extent, chain[-1]) is not None
    outermost = ceil_div(axis.extent, chain[-1])
    extents = radixes(chain, outermost * chain[-1])
    names = tuple(f"{axis.name}_{number}" for number in range(len(extents)))
    digits = [ContractionAxis(name, axis.kind, extent) for name, extent in zip(names, extents, strict=True)]

    def on_view(view: View) -> View:
        if axis.name not in view.extents:
            return view
        joined = f"{axis.name}_joined"
        transforms: list[Transform] = [Join(names, axis.name if exact else joined, extents)]
        if not exact:
            transforms.append(PadTo(joined, axis.name, axis.extent))
        return view.prepend(_replaced(view, axis.name, zip(names, extents, strict=True)), transforms)

    axes = [new for old in contraction.axes for new in (digits if old is axis else (old,))]
    return _mapped(contraction, axes, on_view)


def _replaced(view: View, name: str, by: Iterable[tuple[str, Expr]]) -> list[Axis]:
    return [new for axis in view.axes for new in ([Axis(*item) for item in by] if axis.name == name else [axis])]


# --- empty sums -----------------------------------------------------------------------------------------------------


def _with_one_empty_axis(contraction: Contraction) -> Contraction:
    """Where one K axis is known to be empty, no other one matters: they become unit axes."""
    reduced = contraction.of_kind(AxisKind.K)
    empty = next((axis for axis in reduced if axis.extent is const(0)), None)
    others = {axis.name for axis in reduced if axis is not empty}
    if empty is None or not others:
        return contraction
    axes = [replace(axis, extent=const(1)) if axis.name in others else axis for axis in contraction.axes]

    def on_view(view: View) -> View:
        return view.prepend([Axis(axis.name, const(1)) if axis.name in others else axis for axis in view.axes], [])

    return _mapped(contraction, axes, on_view)


# --- unit axes ------------------------------------------------------------------------------------------------------


def _without_unit_axes(contraction: Contraction) -> Contraction:
    unit = {axis.name for axis in contraction.axes if axis.extent is const(1)}

    def on_view(view: View) -> View:
        mine = [axis.name for axis in view.axes if axis.name in unit]
        if not mine:
            return view
        return view.prepend([axis for axis in view.axes if axis.name not in unit], [Const(name, 0) for name in mine])

    return _mapped(contraction, (axis for axis in contraction.axes if axis.name not in unit), on_view)


# --- unused axes ----------------------------------------------------------------------------------------------------


def _without_unused_axes(contraction: Contraction) -> Contraction:
    """Drops from each view the axes of which its pattern is independent (strides of 0, checks that always hold)."""
    return _mapped(contraction, contraction.axes, _over_used_axes)


def _over_used_axes(view: View) -> View:
    pattern = access_pattern(view)
    used = free_symbols(pattern.offset).union(*(free_symbols(check.value) for check in pattern.checks))
    unused = [axis.name for axis in view.axes if axis_symbol(axis) not in used]
    if not unused:
        return view
    kept = [axis for axis in view.axes if axis.name not in unused]
    return view.prepend(kept, [Const(name, 0) for name in unused])


# --- merging --------------------------------------------------------------------------------------------------------


def _merged(contraction: Contraction) -> Contraction:
    """Joins axes of one kind that continue each other in every operand and every check."""
    while True:
        pair = _mergeable_pair(contraction)
        if pair is None:
            return contraction
        contraction = _merge(contraction, *pair)


def _mergeable_pair(contraction: Contraction) -> tuple[ContractionAxis, ContractionAxis] | None:
    forms = [
        form
        for operand in contraction.operands
        for found in [flat(operand.view)]
        for form in (found.offset, *(check.form for check in found.checks))
    ]
    parameters = frozenset(parameter.symbol for parameter in contraction.phases)
    for outer, inner in permutations(contraction.axes, 2):
        if outer.kind is not inner.kind or (free_symbols(outer.extent) | free_symbols(inner.extent)) & parameters:
            continue
        if all(_continues(form, outer, inner) for form in forms) and _same_presence(contraction, outer, inner):
            return outer, inner
    return None


def _continues(form: Form, outer: ContractionAxis, inner: ContractionAxis) -> bool:
    """Whether the form depends on both axes through `outer * extent(inner) + inner` alone."""
    for atom in form.terms:
        if isinstance(atom.source, str):
            if atom.source in (outer.name, inner.name) and atom.scale is not const(1):
                return False
        elif _form_scales_any(atom.source, (outer.name, inner.name)):
            return False
    return _coefficient(form, outer) is _coefficient(form, inner) * inner.extent


def _form_scales_any(source: object, names: tuple[str, ...]) -> bool:
    return not isinstance(source, Form) or any(_form_scales(source, name) for name in names)


def _coefficient(form: Form, axis: ContractionAxis) -> Expr:
    return form.terms.get(Quotient(axis.name, const(1)), const(0))


def _same_presence(contraction: Contraction, outer: ContractionAxis, inner: ContractionAxis) -> bool:
    return all(
        (outer.name in operand.view.extents) == (inner.name in operand.view.extents) for operand in contraction.operands
    )


def _merge(contraction: Contraction, outer: ContractionAxis, inner: ContractionAxis) -> Contraction:
    name, extent = f"{outer.name}_{inner.name}", outer.extent * inner.extent
    whole = ContractionAxis(name, outer.kind, extent)

    def on_view(view: View) -> View:
        if outer.name not in view.extents:
            return view
        axes = [axis for axis in _replaced(view, outer.name, [(name, extent)]) if axis.name != inner.name]
        return view.prepend(axes, [Split(name, (outer.name, inner.name), (outer.extent, inner.extent))])

    axes = [whole if axis is outer else axis for axis in contraction.axes if axis is not inner]
    return _mapped(contraction, axes, on_view)


# --- order and names ------------------------------------------------------------------------------------------------


def _named(contraction: Contraction) -> NormalForm:
    """Axes in canonical order and named g0, m0, n0, k0..; operands a, b, c, bias, e0.., za, zb; canonical views."""
    patterns = {operand.name: access_pattern(operand.view) for operand in contraction.operands}
    ordered: list[ContractionAxis] = []
    names: dict[str, str] = {}
    for kind in AxisKind:
        axes = contraction.of_kind(kind)
        ranked = sorted(axes, key=lambda axis: _rank(axis, contraction, patterns))
        for number, axis in enumerate(ranked):
            names[axis.name] = f"{kind.value}{number}"
            ordered.append(replace(axis, name=names[axis.name]))
    roles = _roles(contraction)

    def canonical(operand: Operand) -> Operand:
        return _canonical_operand(roles[operand.name], operand, names, ordered)

    tensors = tuple((roles[operand.name], operand.name) for operand in contraction.operands)
    return NormalForm(replace(contraction, axes=tuple(ordered)).map_operands(canonical), tensors)


def _roles(contraction: Contraction) -> dict[str, str]:
    """The canonical name of each operand by its own."""
    named = {"a": contraction.a, "b": contraction.b, "c": contraction.c, "bias": contraction.bias}
    named |= {f"e{number}": operand for number, operand in enumerate(contraction.extras)}
    named |= {"za": contraction.zero_a, "zb": contraction.zero_b}
    return {operand.name: role for role, operand in named.items() if operand is not None}


def _rank(
    axis: ContractionAxis, contraction: Contraction, patterns: dict[str, AccessPattern]
) -> tuple[tuple[int, ...], int, str]:
    """Sort key: strides in c, a, b, others (large first; symbolic ones do not count), extent, place in the checks."""
    order = (contraction.c, contraction.a, contraction.b, *contraction.operands[3:])
    strides = [_stride(operand, axis, patterns[operand.name].offset) for operand in order]
    checks = sorted(
        f"{number}:{abs(_stride(operand, axis, check.value))}"  # the sign of a check follows from names
        for number, operand in enumerate(order)
        for check in patterns[operand.name].checks
    )
    return tuple(-abs(stride) for stride in strides), axis.extent.value if axis.extent.is_const else 0, ",".join(checks)


def _stride(operand: Operand, axis: ContractionAxis, expression: Expr) -> int:
    """By how much the expression grows from 0 to 1 on the axis; 0 where that is not a number."""
    view_axis = next((own for own in operand.view.axes if own.name == axis.name), None)
    if view_axis is None:
        return 0
    symbol = axis_symbol(view_axis)
    step = substitute(expression, {symbol: const(1)}) - substitute(expression, {symbol: const(0)})
    return step.value if step.is_const else 0


def _canonical_operand(role: str, operand: Operand, names: dict[str, str], ordered: list[ContractionAxis]) -> Operand:
    """The operand over the axes that it depends on, in canonical order, with the view of its pattern."""
    renamed = operand.view.rename(names)
    pattern = access_pattern(renamed)
    used = free_symbols(pattern.offset).union(*(free_symbols(check.value) for check in pattern.checks))
    axes = [Axis(axis.name, axis.extent) for axis in ordered if axis.name in renamed.extents]
    needed = tuple(axis for axis in axes if axis_symbol(axis) in used)
    return Operand(role, operand.dtype, pattern_view(needed, pattern))


def _order_text(contraction: Contraction) -> str:
    """Text that orders a contraction against its exchange."""
    parts = [f"{axis.name}={compact(axis.extent)}" for axis in contraction.axes]
    for operand in contraction.operands:
        pattern = access_pattern(operand.view)
        parts.append(f"{operand.dtype}{compact(pattern.offset)}{[check.text for check in pattern.checks]}")
    return " ".join(parts)
