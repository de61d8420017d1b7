"""The ring of stages between the roles of a block: its barriers, and where each role stands in it."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import B64
from convloom.expr import Expr, const, maximum, select
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, Read, Scope
from convloom.target.catalogue import row_named


@dataclass(frozen=True, slots=True)
class RingBarriers:
    """Of each stage: `full`, whose phase ends when its tiles are there, and `empty`, when all consumers are done.

    `full` takes one arrival, of the producer, and the bytes of the tiles; `empty` one of each consumer.
    """

    full: Buffer
    empty: Buffer
    stages: int

    def initialise(self, builder: IrBuilder, consumers: int) -> None:
        """By one thread, in front of a barrier of the block."""
        for stage in range(self.stages):
            for barrier, count in ((self.full, 1), (self.empty, consumers)):
                place = Address(barrier, const(stage))
                builder.instruct(row_named("mbarrier.init"), barrier=place, count=const(count))
        builder.instruct(row_named("fence.mbarrier_init"))

    def wait(self, builder: IrBuilder, barrier: Buffer, stage: Expr, parity: Expr) -> None:
        """Until the phase of this parity is over."""
        builder.instruct(row_named("mbarrier.wait.parity"), barrier=Address(barrier, stage), parity=parity)

    def expect(self, builder: IrBuilder, stage: Expr, nbytes: int) -> None:
        """The producer's arrival."""
        full = Address(self.full, stage)
        builder.instruct(row_named("mbarrier.arrive.expect_tx"), barrier=full, nbytes=const(nbytes))

    def release(self, builder: IrBuilder, stage: Expr) -> None:
        """A consumer's arrival: the producer may overwrite the stage."""
        builder.instruct(row_named("mbarrier.arrive"), barrier=Address(self.empty, stage))


def ring_barriers(builder: IrBuilder, stages: int) -> RingBarriers:
    """Allocates the barriers."""
    full, empty = (builder.allocate(Buffer(name, B64, Scope.SHARED, stages)) for name in ("full", "empty"))
    return RingBarriers(full, empty, stages)


class RingPlace:
    """Where a role stands: its stage, and the parity of the phase that it waits for there."""

    def __init__(self, builder: IrBuilder, stages: int, parity: int) -> None:
        self._stages = stages
        self._counters = builder.allocate(Buffer(builder.unique("ring"), None, Scope.REGISTER, 2))
        builder.write(self._counters, 0, const(0))
        builder.write(self._counters, 1, const(parity))

    def here(self, builder: IrBuilder) -> tuple[Expr, Expr]:
        """(stage, parity)."""
        stage = builder.let_read("stage", Read(self._counters, const(0)), 0, self._stages - 1)
        return stage, builder.let_read("parity", Read(self._counters, const(1)), 0, 1)

    def advance(self, builder: IrBuilder, stage: Expr, parity: Expr) -> None:
        """Turns to the next stage; behind the last one comes the first, in its next phase."""
        wraps = stage.eq(self._stages - 1)
        builder.write(self._counters, 0, select(wraps, const(0), stage + 1))
        builder.write(self._counters, 1, select(wraps, 1 - parity, parity))

    def before(self, builder: IrBuilder, stage: Expr) -> Expr:
        """The stage in front of a stage."""
        return builder.let("before", select(stage.eq(0), const(self._stages - 1), maximum(stage - 1, 0)))
