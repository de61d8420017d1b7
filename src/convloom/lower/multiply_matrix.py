"""Multiplication by matrix instructions of a subgroup, operands loaded from shared memory by matrix loads."""

from __future__ import annotations

from convloom.dtypes import B32
from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, Constant, LoopKind, Read, Registers, Scope
from convloom.lower.frame import Frame
from convloom.lower.multiply import EmitPart, TileUse
from convloom.lower.shared_layout import SharedLayout
from convloom.plan.tiled import Along, Transfer
from convloom.target.catalogue import row_named
from convloom.target.instruction import Instruction

_BLOCK = 8  # rows of one 8 x 16-byte matrix that a matrix load moves
_LINE_BYTES = 16


class MatrixMultiplier:
    """Each subgroup owns thread_m x thread_n numbers of C, as fragments of the instruction's shape.

    Operands keep their own type in shared memory. A matrix load brings four 8 x 16-byte matrices: of A, 16 rows by 32
    bytes of k (one fragment); of B, 16 rows by 32 bytes of k (two fragments of 8 columns). Tiles in which the row is
    the fast direction are transposed by the load, which 16-bit types allow.
    """

    def __init__(self, frame: Frame, row: Instruction) -> None:
        self._frame, self._row = frame, row
        plan = frame.plan
        self._m, self._n, self._k = row.shape
        self._d = row.operand("d").registers
        self._rows, self._columns = plan.thread_m // self._m, plan.thread_n // self._n
        self._acc = Buffer("acc", frame.contraction.acc, Scope.REGISTER, self._rows * self._columns * self._d)

    @property
    def accumulators(self) -> Buffer:
        """Fragments, those of one row of fragments behind each other."""
        return self._acc

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """The direction in which numbers arrive is the fast one, if the matrix load can turn it."""
        plan, contraction = self._frame.plan, self._frame.contraction
        a, b = contraction.a.dtype, contraction.b.dtype
        return (
            SharedLayout(a, plan.block_m, plan.block_k, _k_fastest(plan.a), plan.a.pad),
            SharedLayout(b, plan.block_n, plan.block_k, _k_fastest(plan.b), plan.b.pad),
        )

    def clear(self, builder: IrBuilder) -> None:
        """Zeros in every accumulator."""
        builder.allocate(self._acc)
        with builder.loop("i", self._acc.size, LoopKind.UNROLLED) as i:
            builder.write(self._acc, i, Constant(0, self._frame.contraction.acc))

    def multiply(self, builder: IrBuilder, a: TileUse, b: TileUse, a_stage: Expr, b_stage: Expr) -> None:
        """One instruction depth of k after the other: fragments of both tiles, then all their products."""
        plan = self._frame.plan
        a_registers, b_registers = self._row.operand("a").registers, self._row.operand("b").registers
        left = builder.allocate(Buffer("a_part", B32, Scope.REGISTER, self._rows * a_registers))
        right = builder.allocate(Buffer("b_part", B32, Scope.REGISTER, self._columns * b_registers))
        depth = plan.block_k // (self._k * plan.k_groups)
        with builder.loop("kk", depth, LoopKind.UNROLLED) as step:
            kk = simplify(self._frame.k_group * depth + step)
            with builder.loop("i", self._rows, LoopKind.UNROLLED) as i:
                first = self._frame.unit_m * plan.thread_m + i * self._m
                self._load(
                    builder, a, a_stage, (first, kk * self._k), Registers(left, i * a_registers, 4), rows_first=True
                )
            with builder.loop("j", self._columns // 2, LoopKind.UNROLLED) as j:
                first = self._frame.unit_n * plan.thread_n + j * (2 * self._n)
                target = Registers(right, j * (2 * b_registers), 4)
                self._load(builder, b, b_stage, (first, kk * self._k), target, rows_first=False)
            self._products(builder, left, right, a_registers, b_registers)

    def _products(self, builder: IrBuilder, left: Buffer, right: Buffer, a_count: int, b_count: int) -> None:
        with (
            builder.loop("i", self._rows, LoopKind.UNROLLED) as i,
            builder.loop("j", self._columns, LoopKind.UNROLLED) as j,
        ):
            sums = Registers(self._acc, (i * self._columns + j) * self._d, self._d)
            a, b = Registers(left, i * a_count, a_count), Registers(right, j * b_count, b_count)
            builder.instruct(self._row, d=sums, a=a, b=b, c=sums)

    def _load(
        self,
        builder: IrBuilder,
        tile: TileUse,
        stage: Expr,
        corner: tuple[Expr, Expr],
        target: Registers,
        *,
        rows_first: bool,
    ) -> None:
        """Four matrices; `rows_first`: the second one lies 8 rows on (A), else half a depth of k on (B).

        Lane 8j + r gives the address of line r of matrix j: a row's 16 bytes of k, or (transposed) a k's 8 rows.
        """
        lane = self._frame.lane
        matrix, line = lane // _BLOCK, lane % _BLOCK
        half = _LINE_BYTES // tile.layout.dtype.nbytes
        inner, outer = matrix % 2, matrix // 2
        row_block, k_block = (inner, outer) if rows_first else (outer, inner)
        row, k = corner[0] + row_block * _BLOCK, corner[1] + k_block * half
        if tile.layout.k_fastest:
            row, instruction = row + line, row_named("ldmatrix.x4")
        else:
            k, instruction = k + line, row_named("ldmatrix.x4.trans")
        place = Address(tile.shared, stage + tile.layout.index(row, k))
        builder.instruct(instruction, d=target, address=place)

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Fragment by fragment."""
        fragment = number // self._d
        row, column = self._within(number % self._d)
        return (
            self._frame.unit_m * self._frame.plan.thread_m + fragment // self._columns * self._m + row,
            self._frame.unit_n * self._frame.plan.thread_n + fragment % self._columns * self._n + column,
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
            builder.loop("i", self._rows, LoopKind.UNROLLED) as i,
            builder.loop("j", self._columns, LoopKind.UNROLLED) as j,
        ):
            for element in range(0, self._row.fragment("d").elements, plan.store):
                row, column = self._within(const(element))
                row = frame.unit_m * plan.thread_m + i * self._m + row
                column = frame.unit_n * plan.thread_n + j * self._n + column
                first = (i * self._columns + j) * self._d + element
                emit(row, column, Read(self._acc, first, plan.store))


def _k_fastest(transfer: Transfer) -> bool:
    return transfer.along is Along.K
