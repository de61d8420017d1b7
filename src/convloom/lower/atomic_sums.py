"""Sums that blocks add to memory atomically, which a kernel in front has set to zero."""

from __future__ import annotations

from convloom.expr import Expr, all_of, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Constant, Read
from convloom.lower.decode_block import BlockPlace
from convloom.lower.frame import Frame
from convloom.lower.multiply import Multiplier
from convloom.lower.partial_sums import workspace_buffer
from convloom.lower.sum_vectors import SumVectors
from convloom.lower.tile_pass import store_runs, tile_pass
from convloom.plan.flat_axis import MASKED_IN_RESULT, tile_view


def clear_workspace(builder: IrBuilder, frame: Frame, multiplier: Multiplier) -> Expr:
    """Zeros in the workspace; returns the number of blocks."""
    workspace = workspace_buffer(frame, written=True)

    def one_vector(place: BlockPlace, vectors: SumVectors, vector: Expr) -> None:
        at = place.tile * vectors.tile_numbers + vectors.place(vector)
        builder.write(workspace, at, Constant(0, frame.contraction.acc, vectors.width))

    return tile_pass(builder, frame, multiplier, one_vector)


def clear_result(builder: IrBuilder, frame: Frame, multiplier: Multiplier) -> Expr:
    """Zeros in every element of C, and only there; returns the number of blocks."""

    def zeros(first: int) -> Constant:
        return Constant(0, frame.contraction.acc, frame.plan.store)

    def one_vector(place: BlockPlace, vectors: SumVectors, vector: Expr) -> None:
        store_runs(builder, frame, place, multiplier, (vector, vectors.width), zeros)

    return tile_pass(builder, frame, multiplier, one_vector)


def add_to_result(builder: IrBuilder, frame: Frame, place: BlockPlace, multiplier: Multiplier) -> None:
    """Adds the thread's accumulators to C. requires: C has the accumulator's type and nothing else happens to it."""
    result, corner = frame.contraction.c, place.corner
    view = tile_view(result.view, frame.merged, (), MASKED_IN_RESULT)

    def emit(row: Expr, column: Expr, value: Read) -> None:
        coordinates = {"M": corner["M"] + row, "N": corner["N"] + column, "G": corner["G"]}
        access = view.access({axis.name: coordinates[axis.name] for axis in view.axes})
        mask = simplify(all_of(*access.conditions))
        at = builder.let(f"{result.name}_at", access.offset)
        builder.add(frame.buffers[result.name], at, value, None if mask is const(1) else mask)

    with builder.condition(simplify(frame.k_group.eq(0))):
        multiplier.each_part(builder, emit)
