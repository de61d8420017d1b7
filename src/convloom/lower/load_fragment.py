"""Brings the fragments of one operand from its tile in shared memory to the registers of a unit of threads."""

from __future__ import annotations

from math import gcd

from convloom.dtypes import B32, F64
from convloom.errors import InternalError
from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, LoopKind, Read, Registers, Scope
from convloom.lower.frame import Frame
from convloom.lower.multiply import TileUse
from convloom.target.catalogue import row_named
from convloom.target.fragment_access import MATRIX_LINES, Way, run_length, way_of
from convloom.target.instruction import Instruction, Register

_MOST_MATRICES = 4  # of one matrix load


class FragmentLoader:
    """The fragments of operand `name` (`a` or `b`) that one unit needs for one instruction depth of k.

    `slots` sets of them are kept, so that one can be loaded while another is multiplied.
    """

    def __init__(self, frame: Frame, row: Instruction, name: str, slots: int) -> None:
        plan = frame.plan
        self._frame, self._row, self._name = frame, row, name
        m, n, self._depth = row.shape
        self._unit, thread, corner = (
            (m, plan.thread_m, frame.unit_m) if name == "a" else (n, plan.thread_n, frame.unit_n)
        )
        self._first = corner * thread
        self.count = thread // self._unit
        self.registers = row.operand(name).registers
        words = F64 if row.operand(name).register is Register.F64 else B32
        self.buffer = Buffer(f"{name}_part", words, Scope.REGISTER, slots * self.count * self.registers)

    def load(self, builder: IrBuilder, tile: TileUse, stage: Expr, step: Expr, slot: Expr) -> None:
        """Loads all fragments of one step of k into a slot."""
        start = slot * (self.count * self.registers)
        way = way_of(self._row, self._name, tile.layout.k_fastest)
        if way is None:
            raise InternalError(f"a legal plan can load its fragments; {self._row.name} cannot; report this")
        if way is Way.WORDS:
            self._words(builder, tile, stage, step * self._depth, start)
        else:
            self._matrices(builder, tile, stage, step * self._depth, start, turned=way is Way.TURNED)

    def _matrices(self, builder: IrBuilder, tile: TileUse, stage: Expr, k: Expr, start: Expr, *, turned: bool) -> None:
        """As many fragments as one matrix load brings, one after the other.

        Lane 8j + r gives the address of line r of matrix j: a row's 16 bytes of k, or (transposed) a k's 8 rows.
        """
        together = gcd(self.count, _MOST_MATRICES // self.registers)
        matrices = together * self.registers
        instruction = row_named(f"ldmatrix.x{matrices}{'.trans' if turned else ''}")
        matrix = simplify(self._frame.lane // MATRIX_LINES % matrices)
        line = simplify(self._frame.lane % MATRIX_LINES)
        row, depth = self._register_corner(simplify(matrix % self.registers))
        row = row + simplify(matrix // self.registers) * self._unit
        row, depth = (row, depth + line) if turned else (row + line, depth)
        with builder.loop("f", self.count // together, LoopKind.UNROLLED) as f:
            place = tile.layout.index(self._first + f * (together * self._unit) + row, k + depth)
            target = Registers(self.buffer, start + f * matrices, matrices)
            builder.instruct(instruction, d=target, address=Address(tile.shared, stage + place))

    def _register_corner(self, register: Expr) -> tuple[Expr, Expr]:
        """(row, k) of the first number of a register of lane 0, within the fragment."""
        return self._place(const(0), register * run_length(self._row, self._name))

    def _place(self, lane: Expr, element: Expr) -> tuple[Expr, Expr]:
        fragment = self._row.fragment(self._name)
        place = simplify(fragment.layout.access({"lane": lane, "element": element}).offset)
        outer, inner = simplify(place // fragment.shape[1]), simplify(place % fragment.shape[1])
        return (outer, inner) if self._name == "a" else (inner, outer)

    def _words(self, builder: IrBuilder, tile: TileUse, stage: Expr, k: Expr, start: Expr) -> None:
        """Each lane reads its registers one by one; a register's numbers lie together in the tile."""
        run = run_length(self._row, self._name)
        nbytes = run * tile.layout.dtype.nbytes
        with builder.loop("f", self.count, LoopKind.UNROLLED) as f:
            for register in range(self.registers):
                row, depth = self._place(self._frame.lane, const(register * run))
                place = stage + tile.layout.index(self._first + f * self._unit + row, k + depth)
                target = start + f * self.registers + register
                if self.buffer.dtype is tile.layout.dtype:
                    builder.write(self.buffer, target, Read(tile.shared, simplify(place)))
                else:
                    word = row_named(f"load.shared.{8 * nbytes}")
                    builder.instruct(word, d=Registers(self.buffer, target, 1), address=Address(tile.shared, place))
