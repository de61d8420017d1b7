"""K over the grid: blocks leave partial sums in a workspace, a later kernel adds them and runs the epilogue."""

from __future__ import annotations

from convloom.artifact import WORKSPACE
from convloom.expr import Expr, const, maximum, minimum, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Binary, BinaryOp, Buffer, LoopKind, Read, Scope
from convloom.lower.decode_block import BlockPlace, block_count
from convloom.lower.frame import GridFrame
from convloom.lower.k_loops import KRange
from convloom.lower.multiply import Sums
from convloom.lower.sum_vectors import SumVectors
from convloom.lower.tile_pass import store_runs, tile_pass
from convloom.plan.split import LOADS_AHEAD, Reduction


def workspace_buffer(frame: GridFrame, *, written: bool) -> Buffer:
    """The workspace as a kernel's parameter."""
    return Buffer(WORKSPACE, frame.contraction.acc, Scope.GLOBAL, written=written)


def steps_of_part(builder: IrBuilder, frame: GridFrame, part: Expr, steps: Expr) -> KRange:
    """The K tiles of one part of the sum: equal numbers of them, the last parts may have fewer or none."""
    parts = frame.plan.split.parts
    share = simplify((steps + (parts - 1)) // parts)
    first = builder.let("first_step", part * share)
    if simplify(share * parts) is simplify(steps):
        return KRange(first, share)
    return KRange(first, builder.let("part_steps", minimum(share, maximum(steps - first, 0)), share + 1))


def store_partial(builder: IrBuilder, frame: GridFrame, place: BlockPlace, multiplier: Sums) -> None:
    """Writes the thread's accumulators to its part of the workspace, or adds them to what all parts share."""
    vectors = SumVectors(frame, multiplier.accumulators)
    workspace, shared = workspace_buffer(frame, written=True), frame.plan.split.how is Reduction.ATOMIC
    tile = place.tile if shared else place.part * block_count(frame, 1) + place.tile
    start = builder.let("partial_at", tile * vectors.tile_numbers)
    emit = builder.add if shared else builder.write
    with (
        builder.condition(simplify(frame.k_group.eq(0))),
        builder.loop("v", vectors.count, LoopKind.UNROLLED) as v,
    ):
        emit(workspace, start + vectors.place(v), vectors.of_thread(v))


def finish(builder: IrBuilder, frame: GridFrame, multiplier: Sums) -> Expr:
    """The last kernel: sums over the parts in their order, then the epilogue, once; returns the number of blocks."""
    parts = frame.plan.split.parts if frame.plan.split.how is Reduction.PASSES else 1

    def one_vector(place: BlockPlace, vectors: SumVectors, vector: Expr) -> None:
        sums = _sum_parts(builder, frame, vectors, place.tile * vectors.tile_numbers + vectors.place(vector), parts)

        def run(first: int) -> Read:
            return Read(sums, const(first), frame.plan.store)

        store_runs(builder, frame, place, multiplier, (vector, vectors.width), run)

    return tile_pass(builder, frame, multiplier, one_vector)


def _sum_parts(builder: IrBuilder, frame: GridFrame, vectors: SumVectors, at: Expr, parts: int) -> Buffer:
    """The sums of one vector over all parts, in a register buffer."""
    workspace, width = workspace_buffer(frame, written=False), vectors.width
    sums = builder.allocate(
        Buffer(builder.unique("sums"), frame.contraction.acc, Scope.REGISTER, width, frame.plan.lanes)
    )
    start = builder.let("partial_at", at)
    builder.write(sums, 0, Read(workspace, start, width))
    if parts == 1:
        return sums
    stride = block_count(frame, 1) * vectors.tile_numbers

    def add(part: Expr) -> None:
        other = Read(workspace, start + part * stride, width)
        builder.write(sums, 0, Binary(BinaryOp.ADD, Read(sums, const(0), width), other))

    chunks, rest = divmod(parts - 1, LOADS_AHEAD)
    if chunks:
        with builder.loop("chunk", chunks) as chunk, builder.loop("part", LOADS_AHEAD, LoopKind.UNROLLED) as part:
            add(chunk * LOADS_AHEAD + part + 1)
    if rest:
        with builder.loop("part", rest, LoopKind.UNROLLED) as part:
            add(part + (1 + chunks * LOADS_AHEAD))
    return sums
