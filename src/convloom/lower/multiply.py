"""What a way to multiply operand tiles offers to the builder of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, LoopKind, Read
from convloom.plan.shared_layout import SharedLayout

Stages = tuple[Expr, Expr]
"""Where the current tiles of A and B begin in their buffers."""

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


@dataclass(frozen=True, slots=True)
class TileProduct:
    """The product of one K tile, as `steps` steps.

    `load(stages, step, slot)` brings what step `first` + i multiplies to a set of registers, `multiply(slot)` adds its
    products to the accumulators. `slots` sets are kept, so that one can be loaded while another is multiplied.
    """

    first: Expr
    steps: int
    slots: int
    load: Callable[[Stages, Expr, Expr], None]
    multiply: Callable[[Expr], None]
    unroll: bool = True

    @property
    def carries(self) -> bool:
        """Whether the first set of the next K tile can be loaded while the last one of this tile is multiplied.

        Registers have no number that is known only when the code runs, so the sets must alternate alike in every tile.
        """
        return self.unroll and self.slots > 1 and self.steps % self.slots == 0

    def run(self, builder: IrBuilder, stages: Stages) -> None:
        """All steps of one tile; with two slots a step's loads come one step early."""
        if self.slots == 1:
            with builder.loop("kk", self.steps, LoopKind.UNROLLED if self.unroll else LoopKind.SERIAL) as kk:
                self.load(stages, simplify(self.first + kk), const(0))
                self.multiply(const(0))
            return
        self.load(stages, self.first, const(0))
        self.run_ahead(builder, stages)
        self.multiply(const((self.steps - 1) % self.slots))

    def run_ahead(self, builder: IrBuilder, stages: Stages) -> None:
        """All steps but the last one's multiplication, where the first one's loads have been made."""
        if self.steps > 1:
            with builder.loop("kk", self.steps - 1, LoopKind.UNROLLED) as kk:
                self.load(stages, simplify(self.first + kk + 1), simplify((kk + 1) % self.slots))
                self.multiply(simplify(kk % self.slots))


class Sums(Protocol):
    """A tile of C spread over threads."""

    @property
    def accumulators(self) -> Buffer:
        """The register buffer of a thread's numbers of C."""
        ...

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Row and column, in the block's tile of C, of a thread's accumulator."""
        ...


class Multiplier(Sums, Protocol):
    """acc += A tile * B tile, with accumulators spread over the threads of a block."""

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """How the tiles of A and B are wanted in shared memory."""
        ...

    def clear(self, builder: IrBuilder) -> None:
        """Allocates the accumulators and sets them to zero."""
        ...

    def product(self, builder: IrBuilder, a: TileUse, b: TileUse) -> TileProduct:
        """How K tiles in these buffers are multiplied; allocates the registers of its fragments."""
        ...

    def settle(self, builder: IrBuilder) -> None:
        """What is due once, behind the last K tile."""
        ...

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """Opens loops over this thread's accumulators and emits each part once."""
        ...
