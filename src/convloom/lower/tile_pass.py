"""Kernels over all tiles of C without a sum over K: threads hold the same numbers as in the kernel that multiplies."""

from __future__ import annotations

from collections.abc import Callable

from convloom.expr import Expr
from convloom.ir.build import IrBuilder
from convloom.ir.ops import LoopKind, Value
from convloom.lower.decode_block import BlockPlace, block_count, decode_block
from convloom.lower.epilogue import store_part
from convloom.lower.frame import GridFrame
from convloom.lower.multiply import Sums
from convloom.lower.sum_vectors import SumVectors

_BLOCK_NUMBERS = 128  # of a block at least: many small blocks, as these kernels only wait for memory

EmitVector = Callable[[BlockPlace, SumVectors, Expr], None]
"""Receives the block's place and the number of one vector of the thread's sums."""


def tile_pass(builder: IrBuilder, frame: GridFrame, multiplier: Sums, emit: EmitVector) -> Expr:
    """Emits every vector of every tile once, a slice of each tile per block; returns the number of blocks.

    requires: the frame has one K group.
    """
    vectors = SumVectors(frame, multiplier.accumulators)
    most = max(frame.plan.block_m * frame.plan.block_n // _BLOCK_NUMBERS, 1)
    slices = next(count for count in range(min(vectors.count, most), 0, -1) if vectors.count % count == 0)
    place = decode_block(builder, frame, 1, slices)
    each = vectors.count // slices
    with builder.loop("v", each, LoopKind.UNROLLED) as v:
        emit(place, vectors, place.slice * each + v)
    return block_count(frame, 1, slices)


def store_runs(
    builder: IrBuilder,
    frame: GridFrame,
    place: BlockPlace,
    multiplier: Sums,
    vector: tuple[Expr, int],
    value: Callable[[int], Value],
) -> None:
    """Runs the epilogue over a vector (its number, its width): runs of `store` numbers, from their first on."""
    number, width = vector
    corner, store = place.corner, frame.plan.store
    for first in range(0, width, store):
        row, column = multiplier.place(number * width + first)
        coordinates = {"M": corner["M"] + row, "N": corner["N"] + column, "G": corner["G"]}
        store_part(builder, frame, coordinates, value(first))
