"""What all parts of one Hopper kernel share while it is built."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.artifact import MULTIPROCESSORS
from convloom.errors import InternalError
from convloom.expr import Expr, const, maximum, minimum, simplify, sym
from convloom.ir.symbols import thread_id
from convloom.lower.decode_block import block_count
from convloom.lower.frame import GridFrame, flat_axes_of, operand_buffers
from convloom.plan.bulk_copy import BulkCopy, bulk_copy
from convloom.plan.hopper import PRODUCER, HopperPlan, Output
from convloom.plan.hopper_legality import chunks_of
from convloom.plan.result_chunks import ResultChunks
from convloom.problem.contraction import Contraction
from convloom.target.nvidia_wgmma import WARPGROUP


@dataclass(frozen=True, slots=True)
class HopperFrame(GridFrame):
    """A Hopper plan's frame with the copies that fetch its tiles.

    `thread` is the place in the block; consumers are the warpgroups behind the producer.
    """

    plan: HopperPlan
    thread: Expr
    a: BulkCopy
    b: BulkCopy
    result: ResultChunks | None  # where results go through shared memory

    @property
    def role(self) -> Expr:
        """The number of the thread's warpgroup: 0 produces."""
        return simplify(self.thread // WARPGROUP)

    @property
    def first_of_group(self) -> Expr:
        """Whether the thread is the first of its warpgroup."""
        return simplify((self.thread % WARPGROUP).eq(0))

    @property
    def total(self) -> Expr:
        """Number of tiles of C, times the parts of their sums."""
        return block_count(self, self.plan.split.parts)

    @property
    def blocks(self) -> Expr:
        """Number of blocks of the launch: one for each multiprocessor, if there are so many tiles."""
        return simplify(minimum(self.total, sym(MULTIPROCESSORS, lo=1)))


def hopper_frame(contraction: Contraction, plan: HopperPlan) -> HopperFrame:
    """The frame of a contraction that is oriented as the plan says."""
    thread = thread_id(plan.threads)
    m, n, k, g = flat_axes_of(contraction, plan)
    copies = [bulk_copy(contraction, *pair, k) for pair in ((contraction.a, m), (contraction.b, n))]
    for copy in copies:
        if isinstance(copy, str):
            raise InternalError(f"a legal plan's operands have tensor copies; {copy}; report this")
    a, b = (copy for copy in copies if isinstance(copy, BulkCopy))
    member = simplify(maximum(thread - WARPGROUP * PRODUCER, 0))
    result = None if plan.output is Output.REGISTERS else chunks_of(contraction, plan)
    if isinstance(result, str):
        raise InternalError(f"a legal plan's results have chunks; {result}; report this")
    buffers = operand_buffers(contraction)
    return HopperFrame(contraction, plan, m, n, k, g, buffers, const(0), member, thread, a, b, result)
