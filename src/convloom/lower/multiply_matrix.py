"""Multiplication by matrix instructions of a subgroup, whatever their shape, types and lane maps."""

from __future__ import annotations

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Constant, LoopKind, Read, Registers, Scope
from convloom.lower.frame import Frame
from convloom.lower.load_fragment import FragmentLoader
from convloom.lower.multiply import EmitPart, Stages, TileProduct, TileUse
from convloom.lower.zero_sums import ZeroSums
from convloom.plan.shared_layout import SharedLayout, tile_layouts
from convloom.target.instruction import Instruction


class MatrixMultiplier:
    """Each subgroup owns thread_m x thread_n numbers of C, as fragments of the instruction's shape.

    Operands lie in shared memory in the type that the instruction multiplies.
    """

    def __init__(self, frame: Frame, row: Instruction) -> None:
        self._frame, self._row = frame, row
        plan = frame.plan
        self._m, self._n, self._k = row.shape
        self._d = row.operand("d").registers
        self._left = FragmentLoader(frame, row, "a", plan.fragments)
        self._right = FragmentLoader(frame, row, "b", plan.fragments)
        count = self._left.count * self._right.count * self._d
        self._acc = Buffer("acc", frame.contraction.acc, Scope.REGISTER, count)
        self._zeros = ZeroSums(frame, row, self._left.count, self._right.count)

    @property
    def accumulators(self) -> Buffer:
        """Fragments, those of one row of fragments behind each other."""
        return self._acc

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """The direction in which numbers arrive is the fast one."""
        return tile_layouts(self._frame.plan, self._frame.contraction.acc)

    def clear(self, builder: IrBuilder) -> None:
        """Zeros in every accumulator."""
        builder.allocate(self._acc)
        with builder.loop("i", self._acc.size, LoopKind.UNROLLED) as i:
            builder.write(self._acc, i, Constant(0, self._frame.contraction.acc))
        self._zeros.clear(builder)

    def product(self, builder: IrBuilder, a: TileUse, b: TileUse) -> TileProduct:
        """One instruction depth of k after the other: fragments of both tiles, then all their products."""
        plan = self._frame.plan
        builder.allocate(self._left.buffer)
        builder.allocate(self._right.buffer)

        def load(stages: Stages, step: Expr, slot: Expr) -> None:
            self._left.load(builder, a, stages[0], step, slot)
            self._right.load(builder, b, stages[1], step, slot)

        depth = plan.block_k // (self._k * plan.k_groups)
        first = self._frame.k_group * depth
        return TileProduct(first, depth, plan.fragments, load, lambda slot: self._products(builder, slot))

    def _products(self, builder: IrBuilder, slot: Expr) -> None:
        left, right = self._left, self._right
        with (
            builder.loop("i", left.count, LoopKind.UNROLLED) as i,
            builder.loop("j", right.count, LoopKind.UNROLLED) as j,
        ):
            sums = Registers(self._acc, (i * right.count + j) * self._d, self._d)
            a = Registers(left.buffer, (slot * left.count + i) * left.registers, left.registers)
            b = Registers(right.buffer, (slot * right.count + j) * right.registers, right.registers)
            builder.instruct(self._row, d=sums, a=a, b=b, c=sums)
        self._zeros.add(builder, left.buffer, right.buffer, slot)

    def settle(self, builder: IrBuilder) -> None:
        """Takes zero points off the sums."""
        self._zeros.settle(builder, self._acc)

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Fragment by fragment."""
        fragment, columns = number // self._d, self._right.count
        row, column = self._within(number % self._d)
        return (
            self._frame.unit_m * self._frame.plan.thread_m + fragment // columns * self._m + row,
            self._frame.unit_n * self._frame.plan.thread_n + fragment % columns * self._n + column,
        )

    def _within(self, element: Expr) -> tuple[Expr, Expr]:
        """Row and column in a fragment of C of a lane's element."""
        fragment = self._row.fragment("d")
        place = fragment.layout.access({"lane": self._frame.lane, "element": element}).offset
        columns = fragment.shape[1]
        return simplify(place // columns), simplify(place % columns)

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """Fragments, and in each the runs of `store` neighbouring columns that a lane holds."""
        plan, frame = self._frame.plan, self._frame
        with (
            builder.loop("i", self._left.count, LoopKind.UNROLLED) as i,
            builder.loop("j", self._right.count, LoopKind.UNROLLED) as j,
        ):
            for element in range(0, self._row.fragment("d").elements, plan.store):
                row, column = self._within(const(element))
                row = frame.unit_m * plan.thread_m + i * self._m + row
                column = frame.unit_n * plan.thread_n + j * self._n + column
                first = (i * self._right.count + j) * self._d + element
                emit(row, column, Read(self._acc, first, plan.store))
