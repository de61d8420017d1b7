"""The K groups of a block add up their sums through shared memory."""

from __future__ import annotations

from convloom.expr import maximum, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Binary, BinaryOp, Buffer, LoopKind, Read, Scope
from convloom.lower.frame import Frame
from convloom.lower.sum_vectors import SumVectors


def reduce_groups(builder: IrBuilder, frame: Frame, accumulators: Buffer) -> None:
    """Leaves the sum over all groups, added in their order, in the accumulators of group 0.

    Every other group hands its sums over in shared memory; one barrier. Nothing for a single group.
    """
    others = frame.plan.k_groups - 1
    if others == 0:
        return
    vectors = SumVectors(frame, accumulators)
    shared = builder.allocate(Buffer("group_sums", accumulators.dtype, Scope.SHARED, others * vectors.tile_numbers))
    builder.comment("K groups: all but the first hand their sums over")
    with (
        builder.condition(simplify(frame.k_group.gt(0))),
        builder.loop("v", vectors.count, LoopKind.UNROLLED) as v,
    ):
        slot = maximum(frame.k_group - 1, 0) * vectors.tile_numbers
        builder.write(shared, slot + vectors.place(v), vectors.of_thread(v))
    builder.barrier()
    with (
        builder.condition(simplify(frame.k_group.eq(0))),
        builder.loop("other", others) as other,
        builder.loop("v", vectors.count, LoopKind.UNROLLED) as v,
    ):
        handed = Read(shared, other * vectors.tile_numbers + vectors.place(v), vectors.width)
        added = Binary(BinaryOp.ADD, vectors.of_thread(v), handed)
        builder.write(accumulators, v * vectors.width, added)
