"""Zero points beside instructions that multiply raw 8-bit numbers.

    sum (x - p)(w - q) = sum x w - p sum w - q sum x + p q n       over n places of K, p and q the same at each

The two single sums and n are products with ones, made by the same instruction from the same fragments, so that their
accumulators lie as those of C do. A place where x is p (padding) contributes nothing to the left side, whatever w is;
so padding is filled with p, and the end of K may hold anything in the other factor.
"""

from __future__ import annotations

from convloom.dtypes import B32, S32
from convloom.expr import Expr, const
from convloom.ir.build import IrBuilder
from convloom.ir.functions import Function
from convloom.ir.ops import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Constant,
    Convert,
    LoopKind,
    MultiplyAdd,
    Read,
    Registers,
    Scope,
    Value,
)
from convloom.lower.frame import Frame
from convloom.problem.contraction import Operand
from convloom.target.instruction import Instruction

_ONES = 0x01010101  # four 8-bit ones in a register


class ZeroSums:
    """The single sums of `rows` fragments of A and `columns` of B in one thread's registers."""

    def __init__(self, frame: Frame, row: Instruction, rows: int, columns: int) -> None:
        self._frame, self._row = frame, row
        self._a, self._b = frame.contraction.zero_a, frame.contraction.zero_b
        self._d = row.operand("d").registers
        self._rows, self._columns = rows, columns
        words = max(row.operand(name).registers for name in "ab")
        self._ones = Buffer("ones", B32, Scope.REGISTER, words)
        self._of_b = Buffer("b_sums", S32, Scope.REGISTER, columns * self._d)
        self._of_a = Buffer("a_sums", S32, Scope.REGISTER, rows * self._d)
        self._places = Buffer("k_places", S32, Scope.REGISTER, self._d)

    @property
    def _used(self) -> list[Buffer]:
        found = [buffer for buffer, zero in ((self._of_b, self._a), (self._of_a, self._b)) if zero is not None]
        return [*found, self._places] if len(found) == 2 else found

    def clear(self, builder: IrBuilder) -> None:
        """Zeros in the sums that are needed, and the ones that they are made with."""
        for buffer in self._used:
            builder.allocate(buffer)
            with builder.loop("i", buffer.size, LoopKind.UNROLLED) as i:
                builder.write(buffer, i, Constant(0, S32))
        if self._used:
            builder.allocate(self._ones)
            with builder.loop("i", self._ones.size, LoopKind.UNROLLED) as i:
                builder.write(self._ones, i, Constant(_ONES, B32))

    def add(self, builder: IrBuilder, left: Buffer, right: Buffer, slot: Expr) -> None:
        """Adds one depth of the instruction: fragments of A and B in sets of the same `slot`."""
        if self._a is not None:
            with builder.loop("j", self._columns, LoopKind.UNROLLED) as j:
                self._multiply(builder, self._of_b, j, None, self._fragment(right, "b", slot * self._columns + j))
        if self._b is not None:
            with builder.loop("i", self._rows, LoopKind.UNROLLED) as i:
                self._multiply(builder, self._of_a, i, self._fragment(left, "a", slot * self._rows + i), None)
        if self._a is not None and self._b is not None:
            self._multiply(builder, self._places, const(0), None, None)

    def _fragment(self, buffer: Buffer, name: str, number: Expr) -> Registers:
        count = self._row.operand(name).registers
        return Registers(buffer, number * count, count)

    def _multiply(
        self, builder: IrBuilder, sums: Buffer, number: Expr, a: Registers | None, b: Registers | None
    ) -> None:
        """One instruction; ones where a factor is not given."""
        total = Registers(sums, number * self._d, self._d)
        left, right = a or self._fragment(self._ones, "a", const(0)), b or self._fragment(self._ones, "b", const(0))
        builder.instruct(self._row, d=total, a=left, b=right, c=total)

    def settle(self, builder: IrBuilder, accumulators: Buffer) -> None:
        """Takes the zero points off the accumulators: fragment (i, j) behind fragment (i, j - 1)."""
        if not self._used:
            return
        builder.comment("zero points: sums of single factors")
        minus_a, minus_b = (self._negative(builder, zero) for zero in (self._a, self._b))
        with (
            builder.loop("i", self._rows, LoopKind.UNROLLED) as i,
            builder.loop("j", self._columns, LoopKind.UNROLLED) as j,
            builder.loop("e", self._d, LoopKind.UNROLLED) as e,
        ):
            place = (i * self._columns + j) * self._d + e
            total: Value = Read(accumulators, place)
            if minus_a is not None:
                total = MultiplyAdd(minus_a, Read(self._of_b, j * self._d + e), total)
            if minus_b is not None:
                total = MultiplyAdd(minus_b, Read(self._of_a, i * self._d + e), total)
            if minus_a is not None and minus_b is not None:
                total = MultiplyAdd(Binary(BinaryOp.MUL, minus_a, minus_b), Read(self._places, e), total)
            builder.write(accumulators, place, total)

    def _negative(self, builder: IrBuilder, zero: Operand | None) -> Value | None:
        """Minus a zero point that is the same everywhere, in a register."""
        if zero is None:
            return None
        number = builder.allocate(Buffer(builder.unique("minus_zero"), S32, Scope.REGISTER, 1))
        origin = zero.view.access({axis.name: const(0) for axis in zero.view.axes}).offset
        given = Convert(Read(self._frame.buffers[zero.name], origin), S32)
        builder.write(number, 0, Call(Function.SUB, (Constant(0, S32), given)))
        return Read(number, const(0))
