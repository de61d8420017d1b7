"""What a way to multiply operand tiles offers to the builder of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from convloom.expr import Expr
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Read
from convloom.lower.shared_layout import SharedLayout

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
