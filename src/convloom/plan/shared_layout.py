"""How operand tiles of rows x k lie in shared memory, and what they take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from convloom.dtypes import F32, DType
from convloom.expr import Expr, const
from convloom.plan.tiled import SCALAR, Along, TiledPlan, Transfer
from convloom.target.catalogue import row_named
from convloom.target.fragment_access import MATRIX_LINE_BYTES, Way, is_conflict_free, packing, way_of
from convloom.target.instruction import Instruction
from convloom.target.number_format import TF32

_MOST_PADS = 16
_BANK_BYTES = 128  # that all banks serve at once


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """`rows` x `depth` numbers in lines of the fastest direction, `pad` unused numbers behind each line.

    Lines along rows hold `pack` neighbouring k of each row together. With `swizzle` > 1 the pieces of a line change
    places: piece p of line l lies at p ^ (l // step), within groups of `swizzle` pieces. So lines that threads write
    at one time, `step` apart, or that a matrix load reads, begin in different banks.
    """

    dtype: DType
    rows: int
    depth: int
    k_fastest: bool
    pad: int
    pack: int = 1
    swizzle: int = 1
    step: int = 1

    @property
    def piece(self) -> int:
        """Places along a line that stay together: a group of pieces spans all banks, or the whole of a shorter line."""
        return max(min(_BANK_BYTES, self.line_bytes) // (self.pack * self.dtype.nbytes) // self.swizzle, 1)

    @property
    def line(self) -> int:
        """Numbers from one line to the next."""
        return (self.depth if self.k_fastest else self.rows * self.pack) + self.pad

    @property
    def line_bytes(self) -> int:
        """Bytes of a line without its padding."""
        return (self.line - self.pad) * self.dtype.nbytes

    @property
    def size(self) -> int:
        """Numbers of the whole tile."""
        return self.line * (self.rows if self.k_fastest else self.depth // self.pack)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tile."""
        return self.size * self.dtype.nbytes

    def index(self, row: Expr, k: Expr) -> Expr:
        """Place of a number in the tile."""
        if self.k_fastest:
            return row * self.line + self._exchanged(k, row // self.step)
        line = k // self.pack
        within = self._exchanged(row, line // self.step) * self.pack
        return line * self.line + within + (k % self.pack if self.pack > 1 else 0)

    def _exchanged(self, at: Expr, by: Expr) -> Expr:
        """A place along a line with its piece number's low bits xored by those of `by`.

        Bit by bit: every part has known bounds.
        """
        if self.swizzle == 1:
            return at
        group, piece = self.piece * self.swizzle, at // self.piece
        bits = [(piece // (1 << n) + by // (1 << n)) % 2 * (1 << n) for n in range(self.swizzle.bit_length() - 1)]
        return at // group * group + sum(bits, start=const(0)) * self.piece + at % self.piece

    def run(self, along_k: bool) -> int:
        """How many neighbours along k (or along rows) lie consecutively; 1: none, whatever their number."""
        if along_k != self.k_fastest:
            return self.pack if along_k else 1
        if self.pack > 1:
            return 1
        length = self.depth if along_k else self.rows
        return length if self.swizzle == 1 else min(length, self.piece)


def stored_type(row: Instruction, name: str) -> DType:
    """The type in which a tile holds the numbers of an instruction's operand: tf32 lies as f32."""
    dtype = row.fragment(name).dtype
    return F32 if dtype is TF32 else dtype


def tile_layouts(plan: TiledPlan, acc: DType) -> tuple[SharedLayout, SharedLayout]:
    """The tiles of A and B: in the types that the row multiplies, or (single threads) in the accumulator's."""
    return _tile(plan, "a", plan.a, plan.block_m, acc), _tile(plan, "b", plan.b, plan.block_n, acc)


def _tile(plan: TiledPlan, name: str, transfer: Transfer, rows: int, acc: DType) -> SharedLayout:
    return _layout(plan.row, name, transfer, rows, plan.block_k, acc)


@lru_cache(maxsize=1 << 16)  # candidates of all shapes and arrangements share few distinct tiles
def _layout(row_name: str, name: str, transfer: Transfer, rows: int, depth: int, acc: DType) -> SharedLayout:
    row = None if row_name == SCALAR else row_named(row_name)
    if row is None:
        return _swizzled(SharedLayout(acc, rows, depth, False, transfer.pad), transfer, matrix=False)
    along_k = lines_along_k(row, transfer.along)
    pack = packing(row, name, along_k)
    layout = SharedLayout(stored_type(row, name), rows, depth, along_k, transfer.pad, pack)
    return _swizzled(layout, transfer, matrix=row.lanes > 1)


def _swizzled(layout: SharedLayout, transfer: Transfer, matrix: bool) -> SharedLayout:
    if transfer.swizzle == 1:
        return layout
    step = _BANK_BYTES // layout.line_bytes if matrix else transfer.vector // layout.pack
    return replace(layout, swizzle=transfer.swizzle, step=max(step, 1))


def matrix_swizzle(row: Instruction, name: str, transfer: Transfer, rows: int, depth: int) -> int:
    """The swizzle with which matrix loads have no bank conflicts and no line needs padding; 1: padding is needed.

    Padded lines begin anywhere within the 128 bytes of all banks, so that a copy of a line goes to two of them and
    reads its sectors of global memory more than once (measured on an H200: 1.48 times the bytes).
    """
    along_k = lines_along_k(row, transfer.along)
    nbytes = stored_type(row, name).nbytes
    line = (depth if along_k else rows) * nbytes
    if way_of(row, name, along_k) is Way.WORDS or transfer.vector * nbytes < MATRIX_LINE_BYTES:
        return 1
    if line % _BANK_BYTES and _BANK_BYTES % line:
        return 1
    return min(line, _BANK_BYTES) // MATRIX_LINE_BYTES


def widest_swizzle(layout: SharedLayout, chunk: int, transfer: Transfer) -> int:
    """The largest swizzle that helps single threads: a place for each line that neighbours write, chunks whole."""
    banks = _BANK_BYTES // (layout.pack * layout.dtype.nbytes)
    if transfer.along is not Along.K or layout.k_fastest or layout.rows % banks:
        return 1
    lines = layout.depth // max(transfer.vector, layout.pack)
    return 1 << (max(min(lines, banks // chunk), 1).bit_length() - 1)


def lines_along_k(row: Instruction, along: Along) -> bool:
    """Whether lines of a tile run along k: as numbers arrive; but single lanes take neighbouring rows at once."""
    return along is Along.K and row.lanes > 1


def shared_bytes(plan: TiledPlan, acc: DType) -> int:
    """Bytes of shared memory of one block: operand tiles of all stages, and the sums that K groups hand over.

    C's tile, where it is collected, takes the place of operand tiles; its numbers are not wider than sums.
    """
    tiles = plan.stages * sum(layout.nbytes for layout in tile_layouts(plan, acc))
    collected = plan.block_m * collected_line(plan) * acc.nbytes if plan.collect else 0
    return max(tiles, collected) + (plan.k_groups - 1) * plan.block_m * plan.block_n * acc.nbytes


def collected_line(plan: TiledPlan) -> int:
    """Numbers from one line of the collected tile of C to the next: what is written and stored at once stays aligned.

    Fragments are written without bank conflicts where a store moves 16 bytes.
    """
    return plan.block_n + max(plan.collect, plan.store)


@lru_cache(maxsize=4096)
def conflict_free_pad(row: Instruction, name: str, along: Along, length: int) -> int:
    """The least padding of lines of `length` numbers with which fragments are loaded without bank conflicts.

    In multiples of 16 bytes, so that lines stay aligned; 0 if no small one helps.
    """
    k_fastest = lines_along_k(row, along)
    nbytes = stored_type(row, name).nbytes
    step = max(MATRIX_LINE_BYTES // nbytes, 1)
    line = length if k_fastest else length * packing(row, name, k_fastest)
    pads = range(0, step * _MOST_PADS, step)
    return next((pad for pad in pads if is_conflict_free(row, name, k_fastest, (line + pad) * nbytes)), 0)
