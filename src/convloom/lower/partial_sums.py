"""K over the grid: blocks leave partial sums in a workspace, a second kernel adds them and runs the epilogue."""

from __future__ import annotations

from convloom.artifact import WORKSPACE
from convloom.expr import Expr, const, maximum, minimum, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Binary, BinaryOp, Buffer, LoopKind, Read, Scope
from convloom.lower.decode_block import BlockPlace, block_count, decode_block
from convloom.lower.epilogue import store_part
from convloom.lower.frame import Frame
from convloom.lower.k_loops import KRange
from convloom.lower.multiply import Multiplier
from convloom.lower.sum_vectors import SumVectors

_BLOCK_NUMBERS = 1024  # that a block of the second kernel adds up, so that decoding its place does not show
_MOST_UNROLLED = 16  # parts whose loads are all on their way at once


def workspace_buffer(frame: Frame, *, written: bool) -> Buffer:
    """The workspace as a kernel's parameter."""
    return Buffer(WORKSPACE, frame.contraction.acc, Scope.GLOBAL, written=written)


def steps_of_part(builder: IrBuilder, frame: Frame, part: Expr, steps: Expr) -> KRange:
    """The K tiles of one part of the sum: equal numbers of them, the last parts may have fewer or none."""
    parts = frame.plan.split.parts
    share = simplify((steps + (parts - 1)) // parts)
    first = builder.let("first_step", part * share)
    if simplify(share * parts) is simplify(steps):
        return KRange(first, share)
    return KRange(first, builder.let("part_steps", minimum(share, maximum(steps - first, 0)), share + 1))


def store_partial(builder: IrBuilder, frame: Frame, place: BlockPlace, multiplier: Multiplier) -> None:
    """Writes the thread's accumulators to its part of the workspace."""
    vectors = SumVectors(frame, multiplier.accumulators)
    workspace = workspace_buffer(frame, written=True)
    tiles = block_count(frame, 1)
    start = builder.let("partial_at", (place.part * tiles + place.tile) * vectors.tile_numbers)
    with (
        builder.condition(simplify(frame.k_group.eq(0))),
        builder.loop("v", vectors.count, LoopKind.UNROLLED) as v,
    ):
        builder.write(workspace, start + vectors.place(v), vectors.of_thread(v))


def finish_slices(frame: Frame, multiplier: Multiplier) -> int:
    """Blocks of the second kernel that share one tile: as many as leave each enough numbers."""
    count = SumVectors(frame, multiplier.accumulators).count
    most = max(frame.plan.block_m * frame.plan.block_n // _BLOCK_NUMBERS, 1)
    return next(slices for slices in range(min(count, most), 0, -1) if count % slices == 0)


def build_finish(builder: IrBuilder, frame: Frame, multiplier: Multiplier) -> None:
    """The second kernel: sums over the parts in their order, then the epilogue, once.

    Threads hold the same numbers as in the first kernel, a slice of them per block.
    """
    vectors = SumVectors(frame, multiplier.accumulators)
    slices = finish_slices(frame, multiplier)
    place = decode_block(builder, frame, 1, slices)
    each = vectors.count // slices
    with builder.loop("v", each, LoopKind.UNROLLED) as v:
        vector = place.slice * each + v
        sums = _sum_parts(builder, frame, place, vectors, vector)
        for run in range(vectors.width // frame.plan.store):
            row, column = multiplier.place(vector * vectors.width + run * frame.plan.store)
            corner = place.corner
            coordinates = {"M": corner["M"] + row, "N": corner["N"] + column, "G": corner["G"]}
            store_part(builder, frame, coordinates, Read(sums, const(run * frame.plan.store), frame.plan.store))


def _sum_parts(builder: IrBuilder, frame: Frame, place: BlockPlace, vectors: SumVectors, vector: Expr) -> Buffer:
    """The sums of one vector over all parts, in a register buffer."""
    workspace = workspace_buffer(frame, written=False)
    parts, width = frame.plan.split.parts, vectors.width
    sums = builder.allocate(
        Buffer(builder.unique("sums"), frame.contraction.acc, Scope.REGISTER, width, frame.plan.lanes)
    )
    stride = block_count(frame, 1) * vectors.tile_numbers
    start = builder.let("partial_at", place.tile * vectors.tile_numbers + vectors.place(vector))
    builder.write(sums, 0, Read(workspace, start, width))
    kind = LoopKind.UNROLLED if parts <= _MOST_UNROLLED else LoopKind.SERIAL
    with builder.loop("part", parts - 1, kind) as part:
        other = Read(workspace, start + (part + 1) * stride, width)
        builder.write(sums, 0, Binary(BinaryOp.ADD, Read(sums, const(0), width), other))
    return sums
