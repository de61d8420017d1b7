"""The cooperative journey of one operand tile from global to shared memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd

from convloom.errors import InternalError
from convloom.expr import Expr, Op, all_of, bounds, const, linear_form, local_sym, negate, select, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.functions import Function
from convloom.ir.ops import Address, Buffer, Call, Convert, LoopKind, Read, Scope, Splat, Value
from convloom.lower.separate import separate, separate_conditions
from convloom.plan.shared_layout import SharedLayout
from convloom.plan.tiled import Along, Transfer
from convloom.target.instruction import Instruction
from convloom.view import Access, View

_MOST_STAGED = 24
"""Numbers of a tile that a thread keeps in registers while they are on their way."""


@dataclass(frozen=True, slots=True)
class ZeroSource:
    """An operand's zero point, taken from each number on its way: its buffer, and its tile view."""

    buffer: Buffer
    view: View


@dataclass(frozen=True, slots=True)
class TileSource:
    """What is loaded: the operand's buffer, its tile view, and the coordinates of the tile's corner by flat axis."""

    name: str
    buffer: Buffer
    view: View
    row_axis: str
    origin: dict[str, Expr]  # coordinate of every axis of the view at the tile's corner, flat k included
    moving: frozenset[Expr]  # symbols of the K loops
    zero: ZeroSource | None = None


class TileLoader:
    """Emits the code of one operand: `prepare` in front of the K loops, `load` inside."""

    def __init__(
        self, source: TileSource, layout: SharedLayout, transfer: Transfer, threads: int, thread: Expr, stages: int
    ) -> None:
        self._source, self._transfer, self._dtype = source, transfer, layout.dtype
        self.layout = layout
        self.shared = Buffer(f"{source.name}_tile", layout.dtype, Scope.SHARED, stages * layout.size)
        rows, depth = layout.rows, layout.depth
        vectors = rows * depth // transfer.vector
        self._rounds = -(-vectors // threads)
        self._round = const(0) if self._rounds == 1 else local_sym(f"{source.name}_i", lo=0, hi=self._rounds - 1)
        self._number = thread + self._round * threads
        self._guard = None if vectors % threads == 0 else self._number.lt(vectors)
        index = self._number if self._guard is None else local_sym(f"{source.name}_v", lo=0, hi=vectors - 1)
        self._guarded_number = index
        self._row, self._k = _position(index, rows, depth, transfer)
        access = _access(source, self._row, self._k)
        self._offset = separate(access.offset, source.moving)
        self._conditions = separate_conditions(access.conditions, source.moving)
        self._cached = self._worth_caching()
        self._mask: Buffer | None = None
        self._staged: Buffer | None = None

    def _worth_caching(self) -> dict[Expr, Buffer]:
        parts = [self._offset.fixed, *(comparison.fixed for comparison in self._conditions.comparisons)]
        distinct = [part for part in dict.fromkeys(parts) if _costly(part)]
        return {
            part: Buffer(f"{self._source.name}_base{number}", None, Scope.REGISTER, self._rounds)
            for number, part in enumerate(distinct)
        }

    def prepare(self, builder: IrBuilder, *, staged: bool = False) -> None:
        """Computes what the K loops do not change, once per access, into index arrays.

        `staged`: also keeps registers for `fetch` and `deposit`.
        """
        if staged:
            dtype = self._dtype if self._source.zero is not None else self._source.buffer.dtype
            size = self._rounds * self._transfer.vector
            self._staged = builder.allocate(Buffer(f"{self._source.name}_staged", dtype, Scope.REGISTER, size))
        mask = self._conditions.fixed
        if mask.op is not Op.CONST:
            self._mask = builder.allocate(Buffer(f"{self._source.name}_mask", None, Scope.REGISTER, self._rounds))
        for buffer in self._cached.values():
            builder.allocate(buffer)
        if not self._cached and self._mask is None:
            return
        with self._each_access(builder):
            for part, buffer in self._cached.items():
                builder.write(buffer, self._round, simplify(part))
            if self._mask is not None:
                builder.write(self._mask, self._round, simplify(mask))

    def load(self, builder: IrBuilder, stage: Expr) -> None:
        """Global -> shared, all threads together, into the stage that begins at the given number of the buffer.

        Through registers, converted to the tile's type.
        """
        with self._each_access(builder):
            value, mask = self._read(builder)
            self._store(builder, stage, self._shifted(builder, Convert(value, self._dtype), mask))

    def copy(self, builder: IrBuilder, stage: Expr, copy: Instruction) -> None:
        """The same by an asynchronous copy instruction."""
        with self._each_access(builder):
            offset, mask = self._asked(builder)
            self._copy(builder, copy, stage, offset, mask)

    def fetch(self, builder: IrBuilder) -> None:
        """Global -> registers, as the numbers are; less their zero points where the operand has such.

        requires: `prepare` was called with `staged`.
        """
        staging, vector = self._staged, self._transfer.vector
        if staging is None:
            raise InternalError("a tile goes by registers only where they were prepared; report this")
        with self._each_access(builder):
            value, mask = self._read(builder)
            if self._source.zero is not None:
                value = self._shifted(builder, Convert(value, self._dtype), mask)
            builder.write(staging, self._round * vector, value)

    def deposit(self, builder: IrBuilder, stage: Expr) -> None:
        """Registers -> shared: what `fetch` brought last."""
        staging, vector = self._staged, self._transfer.vector
        if staging is None:
            raise InternalError("a tile goes by registers only where they were prepared; report this")
        with self._each_access(builder):
            self._store(builder, stage, Convert(Read(staging, self._round * vector, vector), self._dtype))

    def _asked(self, builder: IrBuilder) -> tuple[Expr, Expr | None]:
        """Offset and mask of an access."""
        offset = builder.let(f"{self._source.name}_at", self._kept(builder, self._offset.fixed) + self._offset.moving)
        return offset, self._mask_value(builder)

    def _read(self, builder: IrBuilder) -> tuple[Value, Expr | None]:
        offset, mask = self._asked(builder)
        return Read(self._source.buffer, offset, self._transfer.vector, mask), mask

    def _shifted(self, builder: IrBuilder, value: Value, mask: Expr | None) -> Value:
        """The numbers less their zero point; padding is 0 and stays so, as the zero point is masked with it."""
        zero = self._source.zero
        if zero is None:
            return value
        if self._multiplied_raw:
            return self._filled(builder, value, mask)

        def taken(lane: int) -> Value:
            row, k = self._row, self._k
            if self._transfer.along is Along.ROW:
                row = row + lane
            else:
                k = k + lane
            return Convert(Read(zero.buffer, simplify(_offset(self._source, zero.view, row, k)), 1, mask), self._dtype)

        vector = self._transfer.vector
        along = self._source.row_axis if self._transfer.along is Along.ROW else "K"
        if vector == 1 or along not in zero.view.extents:
            shift = taken(0) if vector == 1 else Splat(taken(0), vector)
            return Call(Function.SUB, (value, shift))
        lanes = builder.allocate(
            Buffer(builder.unique(f"{self._source.name}_zeros"), self._dtype, Scope.REGISTER, vector)
        )
        for lane in range(vector):
            builder.write(lanes, lane, taken(lane))
        return Call(Function.SUB, (value, Read(lanes, const(0), vector)))

    @property
    def _multiplied_raw(self) -> bool:
        """Whether the tile holds the operand's own numbers, and its zero point is taken off the sums."""
        return self._source.buffer.dtype is self._dtype

    def _filled(self, builder: IrBuilder, value: Value, mask: Expr | None) -> Value:
        """The numbers, and the zero point where there are none, if it is surely one of the tile's type."""
        zero, vector = self._source.zero, self._transfer.vector
        if zero is None or mask is None or zero.buffer.dtype is not self._dtype:
            return value
        name = builder.unique(f"{self._source.name}_filled")
        numbers = builder.allocate(Buffer(name, self._dtype, Scope.REGISTER, vector))
        builder.write(numbers, 0, value)
        single = Read(zero.buffer, simplify(_offset(self._source, zero.view, self._row, self._k)))
        with builder.condition(simplify(negate(mask))):
            builder.write(numbers, 0, single if vector == 1 else Splat(single, vector))
        return Read(numbers, const(0), vector)

    @property
    def stages_numbers(self) -> bool:
        """Whether a thread has the registers for its numbers of one tile."""
        return self._rounds * self._transfer.vector <= _MOST_STAGED

    @property
    def copied_bytes(self) -> int:
        """Bytes that lie together in the tile, if they can go there as they are; 0 where the tile has another type."""
        zero = self._source.zero
        same = self._multiplied_raw and (zero is None or zero.buffer.dtype is not self._dtype)
        return self._piece * self._dtype.nbytes if same else 0

    @property
    def _piece(self) -> int:
        """Numbers of one access that lie consecutively in the tile."""
        return gcd(self._transfer.vector, self.layout.run(self._transfer.along is Along.K))

    def _copy(self, builder: IrBuilder, copy: Instruction, stage: Expr, offset: Expr, mask: Expr | None) -> None:
        """One copy for each piece of the access that lies together in the tile."""
        nbytes = const(self.copied_bytes)
        taken = nbytes if mask is None else select(mask, nbytes, 0)
        with builder.loop("e", self._transfer.vector // self._piece, LoopKind.UNROLLED) as e:
            builder.instruct(
                copy,
                destination=Address(self.shared, stage + self._place(e)),
                source=Address(self._source.buffer, offset + e * self._piece),
                source_bytes=taken,
            )

    def _place(self, piece: Expr) -> Expr:
        """Where a piece of the access lies in the tile."""
        step = piece * self._piece
        if self._transfer.along is Along.K:
            return self.layout.index(self._row, self._k + step)
        return self.layout.index(self._row + step, self._k)

    @contextmanager
    def _each_access(self, builder: IrBuilder) -> Generator[None]:
        """The loop over this thread's accesses; threads beyond the last one take no part."""
        with builder.repeat(self._round, self._rounds, LoopKind.UNROLLED), builder.condition(self._guard):
            if self._guard is not None:
                builder.bind(self._guarded_number, self._number)
            yield

    def _kept(self, builder: IrBuilder, part: Expr) -> Expr:
        """The part itself, or the name of its value read back from the index array."""
        buffer = self._cached.get(part)
        if buffer is None:
            return part
        limits = bounds(part)
        return builder.let_read(f"{buffer.name}_v", Read(buffer, self._round), limits.lo, limits.hi)

    def _mask_value(self, builder: IrBuilder) -> Expr | None:
        split = self._conditions
        terms: list[Expr] = []
        if self._mask is not None:
            terms.append(builder.let_read(f"{self._source.name}_ok", Read(self._mask, self._round), 0, 1).ne(0))
        elif split.fixed.value == 0:
            terms.append(const(0))
        terms += [comparison.rebuilt(self._kept(builder, comparison.fixed)) for comparison in split.comparisons]
        terms += split.others
        return simplify(all_of(*terms)) if terms else None

    def _store(self, builder: IrBuilder, stage: Expr, value: Value) -> None:
        vector = self._transfer.vector
        if self._piece == vector:
            builder.write(self.shared, stage + self.layout.index(self._row, self._k), value)
            return
        staging = builder.allocate(Buffer(f"{self._source.name}_vector", self._dtype, Scope.REGISTER, vector))
        builder.write(staging, 0, value)
        with builder.loop("e", vector // self._piece, LoopKind.UNROLLED) as e:
            builder.write(self.shared, stage + self._place(e), Read(staging, e * self._piece, self._piece))


def _position(index: Expr, rows: int, depth: int, transfer: Transfer) -> tuple[Expr, Expr]:
    """(row, k) in the tile of the first number of the index-th access."""
    per_line = (rows if transfer.along is Along.ROW else depth) // transfer.vector
    line, within = index // per_line, (index % per_line) * transfer.vector
    return (within, line) if transfer.along is Along.ROW else (line, within)


def _access(source: TileSource, row: Expr, k: Expr) -> Access[Expr]:
    return source.view.access(_coordinates(source, source.view, row, k))


def _offset(source: TileSource, view: View, row: Expr, k: Expr) -> Expr:
    """Where another view has its number for a place in the tile."""
    return view.access(_coordinates(source, view, row, k)).offset


def _coordinates(source: TileSource, view: View, row: Expr, k: Expr) -> dict[str, Expr]:
    shift = {source.row_axis: row, "K": k}
    return {axis.name: source.origin[axis.name] + shift.get(axis.name, const(0)) for axis in view.axes}


def _costly(part: Expr) -> bool:
    """Whether a fixed part is more than a multiple of one name: then it is kept rather than computed again."""
    form = linear_form(part)
    return len(form.terms) > 1 or any(atom.op is not Op.SYM for atom, _ in form.terms)
