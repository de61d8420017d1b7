"""Multiplication by instructions that each lane executes for itself on packed registers, such as short dot products."""

from __future__ import annotations

from convloom.dtypes import B32
from convloom.expr import Expr
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, Constant, LoopKind, Read, Registers, Scope
from convloom.lower.frame import Frame
from convloom.lower.multiply import EmitPart, Stages, TileProduct, TileUse
from convloom.lower.multiply_scalar import interleaved
from convloom.lower.zero_sums import ZeroSums
from convloom.plan.shared_layout import SharedLayout, tile_layouts
from convloom.target.catalogue import row_named
from convloom.target.instruction import Instruction

_WORD_BITS = 32


class LaneMultiplier:
    """Each thread owns thread_m x thread_n numbers of C, as single threads do; a register holds several k of a row."""

    def __init__(self, frame: Frame, row: Instruction) -> None:
        self._frame, self._row = frame, row
        plan = frame.plan
        self._depth = row.shape[2]
        self._acc = Buffer("acc", frame.contraction.acc, Scope.REGISTER, plan.thread_m * plan.thread_n)
        self._zeros = ZeroSums(frame, row, plan.thread_m, plan.thread_n)

    @property
    def accumulators(self) -> Buffer:
        """Rows of thread_n numbers."""
        return self._acc

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """Lines along rows, the k of one register together."""
        return tile_layouts(self._frame.plan, self._frame.contraction.acc)

    def clear(self, builder: IrBuilder) -> None:
        """Zeros in every accumulator."""
        builder.allocate(self._acc)
        with builder.loop("i", self._acc.size, LoopKind.UNROLLED) as i:
            builder.write(self._acc, i, Constant(0, self._frame.contraction.acc))
        self._zeros.clear(builder)

    def product(self, builder: IrBuilder, a: TileUse, b: TileUse) -> TileProduct:
        """One depth of the instruction after the other: packed words of both tiles, then all their products."""
        plan = self._frame.plan
        left = builder.allocate(Buffer("a_part", B32, Scope.REGISTER, plan.fragments * plan.thread_m))
        right = builder.allocate(Buffer("b_part", B32, Scope.REGISTER, plan.fragments * plan.thread_n))

        def load(stages: Stages, step: Expr, slot: Expr) -> None:
            self._load(builder, a, stages[0], step, left, slot, "a")
            self._load(builder, b, stages[1], step, right, slot, "b")

        def multiply(slot: Expr) -> None:
            self._products(builder, left, right, slot)

        depth = plan.block_k // (self._depth * plan.k_groups)
        return TileProduct(self._frame.k_group * depth, depth, plan.fragments, load, multiply)

    def _load(
        self, builder: IrBuilder, tile: TileUse, stage: Expr, step: Expr, words: Buffer, slot: Expr, name: str
    ) -> None:
        """The words of one depth of k, a chunk of neighbouring rows at a time."""
        plan, frame = self._frame.plan, self._frame
        thread, chunk, unit, units = (
            (plan.thread_m, plan.chunk_m, frame.unit_m, plan.units_m)
            if name == "a"
            else (plan.thread_n, plan.chunk_n, frame.unit_n, plan.units_n)
        )
        instruction = row_named(f"load.shared.{_WORD_BITS * chunk}")
        with builder.loop("f", thread // chunk, LoopKind.UNROLLED) as f:
            row = interleaved(f * chunk, unit, chunk, units)
            place = Address(tile.shared, stage + tile.layout.index(row, step * self._depth))
            builder.instruct(instruction, d=Registers(words, slot * thread + f * chunk, chunk), address=place)

    def _products(self, builder: IrBuilder, left: Buffer, right: Buffer, slot: Expr) -> None:
        plan = self._frame.plan
        with (
            builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i,
            builder.loop("j", plan.thread_n, LoopKind.UNROLLED) as j,
        ):
            total = Registers(self._acc, i * plan.thread_n + j, 1)
            a, b = Registers(left, slot * plan.thread_m + i, 1), Registers(right, slot * plan.thread_n + j, 1)
            builder.instruct(self._row, d=total, a=a, b=b, c=total)
        self._zeros.add(builder, left, right, slot)

    def settle(self, builder: IrBuilder) -> None:
        """Takes zero points off the sums."""
        self._zeros.settle(builder, self._acc)

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Chunks interleave in both directions."""
        plan, frame = self._frame.plan, self._frame
        row = interleaved(number // plan.thread_n, frame.unit_m, plan.chunk_m, plan.units_m)
        return row, interleaved(number % plan.thread_n, frame.unit_n, plan.chunk_n, plan.units_n)

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """Rows outside, runs of `store` columns inside."""
        plan, frame = self._frame.plan, self._frame
        with builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i:
            row = interleaved(i, frame.unit_m, plan.chunk_m, plan.units_m)
            with builder.loop("j", plan.thread_n // plan.store, LoopKind.UNROLLED) as j:
                column = interleaved(j * plan.store, frame.unit_n, plan.chunk_n, plan.units_n)
                emit(row, column, Read(self._acc, i * plan.thread_n + j * plan.store, plan.store))
