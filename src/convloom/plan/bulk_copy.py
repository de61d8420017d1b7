"""What one tensor copy of sm_90 fetches of an operand, found from its view: contiguous axis, pixels, padding, taps.

A tile spans two directions, flat indices over axes: rows (M or N) and K. In one of them, the inner one, consecutive
numbers are contiguous; the other one is either a plain stride (a tiled map), or walks over window positions (a map of
image columns). Padding is what lies outside a dimension of the map. All other axes only say where a tile begins.
Sources: CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col; `target.tensor_map`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import gcd

from convloom.expr import Expr, bounds, const, divisor, local_sym, simplify
from convloom.plan.flat_axis import Merged
from convloom.plan.linear_access import LinearAccess, LinearCheck, Strides, linear_access
from convloom.problem.access_pattern import access_pattern, axis_symbol
from convloom.problem.contraction import Contraction, Operand
from convloom.target.group_multiply import Major
from convloom.target.tensor_map import CORNERS, GRANULE, MAX_STEP
from convloom.view.form import ZERO, exact_quotient

SPAN = 128
"""Bytes of a tile's row along the inner direction: the widest swizzle."""
_MOST_RANK = 5
_OFFSETS = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}
"""Taps reach so many positions from a window's corner, by rank (PTX ISA, cp.async.bulk.tensor, im2col offsets)."""


class CopyKind(Enum):
    """The two kinds of tensor maps."""

    TILE = "tile"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of the map: its size, the elements of one step, and where a tile begins along it.

    `start` is over the symbols of axes, of phases, and `flat_symbol` of the outer direction. Of a window dimension,
    `start` is the corner and `shift` what the taps add.
    """

    size: Expr
    stride: Expr
    start: Expr
    shift: Expr = ZERO
    step: int = 1
    lower: int = 0
    upper: int = 0


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """Dimension 0 is the inner direction; of columns the last one is the batch, those between are windows.

    `offset`: elements from the operand's first to the map's.
    """

    kind: CopyKind
    major: Major
    dimensions: tuple[Dimension, ...]
    offset: Expr

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dimensions)


def flat_symbol(name: str) -> Expr:
    """The flat index of a direction, as the starts of dimensions mention it."""
    return local_sym(f"flat_{name}", lo=0)


def bulk_copy(contraction: Contraction, operand: Operand, rows: Merged, k: Merged) -> BulkCopy | str:
    """The copy of tiles of an operand, or in words why there is none; `multiple` of rows and k are the tile's sizes."""
    symbols = {axis.name: axis_symbol(axis) for axis in operand.view.axes}
    phases = [parameter.symbol for parameter in contraction.phases]
    access = linear_access(access_pattern(operand.view), frozenset((*symbols.values(), *phases)))
    if isinstance(access, str):
        return access
    return _Reader(operand, symbols, access, rows, k).copy()


class _Unfit(Exception):
    """The reason why a view has no copy."""


class _Reader:
    """Takes dimensions off the access one after the other until nothing is left."""

    def __init__(
        self, operand: Operand, symbols: dict[str, Expr], access: LinearAccess, rows: Merged, k: Merged
    ) -> None:
        self._operand, self._symbols, self._access = operand, symbols, access
        self._rows, self._k = _without_units(rows), _without_units(k)
        self._base, self._strides = access.base, Strides(access.strides)
        self._granule = max(GRANULE // operand.dtype.nbytes, 1)

    def copy(self) -> BulkCopy | str:
        """See `bulk_copy`."""
        try:
            return self._copy()
        except _Unfit as error:
            return str(error)

    def _copy(self) -> BulkCopy:
        inner, outer, major = self._directions()
        fastest = self._symbols[inner.parts[-1]]
        if len(inner.parts) > 1 and self._continues(inner):
            spanned = frozenset(self._symbols[part] for part in inner.parts)
            dimension = Dimension(simplify(inner.extent), const(1), flat_symbol(inner.name))
        else:
            spanned = frozenset((fastest,))
            dimension = Dimension(_axis_extent(inner), const(1), fastest)
        checked = self._checks(spanned, outer)
        for symbol in spanned:
            del self._strides[symbol]
        plain = self._plain(outer, checked)
        if plain is not None:
            kind, others = CopyKind.TILE, (plain, *self._unboxed(checked), *self._points())
        else:
            kind, others = CopyKind.COLUMNS, self._windows(outer, checked)
            dimension = self._shifted(dimension, inner)
        self._check_steps(others)
        self._check_tail(major, kind, others, outer)
        return BulkCopy(kind, major, (dimension, *others), self._base)

    # --- directions -------------------------------------------------------------------------------------------------

    def _directions(self) -> tuple[Merged, Merged, Major]:
        """(inner, outer, which one is inner): the inner one's fastest axis is contiguous."""
        for inner, outer, major in ((self._k, self._rows, Major.K), (self._rows, self._k, Major.OUTER)):
            parts = [part for part in inner.parts if part in self._symbols]
            if not parts or parts[-1] != inner.parts[-1] or self._stride(parts[-1]) is not const(1):
                continue
            span = SPAN // self._operand.dtype.nbytes
            scattered = len(parts) > 1 and not self._continues(inner)
            if scattered and (major is Major.K or divisor(_axis_extent(inner)) % span):
                raise _Unfit(
                    f"{span} numbers of the flat index {','.join(inner.parts)} must lie together; "
                    f"the inner ones are {parts[-1]} with {_axis_extent(inner)}"
                )
            return inner, outer, major
        raise _Unfit("no direction of its tiles is contiguous")

    def _continues(self, direction: Merged) -> bool:
        """Whether the axes of a direction continue each other, so that its flat index is a plain stride."""
        expected = self._stride(direction.parts[-1])
        for part, extent in zip(reversed(direction.parts), reversed(direction.extents), strict=True):
            if self._stride(part) is not simplify(expected):
                return False
            expected = expected * extent
        return True

    def _stride(self, name: str) -> Expr:
        return self._strides.get(self._symbols[name], const(0)) if name in self._symbols else const(0)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _checks(self, inner: frozenset[Expr], outer: Merged) -> dict[Expr | None, list[Dimension]]:
        """Dimensions of the range checks, by the axis of the outer direction in each; their strides are taken off."""
        found: dict[Expr | None, list[Dimension]] = {}
        boxed = {self._symbols[part] for part in outer.parts if part in self._symbols}
        for check in self._access.checks:
            if not inner.isdisjoint(check.coefficients):
                raise _Unfit("its contiguous axis is shifted or padded")
            mine = [symbol for symbol in check.coefficients if symbol in boxed]
            if len(mine) > 1 or (mine and mine[0] in found):
                raise _Unfit("a check ties two axes of its tiles")
            axis = mine[0] if mine else None
            found.setdefault(axis, []).append(self._checked(check, axis))
        return found

    def _checked(self, check: LinearCheck, axis: Expr | None) -> Dimension:
        """The dimension whose coordinate is the checked sum, turned so that its stride is positive."""
        pivot = next(iter(check.coefficients)) if axis is None else axis
        stride = exact_quotient(self._strides.get(pivot, const(0)), const(abs(check.coefficients[pivot])))
        if stride is None or stride is const(0):
            raise _Unfit("a check counts other steps than its offset")
        value, size = _both_sides(check)
        turn = -1 if check.coefficients[pivot] < 0 else 1
        if stride.is_const and stride.value < 0:
            stride, turn = -stride, -turn
        if turn < 0:
            value = size - 1 - value
        rest = value
        for symbol, coefficient in check.coefficients.items():
            self._take(symbol, stride * (coefficient * turn))
            rest = rest - symbol * (coefficient * turn)
        self._base = self._base - rest * stride
        if axis is None:
            return Dimension(simplify(size), stride, value)
        if axis in self._strides:
            raise _Unfit("an axis of its tiles moves two coordinates")
        if check.coefficients[axis] * turn < 0:
            raise _Unfit("an axis of its tiles runs backwards")
        return Dimension(simplify(size), stride, value, step=abs(check.coefficients[axis]))

    def _take(self, symbol: Expr, stride: Expr) -> None:
        left = self._strides.get(symbol, const(0)) - stride
        if left is const(0):
            self._strides.pop(symbol, None)
        else:
            self._strides[symbol] = left

    # --- the outer direction ----------------------------------------------------------------------------------------

    def _plain(self, outer: Merged, checked: dict[Expr | None, list[Dimension]]) -> Dimension | None:
        """The outer direction as one dimension, if its axes continue each other; None if they do not."""
        axes = [self._symbols.get(part) for part in outer.parts]
        if any(axis in checked for axis in axes if axis is not None):
            if len(axes) > 1 or axes[0] is None or checked[axes[0]][0].step != 1:
                return None
            (dimension,) = checked.pop(axes[0])
            return dimension
        if not axes:
            return Dimension(const(1), const(self._granule), flat_symbol(outer.name))
        stride = self._stride(outer.parts[-1])
        if stride is const(0) or not self._continues(outer):
            return None
        for axis in axes:
            if axis is not None:
                self._strides.pop(axis, None)
        return Dimension(simplify(outer.extent), stride, flat_symbol(outer.name))

    def _windows(self, outer: Merged, checked: dict[Expr | None, list[Dimension]]) -> tuple[Dimension, ...]:
        """Window dimensions, fastest first, then the batch."""
        axes = [self._symbols.get(part) for part in outer.parts]
        if any(axis is None for axis in axes):
            raise _Unfit(f"it repeats along {','.join(outer.parts)}")
        batched = len(axes) > 1 and axes[0] not in checked
        spatial = list(zip(axes, outer.extents, strict=True))[batched:]
        found = [self._window(axis, extent, checked) for axis, extent in reversed(spatial) if axis is not None]
        found += [self._corner(item, const(1)) for item in checked.pop(None, [])]
        if not 1 <= len(found) <= _MOST_RANK - 2:
            raise _Unfit(f"a map of image columns has 1 to 3 window dimensions; it has {len(found)}")
        rank = len(found) + 2
        for item in found:
            self._check_corner(item, rank)
        if batched:
            first = axes[0]
            assert first is not None
            batch = Dimension(outer.extents[0], self._strides.pop(first, const(0)), first)
        else:
            batch = Dimension(const(1), const(self._granule), const(0))
        return (*found, batch)

    def _window(self, axis: Expr, extent: Expr, checked: dict[Expr | None, list[Dimension]]) -> Dimension:
        if axis in checked:
            (dimension,) = checked.pop(axis)
            return self._corner(dimension, extent, axis)
        return Dimension(extent, self._strides.pop(axis, const(0)), axis, const(0))

    def _corner(self, item: Dimension, extent: Expr, axis: Expr | None = None) -> Dimension:
        """The checked sum as window position + what the taps add; `extent` positions, `step` apart."""
        own = const(0) if axis is None else axis * item.step
        taps = item.start - own
        lower, most = bounds(taps).lo, bounds(taps).hi
        upper = simplify(lower + (extent - 1) * item.step + 1 - item.size) if lower is not None else None
        if lower is None or most is None or upper is None or not upper.is_const:
            raise _Unfit("corners of its windows depend on sizes")
        return Dimension(item.size, item.stride, own + lower, simplify(taps - lower), item.step, lower, upper.value)

    def _check_corner(self, item: Dimension, rank: int) -> None:
        least, most = CORNERS[rank]
        if not (least <= item.lower <= most and least <= item.upper <= most):
            raise _Unfit(f"corners of windows lie in {least}..{most}; its are {item.lower} and {item.upper}")
        if item.step > MAX_STEP:
            raise _Unfit(f"windows are at most {MAX_STEP} apart; its are {item.step}")
        reach = bounds(item.shift).hi
        if reach is None or reach >= _OFFSETS[rank]:
            raise _Unfit(f"taps reach less than {_OFFSETS[rank]} positions; its reach {reach}")

    # --- what is left -----------------------------------------------------------------------------------------------

    def _unboxed(self, checked: dict[Expr | None, list[Dimension]]) -> tuple[Dimension, ...]:
        """Checks of axes that tiles do not span."""
        left = checked.pop(None, [])
        if checked:
            raise _Unfit("a check ties two axes of its tiles")
        return tuple(left)

    def _points(self) -> tuple[Dimension, ...]:
        """Axes that only say where a tile begins: one dimension of their common stride, else one for each."""
        strides = dict(self._strides)
        self._strides.clear()
        if not strides:
            return ()
        if all(stride.is_const for stride in strides.values()):
            unit = gcd(*(stride.value for stride in strides.values()))
            start = const(0)
            for symbol, stride in strides.items():
                start = start + symbol * (stride.value // unit)
            return (self._point(start, const(unit)),)
        return tuple(self._point(symbol, stride) for symbol, stride in strides.items())

    def _point(self, start: Expr, stride: Expr) -> Dimension:
        limits = bounds(start)
        low = _known(limits.lo)
        self._base = self._base + stride * low
        if limits.hi is None:
            raise _Unfit("the range of an axis is unknown")
        return Dimension(const(limits.hi - low + 1), stride, start - low)

    def _shifted(self, inner: Dimension, direction: Merged) -> Dimension:
        """The inner dimension of columns takes what is left, as there is no other place for it."""
        strides = dict(self._strides)
        self._strides.clear()
        start, size = inner.start, inner.size
        for symbol, stride in strides.items():
            start = start + symbol * stride
            most = bounds(symbol * stride)
            if most.lo is None or most.lo < 0 or most.hi is None or not stride.is_const:
                raise _Unfit("an axis that tiles do not span moves it by an unknown distance")
            size = size + most.hi
        if strides and divisor(inner.size) % (SPAN // self._operand.dtype.nbytes):
            raise _Unfit(f"tails of {direction.parts[-1]} would read what lies behind")
        if divisor(start - inner.start) % self._granule:
            raise _Unfit(f"copies begin at multiples of {GRANULE} bytes")
        return Dimension(simplify(size), inner.stride, start)

    def _check_steps(self, others: tuple[Dimension, ...]) -> None:
        if len(others) + 1 > _MOST_RANK:
            raise _Unfit(f"a tensor map has at most {_MOST_RANK} dimensions; it needs {len(others) + 1}")
        for item in others:
            if divisor(item.stride) % self._granule:
                raise _Unfit(f"strides of a tensor map are multiples of {GRANULE} bytes; one is {item.stride} numbers")
            if item.stride is const(0):
                raise _Unfit("an axis of its tiles repeats")
        if divisor(self._base) % self._granule:
            raise _Unfit(f"a tensor map begins at a multiple of {GRANULE} bytes; its offset is {self._base}")

    def _check_tail(self, major: Major, kind: CopyKind, others: tuple[Dimension, ...], outer: Merged) -> None:
        """K beyond its end must read zeros: what a check lets through there would not."""
        if major is Major.OUTER and kind is CopyKind.TILE and outer.parts:
            checked = others[0].start is not flat_symbol(outer.name)
            if checked and divisor(outer.extent) % self._k.multiple:
                raise _Unfit("the last tile of K would read what lies behind its end")


def _both_sides(check: LinearCheck) -> tuple[Expr, Expr]:
    """(value, size) of 0 <= value < size; a side that is not checked is where the value ends."""
    value = check.constant
    for symbol, coefficient in check.coefficients.items():
        value = value + symbol * coefficient
    limits = bounds(value)
    low = const(0) if check.lower else const(_known(limits.lo))
    size = const(_known(limits.hi) + 1) if check.size is None else check.size
    return value - low, size - low


def _without_units(direction: Merged) -> Merged:
    """The direction without its axes of one number."""
    kept = [(p, e) for p, e in zip(direction.parts, direction.extents, strict=True) if e is not const(1)]
    return replace(direction, parts=tuple(p for p, _ in kept), extents=tuple(e for _, e in kept))


def _axis_extent(direction: Merged) -> Expr:
    return simplify(direction.extents[-1])


def _known(limit: int | None) -> int:
    if limit is None:
        raise _Unfit("the range of a check is unknown")
    return limit
