"""What the arguments of instructions hold: their index expressions and buffers, and both replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from convloom.expr import Expr
from convloom.ir.ops import Address, Argument, Buffer, Descriptor, MapParameter, Numbers, Registers


def argument_expressions(item: Argument) -> Iterator[Expr]:
    """The index expressions that are evaluated where the instruction stands (those of maps are the host's)."""
    match item:
        case Registers() | Address() | Descriptor():
            yield item.index
        case Numbers():
            yield from item.values
        case MapParameter():
            return
        case Expr():
            yield item


def argument_buffer(item: Argument) -> Buffer | None:
    """The buffer that an argument lies in or, for a map, copies to or from."""
    return None if isinstance(item, Numbers | Expr) else item.buffer


def map_argument(item: Argument, on_expr: Callable[[Expr], Expr]) -> Argument:
    """The argument with every index expression replaced."""
    match item:
        case Registers() | Address() | Descriptor():
            return replace(item, index=on_expr(item.index))
        case Numbers():
            return Numbers(tuple(on_expr(value) for value in item.values))
        case MapParameter():
            return item
        case Expr():
            return on_expr(item)


def place_argument(item: Argument, place: Callable[[Buffer, Expr], tuple[Buffer, Expr]]) -> Argument:
    """The argument moved to the buffer and index that `place` gives for the old ones; maps stay."""
    if isinstance(item, Registers | Address | Descriptor):
        buffer, index = place(item.buffer, item.index)
        return replace(item, buffer=buffer, index=index)
    return item
