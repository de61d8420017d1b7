"""Results on their way through shared memory: matrix stores into a chunk, then a tensor store, or stores of pieces."""

from __future__ import annotations

from collections.abc import Callable

from convloom.dtypes import B32
from convloom.expr import Expr, const, simplify, substitute
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, LoopKind, MapParameter, Numbers, Pack, Read, Registers, Scope, Value
from convloom.lower.epilogue import store_run
from convloom.lower.hopper_frame import HopperFrame
from convloom.lower.tensor_copies import TILE_ALIGNMENT, split_flat
from convloom.plan.bulk_copy import BulkCopy, flat_symbol
from convloom.plan.result_chunks import PIECE, SLOTS, ResultChunks
from convloom.problem.access_pattern import axis_symbol
from convloom.target.catalogue import row_named
from convloom.target.nvidia_sm80 import WARP
from convloom.target.nvidia_wgmma import WARPGROUP

_MATRIX = 8  # rows and columns of a matrix
_COLUMNS = 16  # of four matrices, two below each other
_WORDS = 4
_SWIZZLED = 128  # bytes after which a swizzle's pattern goes on
_FIRST_BARRIER = 1  # named barriers of consumers; 0 is the block's

Convert = Callable[[Expr, Expr, Read], Value]
"""Row and column in the tile, and the sums there: the numbers as C holds them."""


class SharedStore:
    """The chunks of all consumers, and the map of C."""

    def __init__(self, frame: HopperFrame, result: ResultChunks) -> None:
        self._frame, self._result = frame, result
        c = frame.contraction.c
        size = frame.plan.consumers * SLOTS * result.size
        self.shared = Buffer(f"{c.name}_tile", c.dtype, Scope.SHARED, size, alignment=TILE_ALIGNMENT)
        self.map = None if result.copy is None else self._map(result.copy)

    def _map(self, copy: BulkCopy) -> MapParameter:
        frame, dimensions = self._frame, copy.dimensions
        c = frame.contraction.c
        return MapParameter(
            f"{c.name}_map",
            frame.buffers[c.name],
            tuple(item.size for item in dimensions),
            tuple(simplify(item.stride * c.dtype.nbytes) for item in dimensions[1:]),
            tuple(1 for _ in dimensions),
            self._result.swizzle,
            box=(self._result.line, self._result.size // self._result.line, *(1 for _ in dimensions[2:])),
            offset=copy.offset,
        )

    def prepare(self, builder: IrBuilder) -> ConsumerStore:
        """What a consumer's thread keeps for all its tiles."""
        return ConsumerStore(builder, self._frame, self._result, self.shared, self.map)


class ConsumerStore:
    """A consumer's own chunks: lane 8q + r of a warp addresses row r of matrix q."""

    def __init__(
        self, builder: IrBuilder, frame: HopperFrame, result: ResultChunks, shared: Buffer, map: MapParameter | None
    ) -> None:
        self._frame, self._result, self._shared, self._map = frame, result, shared, map
        self._consumer = builder.let("consumer", frame.member // WARPGROUP)
        lane, warp = frame.member % WARP, frame.member % WARPGROUP // WARP
        down, right, row = lane // _MATRIX % 2, lane // _COLUMNS, lane % _MATRIX
        self._places: list[Expr] = []
        for first in range(0, result.width, _COLUMNS):
            if result.turned:
                line, piece = first + right * _MATRIX + row, warp * 2 + down
            else:
                line, piece = warp * _COLUMNS + down * _MATRIX + row, first // _MATRIX + right
            at = line * result.line + _exchanged(result, simplify(piece), simplify(line)) * _MATRIX
            self._places.append(builder.let("chunk_at", at))
        self._row = row_named("stmatrix.x4.trans" if result.turned else "stmatrix.x4")
        self._words = builder.allocate(Buffer("words", B32, Scope.REGISTER, _WORDS))

    def store(self, builder: IrBuilder, corner: dict[str, Expr], accumulators: Buffer, convert: Convert) -> None:
        """All chunks of a tile; tensor stores of the last ones go on while the next tile is summed."""
        plan, result = self._frame.plan, self._result
        columns = plan.block_n // result.width
        chunks = plan.multiplies * columns
        starts = split_flat(builder, self._frame.g, corner["G"])
        for number in range(chunks):
            fragment, first = number // columns, number % columns * result.width
            slot = (self._consumer * SLOTS + number % SLOTS) * result.size
            row = (self._consumer * plan.multiplies + fragment) * result.rows
            if self._map is not None:
                self._wait(builder, SLOTS - 1 if number or chunks % SLOTS == 0 else 0)
            elif not number and chunks % SLOTS:
                self._meet(builder)  # pieces of the last tile's last chunk are read before its slot is filled
            self._fill(builder, slot, (fragment, first), accumulators, convert)
            place = {**starts, "M": corner["M"] + row, "N": corner["N"] + first}
            if self._map is not None:
                builder.instruct(row_named("fence.proxy.async.shared"))
                self._meet(builder)
                with builder.condition(self._frame.first_of_group):
                    self._send(builder, self._map, slot, place)
            else:
                self._meet(builder)
                self._store_pieces(builder, slot, {**place, "G": corner["G"]})

    def finish(self, builder: IrBuilder) -> None:
        """A block ends when its copies have been made."""
        if self._map is not None:
            with builder.condition(self._frame.first_of_group):
                builder.instruct(row_named("cp.async.bulk.wait_group"), pending=const(0))

    def _wait(self, builder: IrBuilder, pending: int) -> None:
        """Until all stores but so many have read their chunk."""
        with builder.condition(self._frame.first_of_group):
            builder.instruct(row_named("cp.async.bulk.wait_group.read"), pending=const(pending))
        self._meet(builder)

    def _store_pieces(self, builder: IrBuilder, slot: Expr, corner: dict[str, Expr]) -> None:
        """Neighbouring threads store neighbouring pieces of a row."""
        frame, result = self._frame, self._result
        across = result.width // PIECE
        with builder.loop("piece", result.rows * across // WARPGROUP, LoopKind.UNROLLED) as number:
            place = number * WARPGROUP + frame.member % WARPGROUP
            row, piece = place // across, place % across
            index = slot + row * result.width + _exchanged(result, piece, row) * PIECE
            coordinates = {"M": corner["M"] + row, "N": corner["N"] + piece * PIECE, "G": corner["G"]}
            store_run(builder, frame, coordinates, Read(self._shared, simplify(index), PIECE))

    def _fill(
        self, builder: IrBuilder, slot: Expr, chunk: tuple[int, int], accumulators: Buffer, convert: Convert
    ) -> None:
        fragment, first = chunk
        plan = self._frame.plan
        count = plan.instruction.operand("d").registers
        lane = self._frame.member % WARP
        row = (self._consumer * plan.multiplies + fragment) * self._result.rows
        row = row + self._frame.member % WARPGROUP // WARP * _COLUMNS + lane // 4
        for place, column in zip(self._places, range(first, first + self._result.width, _COLUMNS), strict=True):
            for word in range(_WORDS):
                held = fragment * count + column // _MATRIX * 4 + 2 * word
                down, right = word % 2 * _MATRIX, word // 2 * _MATRIX
                value = convert(row + down, column + right + lane % 4 * 2, Read(accumulators, const(held), 2))
                builder.write(self._words, word, Pack(value))
            target = Address(self._shared, slot + place)
            builder.instruct(self._row, address=target, a=Registers(self._words, const(0), _WORDS))

    def _send(self, builder: IrBuilder, map: MapParameter, slot: Expr, values: dict[str, Expr]) -> None:
        frame, copy = self._frame, self._result.copy
        assert copy is not None
        table = {axis_symbol(axis): values[axis.name] for axis in frame.contraction.c.view.axes if axis.name in values}
        table |= {flat_symbol(name): values[name] for name in ("M", "N")}
        for direction in (frame.m, frame.n):
            if len(direction.parts) == 1:
                (axis,) = [axis for axis in frame.contraction.c.view.axes if axis.name == direction.parts[0]]
                table[axis_symbol(axis)] = values[direction.name]
        starts = [simplify(substitute(item.start, table)) for item in copy.dimensions]
        builder.instruct(
            row_named(f"cp.async.bulk.tensor.{copy.rank}d.tile.store"),
            map=map,
            coordinates=Numbers(tuple(starts)),
            source=Address(self._shared, slot),
        )
        builder.instruct(row_named("cp.async.bulk.commit_group"))

    def _meet(self, builder: IrBuilder) -> None:
        """The threads of one consumer; a barrier's number is part of the instruction."""
        for number in range(self._frame.plan.consumers):
            with builder.condition(simplify(self._consumer.eq(number))):
                builder.instruct(
                    row_named("bar.sync"), barrier=const(_FIRST_BARRIER + number), threads=const(WARPGROUP)
                )


def _exchanged(result: ResultChunks, piece: Expr, row: Expr) -> Expr:
    """Where a piece of 16 bytes of a row lies in a swizzled chunk: bits of the address above it change its number.

    Bit by bit: every part has known bounds.
    """
    by = simplify(row * result.swizzle.value // _SWIZZLED)
    bits = [(piece // (1 << n) + by // (1 << n)) % 2 * (1 << n) for n in range(result.swizzle.bits)]
    return sum(bits, start=const(0))
