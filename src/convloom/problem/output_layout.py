"""The layout of a result that nobody prescribed: dense, in the dimension order of the input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from convloom.expr import Expr, const, evaluate, free_symbols
from convloom.problem.conv import Conv, Direction
from convloom.problem.layout import Layout, dense

TYPICAL_SIZE = 64


def output_strides(conv: Conv) -> tuple[Expr, ...]:
    """Element strides of the result, dense in the order of the input's strides (dst for BWD_D, else src).

    Dimensions of extent 1 or stride 0 say nothing about the order. If the others agree with the declared
    order (n, c, *spatial) the result has it; else if they agree with channels last, channels last; else their own
    order by falling stride. Symbolic strides are compared at typical sizes (the hint, else 64 where the facts allow).
    """
    if conv.direction is Direction.BWD_D:
        return follow_order(conv.dst.layout, conv.dst_shape, conv.src_shape).strides
    result = conv.dst_shape if conv.direction is Direction.FWD else conv.wei_shape
    return follow_order(conv.src.layout, conv.src_shape, result).strides


def follow_order(layout: Layout, shape: Sequence[Expr], result: Sequence[Expr]) -> Layout:
    """The dense layout of extents `result` in the dimension order of a tensor of this layout and shape."""
    return dense(result, _order(layout, shape))


def _order(layout: Layout, shape: Sequence[Expr]) -> tuple[int, ...]:
    rank = len(shape)
    declared = tuple(range(rank))
    if layout.blocks:
        return declared
    channels_last = (0, *range(2, rank), 1)
    telling = [dim for dim in declared if shape[dim] is not const(1) and layout.strides[dim] is not const(0)]
    sizes = {dim: _typical(layout.strides[dim]) for dim in telling}
    for order in (declared, channels_last):
        falling = [sizes[dim] for dim in order if dim in sizes]
        if all(outer >= inner for outer, inner in pairwise(falling)):
            return order
    by_stride = sorted(telling, key=lambda dim: -sizes[dim])
    return (*[dim for dim in declared if dim not in sizes], *by_stride)


def _typical(stride: Expr) -> int:
    if stride.is_const:
        return abs(stride.value)
    return abs(int(evaluate(stride, {symbol.name: _typical_value(symbol) for symbol in free_symbols(stride)})))


def _typical_value(symbol: Expr) -> int:
    facts = symbol.facts
    wish = facts.hint if facts.hint is not None else TYPICAL_SIZE
    lowest = wish if facts.lo is None else max(wish, facts.lo)
    within = lowest if facts.hi is None else min(lowest, facts.hi)
    return -(-within // facts.divisor) * facts.divisor
