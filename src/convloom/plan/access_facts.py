"""What the planner asks of the views: strides at typical sizes, orders of axes, vector widths of flat axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from convloom.expr import Expr, Truth, const, evaluate, free_symbols, prove
from convloom.plan.flat_axis import Merged, merged_axis, tile_view
from convloom.problem.contraction import AxisKind, Contraction, ContractionAxis, Operand
from convloom.view import View, vector_width

_TYPICAL = 64  # size assumed for a symbol without a hint
_ANY_TILE = 256  # vector widths are asked for tiles of a multiple of this, larger than any vector


def typical_value(expression: Expr, phases: dict[str, int] | None = None) -> int:
    """The expression at typical sizes: a symbol's hint, else 64 moved into its facts; never used as a fact."""
    values = {symbol.name: _typical_symbol(symbol) for symbol in free_symbols(expression)}
    return int(evaluate(expression, {**values, **(phases or {})}))


def _typical_symbol(symbol: Expr) -> int:
    facts = symbol.facts
    value = facts.hint if facts.hint is not None else _TYPICAL
    value = -(-value // facts.divisor) * facts.divisor
    if facts.hi is not None:
        value = min(value, facts.hi)
    return value if facts.lo is None else max(value, facts.lo)


def element_strides(view: View) -> dict[str, int]:
    """By how much one step of each axis from the corner moves the offset, at typical sizes."""
    corner = {axis.name: const(0) for axis in view.axes}
    base = typical_value(view.access(corner).offset)
    return {
        axis.name: abs(typical_value(view.access({**corner, axis.name: const(1)}).offset) - base) for axis in view.axes
    }


def by_stride(axes: Iterable[ContractionAxis], strides: dict[str, int]) -> tuple[str, ...]:
    """Names of the axes, largest stride (slowest) first; axes of extent 1 lead, they cost nothing."""
    known = [
        (axis.extent is not const(1), -strides.get(axis.name, 0), place, axis.name) for place, axis in enumerate(axes)
    ]
    return tuple(name for *_, name in sorted(known))


@dataclass(frozen=True, slots=True)
class KOrder:
    """Which K axes are loops of their own, and which form the flat index that is tiled."""

    serial: tuple[str, ...]
    merged: tuple[str, ...]


def k_orders(contraction: Contraction) -> tuple[KOrder, ...]:
    """Ways to walk K worth considering: every suffix of the stride order merged, and every single axis.

    Each operand suggests its stride order. Axes whose extent differs between phases stay loops: their flat index would
    need a division by a value that no host knows.
    """
    axes = contraction.of_kind(AxisKind.K)
    parameters = frozenset(parameter.symbol for parameter in contraction.phases)
    fixed = [axis for axis in axes if not free_symbols(axis.extent) & parameters]
    varying = tuple(axis.name for axis in axes if free_symbols(axis.extent) & parameters)
    found: dict[KOrder, None] = {}
    for operand in (contraction.a, contraction.b):
        order = by_stride(fixed, element_strides(operand.view))
        long = [name for name in order if not _is_unit(fixed, name)]
        unit = tuple(name for name in order if _is_unit(fixed, name))
        for start in range(len(long)):
            found[KOrder((*unit, *varying, *long[:start]), tuple(long[start:]))] = None
        for name in long:
            rest = tuple(other for other in long if other != name)
            found[KOrder((*unit, *varying, *rest), (name,))] = None
        if not long:
            found[KOrder((*unit, *varying), ())] = None
    return tuple(found)


def _is_unit(axes: Iterable[ContractionAxis], name: str) -> bool:
    return any(axis.name == name and axis.extent is const(1) for axis in axes)


def flat_axes(
    contraction: Contraction,
    m: tuple[str, ...],
    n: tuple[str, ...],
    k: tuple[str, ...],
    g: tuple[str, ...],
    tile: tuple[int, int, int] = (_ANY_TILE, _ANY_TILE, _ANY_TILE),
) -> tuple[Merged, Merged, Merged, Merged]:
    """The flat axes M, N, K, G over the named ones."""
    return (
        merged_axis(contraction, "M", m, tile[0]),
        merged_axis(contraction, "N", n, tile[1]),
        merged_axis(contraction, "K", k, tile[2]),
        merged_axis(contraction, "G", g),
    )


def flat_width(
    operand: Operand,
    merged: tuple[Merged, ...],
    serial: tuple[str, ...],
    axis: str,
    access_bits: int,
    masked: tuple[str, ...] = (),
) -> int:
    """Numbers along a flat axis that one access of the operand may move: contiguous, aligned, valid together."""
    return _flat_width(operand.view, merged, serial, axis, max(access_bits // operand.dtype.bits, 1), masked)


@lru_cache(maxsize=4096)
def _flat_width(
    view: View, merged: tuple[Merged, ...], serial: tuple[str, ...], axis: str, limit: int, masked: tuple[str, ...]
) -> int:
    tiled = tile_view(view, merged, serial, masked)
    return vector_width(tiled, axis, limit) if axis in tiled.extents else 1


def is_proved(condition: Expr) -> bool:
    """Whether the prover says yes."""
    return prove(condition) is Truth.YES
