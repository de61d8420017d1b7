"""Where the elements of a logical tensor lie: any strides, or strides with blocks inside a dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, Truth, as_expr, bounds, ceil_div, const, maximum, minimum, prove, substitute
from convloom.view import Affine, Axis, Split, Transform, View, strided


class Block(NamedTuple):
    """Runs of `period` consecutive indices of dimension `dim`, `stride` elements between neighbours in a run.

    The stride above applies from run to run. A dimension may hold several blocks, outermost first; each lies within
    the one before. `aBx16b` is one block of period 16 and stride 1 on dimension 1. Channels stored as (group, channel
    of the group) with foreign dimensions between the two are a block with the channels of a group as its period.
    """

    dim: int
    period: Expr
    stride: Expr


class Digit(NamedTuple):
    """One storage axis of a logical dimension: its extent and element stride."""

    extent: Expr
    stride: Expr


class StorageRange(NamedTuple):
    """Lowest and highest reachable element offset, relative to the element of index 0 everywhere."""

    lowest: Expr
    highest: Expr


@dataclass(frozen=True, slots=True)
class Layout:
    """Element strides per logical dimension (any sign, zero allowed), and blocks in the order of their storage.

    Offset of an index: per dimension, `index // period * stride` for the outermost digit, then the remainder goes to
    the blocks. A dimension that is no multiple of its block is padded up in memory.
    """

    strides: tuple[Expr, ...]
    blocks: tuple[Block, ...] = ()

    @property
    def rank(self) -> int:
        """Number of logical dimensions."""
        return len(self.strides)

    def blocks_of(self, dim: int) -> tuple[Block, ...]:
        """The blocks of one dimension, outermost first."""
        return tuple(block for block in self.blocks if block.dim == dim)

    def digits(self, dim: int, extent: ExprLike) -> tuple[Digit, ...]:
        """Storage axes of one dimension, outermost first; extents are rounded up to whole blocks."""
        found: list[Digit] = []
        total, stride = as_expr(extent), self.strides[dim]
        for block in self.blocks_of(dim):
            found.append(Digit(ceil_div(total, block.period), stride))
            total, stride = block.period, block.stride
        return (*found, Digit(total, stride))

    def view(self, names: Sequence[str], extents: Sequence[ExprLike]) -> View:
        """The view from the logical coordinates (named, with these extents) to element offsets; always valid."""
        self.check_rank(len(names))
        axes = tuple([Axis(name, as_expr(extent)) for name, extent in zip(names, extents, strict=True)])
        if not self.blocks:
            return strided(axes, self.strides)
        return self._blocked_view(axes)

    def _blocked_view(self, axes: tuple[Axis, ...]) -> View:
        transforms: list[Transform] = []
        inputs: list[str] = []
        for dim, axis in enumerate(axes):
            splits, digits = _split_dimension(axis, self.blocks_of(dim))
            transforms += splits
            inputs += digits
        strides = [digit.stride for dim, axis in enumerate(axes) for digit in self.digits(dim, axis.extent)]
        return View(axes, (*transforms, Affine(tuple(inputs), "offset", tuple(strides), const(0))))

    def storage_range(self, extents: Sequence[ExprLike]) -> StorageRange:
        """Range of the offsets that a tensor of these extents uses, blocks counted whole (meaningless if empty)."""
        self.check_rank(len(extents))
        lowest = highest = const(0)
        for dim, extent in enumerate(extents):
            for length, stride in self.digits(dim, extent):
                reach = (length - 1) * stride
                lowest = lowest + minimum(reach, 0)
                highest = highest + maximum(reach, 0)
        return StorageRange(lowest, highest)

    def storage_size(self, extents: Sequence[ExprLike]) -> Expr:
        """Elements from the lowest to the highest reachable one, both included; 0 for a tensor known to be empty."""
        if any(bounds(as_expr(extent)).hi == 0 for extent in extents):
            return const(0)
        lowest, highest = self.storage_range(extents)
        return highest - lowest + 1

    def is_dense(self, extents: Sequence[ExprLike]) -> bool:
        """True if every element of the storage is known to be used once (block padding counts as used)."""
        digits = [digit for dim, extent in enumerate(extents) for digit in self.digits(dim, extent)]
        waiting = [digit for digit in digits if digit.extent is not const(1)]
        expected = const(1)
        while waiting:
            found = next((digit for digit in waiting if digit.stride is expected), None)
            if found is None:
                return False
            waiting.remove(found)
            expected = expected * found.extent
        return True

    def check_rank(self, rank: int) -> None:
        """IllegalProblem unless the layout has this many dimensions."""
        if rank != self.rank:
            raise IllegalProblem(
                f"a layout has one stride per dimension; got {self.rank} strides for rank {rank}; give {rank}"
            )

    def bind(self, values: Mapping[Expr, ExprLike]) -> Layout:
        """The layout with symbols replaced."""
        blocks = tuple(
            Block(block.dim, substitute(block.period, values), substitute(block.stride, values))
            for block in self.blocks
        )
        return Layout(tuple(substitute(stride, values) for stride in self.strides), blocks)


def _split_dimension(axis: Axis, blocks: tuple[Block, ...]) -> tuple[list[Split], list[str]]:
    """Splits from a logical coordinate to the digits of its blocks, and the digits' names."""
    splits: list[Split] = []
    digits: list[str] = []
    rest, extent = axis.name, axis.extent
    for level, block in enumerate(blocks):
        outer, inner = f"{axis.name}_outer{level}", f"{axis.name}_inner{level}"
        splits.append(Split(rest, (outer, inner), (ceil_div(extent, block.period), block.period)))
        digits.append(outer)
        rest, extent = inner, block.period
    return splits, [*digits, rest]


def plain(strides: Sequence[ExprLike]) -> Layout:
    """A layout of these element strides."""
    return Layout(tuple([as_expr(stride) for stride in strides]))


def dense(extents: Sequence[ExprLike], order: Sequence[int] | None = None) -> Layout:
    """Dense strides; `order` lists the dimensions outermost first (default: as declared).

    A dimension known to be empty counts as 1, so that the strides of an empty tensor stay non-zero.
    """
    return _dense(
        tuple([as_expr(extent) for extent in extents]), tuple(range(len(extents)) if order is None else order)
    )


@lru_cache(maxsize=4096)
def _dense(extents: tuple[Expr, ...], order: tuple[int, ...]) -> Layout:
    strides = list(extents)
    step = const(1)
    for dim in reversed(order):
        strides[dim] = step
        step = step * storage_extent(extents[dim])
    return Layout(tuple(strides))


def storage_extent(extent: Expr) -> Expr:
    """The extent that dense strides reckon with: 1 where it is known to be 0."""
    return const(1) if extent is const(0) else extent


def fuse(layout: Layout, dim: int, inner_extent: ExprLike, outer_extent: ExprLike) -> Layout:
    """Joins dimensions dim (groups) and dim + 1 (channels of a group) to one logical dimension.

    IllegalProblem if the group dimension itself is blocked.
    """
    if layout.blocks_of(dim):
        raise IllegalProblem(f"the group dimension cannot be blocked; got {layout}; block the channels instead")
    inner, outer = as_expr(inner_extent), as_expr(outer_extent)
    moved = [_moved(block, block.dim - (block.dim > dim)) for block in layout.blocks]
    strides = layout.strides[:dim] + layout.strides[dim + 1 :]
    if outer is const(1):
        return Layout(strides, tuple(moved))
    jump, step = layout.strides[dim], layout.strides[dim + 1]
    if inner is const(1) or (not layout.blocks_of(dim + 1) and jump is step * inner):
        joined = jump if inner is const(1) else step
        return Layout((*strides[:dim], joined, *strides[dim + 1 :]), tuple(b for b in moved if b.dim != dim))
    split = Block(dim, inner, step)
    return Layout((*strides[:dim], jump, *strides[dim + 1 :]), (split, *moved))


def unfuse(layout: Layout, dim: int, inner_extent: ExprLike) -> Layout | None:
    """The inverse of `fuse`: dimension dim as (groups, channels of a group); None if its blocks do not say so."""
    inner = as_expr(inner_extent)
    here = layout.blocks_of(dim)
    rest = [
        Block(block.dim + (block.dim > dim), block.period, block.stride) for block in layout.blocks if block.dim != dim
    ]
    before, stride, after = layout.strides[:dim], layout.strides[dim], layout.strides[dim + 1 :]
    if not here:
        return Layout((*before, stride * inner, stride, *after), tuple(rest))
    if here[0].period is not inner:
        return None
    kept = [_moved(block, dim + 1) for block in here[1:]]
    return Layout((*before, stride, here[0].stride, *after), (*kept, *rest))


def _moved(block: Block, dim: int) -> Block:
    return Block(dim, block.period, block.stride)


def overlaps_itself(layout: Layout, extents: Sequence[ExprLike]) -> bool:
    """True if two indices share an element or nested strides do not exclude it; symbolic strides are trusted.

    Nested: sorted by magnitude, each stride exceeds the sum of the spans below it. Interleavings that are free of
    overlap without being nested count as overlapping.
    """
    digits = [digit for dim, extent in enumerate(extents) for digit in layout.digits(dim, extent)]
    if any(prove(count.ge(2)) is Truth.YES and stride is const(0) for count, stride in digits):
        return True
    if any(not (count.is_const and stride.is_const) for count, stride in digits):
        return False
    reach = 0
    for stride, count in sorted((abs(stride.value), count.value) for count, stride in digits if count.value > 1):
        if stride <= reach:
            return True
        reach += stride * (count - 1)
    return False
