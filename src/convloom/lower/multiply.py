"""What a way to multiply operand tiles offers to the builder of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, LoopKind, Read
from convloom.plan.shared_layout import SharedLayout

EmitPart = Callable[[Expr, Expr, Read], None]
"""Receives row and column in the block's tile of C, and the accumulators of `store` neighbouring columns."""


class TileUse(Protocol):
    """An operand tile in shared memory: its buffer and layout."""

    @property
    def shared(self) -> Buffer:
        """The buffer, of all stages."""
        ...

    @property
    def layout(self) -> SharedLayout:
        """How one stage lies in it."""
        ...


class Multiplier(Protocol):
    """acc += A tile * B tile, with accumulators spread over the threads of a block."""

    @property
    def accumulators(self) -> Buffer:
        """The register buffer of a thread's numbers of C."""
        ...

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """How the tiles of A and B are wanted in shared memory."""
        ...

    def clear(self, builder: IrBuilder) -> None:
        """Allocates the accumulators and sets them to zero."""
        ...

    def multiply(self, builder: IrBuilder, a: TileUse, b: TileUse, a_stage: Expr, b_stage: Expr) -> None:
        """Multiplies one K tile; the stages are places in the buffers."""
        ...

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Row and column, in the block's tile of C, of a thread's accumulator."""
        ...

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """Opens loops over this thread's accumulators and emits each part once."""
        ...


def buffered(
    builder: IrBuilder,
    first: Expr,
    steps: int,
    slots: int,
    load: Callable[[Expr, Expr], None],
    multiply: Callable[[Expr], None],
    *,
    unroll: bool = True,
) -> None:
    """Runs `load(step, slot)` and `multiply(slot)` for the steps from `first` on.

    With two slots a step's loads come one step early.

    requires: one slot, or two of an unrolled loop: registers have no number that is known only when the code runs.
    """
    kind = LoopKind.UNROLLED if unroll else LoopKind.SERIAL
    if slots == 1:
        with builder.loop("kk", steps, kind) as kk:
            load(simplify(first + kk), const(0))
            multiply(const(0))
        return
    load(first, const(0))
    if steps > 1:
        with builder.loop("kk", steps - 1, kind) as kk:
            load(simplify(first + kk + 1), simplify((kk + 1) % slots))
            multiply(simplify(kk % slots))
    multiply(const((steps - 1) % slots))
