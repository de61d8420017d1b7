"""The plan of the tiled family: every decision about how a contraction runs, as one frozen record with a text form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from math import gcd

from convloom.errors import Infeasible, UnsupportedTarget
from convloom.plan.plan_fields import axis_names, axis_text, fields_of, flag, numbers
from convloom.plan.split import NO_SPLIT, Split, parse_split
from convloom.target.catalogue import row_named
from convloom.target.instruction import Instruction, Register

_SUM_BYTES = 16
SCALAR = "fma"
"""In place of an instruction's name: multiply-adds of single threads."""


class Along(Enum):
    """Which direction of an operand tile (rows x k) consecutive threads and the elements of a vector follow."""

    ROW = "row"  # m for A, n for B
    K = "k"


@dataclass(frozen=True, slots=True)
class Transfer:
    """How one operand tile travels from global to shared memory."""

    along: Along
    vector: int  # numbers per global access
    pad: int  # extra numbers behind each shared row of one k
    swizzle: int = 1  # places that pieces of shared rows exchange, by k; 1: none

    def __str__(self) -> str:
        exchanged = f"~{self.swizzle}" if self.swizzle > 1 else ""
        return f"{self.along.value}*{self.vector}+{self.pad}{exchanged}"


@dataclass(frozen=True, slots=True)
class TiledPlan:
    """A thread block computes block_m x block_n of C in steps of block_k; a thread computes thread_m x thread_n of it.

    Axes are named as in the contraction. `m`, `n`, `g` are merged (slowest first) into one flat index each; of the K
    axes `serial` are walked one by one (outermost first), `merged` form the flat index that is tiled by block_k.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    chunk_m: int  # consecutive rows that one thread takes before the next thread's begin
    chunk_n: int
    lanes: int  # numbers per arithmetic instruction, along n
    unroll_k: bool
    g: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    serial: tuple[str, ...]
    merged: tuple[str, ...]
    a: Transfer
    b: Transfer
    store: int  # numbers per store of C, along n
    index_bits: int
    swap: bool  # the contraction's A and M act as B and N
    row: str = SCALAR  # the matrix instruction that multiplies, by its name in the catalogue
    stages: int = 1  # K tiles in shared memory at a time
    k_groups: int = 1  # groups of a block's threads, each of which multiplies its share of every K tile
    split: Split = NO_SPLIT  # of K over the grid
    walk: int = 1  # rows of tiles that consecutive blocks take together, column by column; 1: row by row
    collect: int = (
        0  # numbers per store of C, its tile being collected in shared memory; 0: threads store what they hold
    )
    fragments: int = 1  # sets of fragments in registers: with 2, those of the next k are loaded while one multiplies

    @property
    def instruction(self) -> Instruction | None:
        """The matrix instruction; None where single threads multiply."""
        return None if self.row == SCALAR else row_named(self.row)

    @property
    def unit_lanes(self) -> int:
        """Threads that multiply together."""
        return 1 if self.row == SCALAR else row_named(self.row).lanes

    @property
    def units_m(self) -> int:
        """Units (threads, or subgroups) of a block along m."""
        return self.block_m // self.thread_m

    @property
    def units_n(self) -> int:
        """Units of a block along n."""
        return self.block_n // self.thread_n

    @property
    def group_threads(self) -> int:
        """Threads that hold one tile of C together."""
        return self.units_m * self.units_n * self.unit_lanes

    @property
    def k_steps(self) -> int:
        """Steps in which a thread multiplies its share of one K tile."""
        row = self.instruction
        return self.block_k // self.k_groups // (1 if row is None else row.shape[2])

    @property
    def carries(self) -> bool:
        """Whether the first fragments of a K tile are loaded while the last ones of the tile before multiply.

        Registers have no number that is known only when the code runs, so the sets must alternate alike in every tile.
        """
        unrolled = self.row != SCALAR or self.unroll_k
        return self.stages > 1 and unrolled and self.fragments > 1 and self.k_steps % self.fragments == 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.group_threads * self.k_groups

    def sum_width(self, acc_bytes: int) -> int:
        """Numbers of one access to sums that leave registers: a vector register, else at most 16 bytes."""
        if self.lanes > 1:
            return self.lanes
        return gcd(self.block_m * self.block_n // self.group_threads, _SUM_BYTES // acc_bytes)

    def registers(self) -> int:
        """Estimate of the numbers of the accumulators' width a thread keeps in registers: those, fragments, index math.

        Weights of rows were fitted to what NVRTC 13 reported of 70 plans; most kernels take 0.8 to 1.1 times as many
        (fewer where K is one tile: then the compiler finishes one accumulator after the other).
        """
        row = self.instruction
        if row is None:
            index_math = 24 + (2 * max(self.accesses() - 8, 0) if self.lanes == 1 else 0)
            return self.thread_m * self.thread_n + self.fragments * (self.thread_m + self.thread_n) + index_math
        m, n, _ = row.shape
        count_m, count_n = self.thread_m // m, self.thread_n // n
        fragments = count_m * row.operand("a").registers + count_n * row.operand("b").registers
        accumulators = count_m * count_n * row.operand("d").registers
        index_math = min(self.accesses(), 24) * 6 // 5 + 40
        wide = row.operand("d").register is Register.F64
        return accumulators + self.fragments * fragments + (index_math // 2 if wide else index_math)

    def accesses(self) -> int:
        """Global accesses of a thread for one K tile."""
        tiles = ((self.block_m, self.a.vector), (self.block_n, self.b.vector))
        return sum(-(-rows * self.block_k // (vector * self.threads)) for rows, vector in tiles)


def plan_text(plan: TiledPlan) -> str:
    """One line with named fields; `parse_plan` reads it back to an equal plan."""
    return (
        f"tiled block={plan.block_m}x{plan.block_n}x{plan.block_k} thread={plan.thread_m}x{plan.thread_n}"
        f" chunk={plan.chunk_m}x{plan.chunk_n} lanes={plan.lanes} unroll={int(plan.unroll_k)}"
        f" g={axis_text(plan.g)} m={axis_text(plan.m)} n={axis_text(plan.n)}"
        f" serial={axis_text(plan.serial)} k={axis_text(plan.merged)}"
        f" a={plan.a} b={plan.b} store={plan.store} index={plan.index_bits} swap={int(plan.swap)}"
        f" row={plan.row} stages={plan.stages} groups={plan.k_groups} split={plan.split} walk={plan.walk}"
        f" fragments={plan.fragments} collect={plan.collect}"
    )


_OPTIONAL = {"fragments": "1", "collect": "0"}
"""Fields that a text may leave out, and what they then are."""

_TRANSFER = re.compile(r"(row|k)\*(\d+)\+(\d+)(?:~(\d+))?")
_FIELDS = (
    "block",
    "thread",
    "chunk",
    "lanes",
    "unroll",
    "g",
    "m",
    "n",
    "serial",
    "k",
    "a",
    "b",
    "store",
    "index",
    "swap",
    "row",
    "stages",
    "groups",
    "split",
    "walk",
    "fragments",
    "collect",
)


def parse_plan(text: str) -> TiledPlan:
    """The plan that `plan_text` printed; Infeasible names the field that is missing or malformed."""
    fields = fields_of(text, "tiled", _FIELDS, _OPTIONAL)
    block, thread, chunk = (numbers(fields, name, count) for name, count in (("block", 3), ("thread", 2), ("chunk", 2)))
    return TiledPlan(
        *block,
        *thread,
        *chunk,
        lanes=numbers(fields, "lanes", 1)[0],
        unroll_k=flag(fields, "unroll"),
        g=axis_names(fields["g"]),
        m=axis_names(fields["m"]),
        n=axis_names(fields["n"]),
        serial=axis_names(fields["serial"]),
        merged=axis_names(fields["k"]),
        a=_transfer(fields, "a"),
        b=_transfer(fields, "b"),
        store=numbers(fields, "store", 1)[0],
        index_bits=numbers(fields, "index", 1)[0],
        swap=flag(fields, "swap"),
        row=_row(fields["row"]),
        stages=numbers(fields, "stages", 1)[0],
        k_groups=numbers(fields, "groups", 1)[0],
        split=parse_split(fields["split"]),
        walk=numbers(fields, "walk", 1)[0],
        collect=0 if fields["collect"] == "0" else numbers(fields, "collect", 1)[0],
        fragments=numbers(fields, "fragments", 1)[0],
    )


def _row(name: str) -> str:
    try:
        return name if name == SCALAR else row_named(name).name
    except UnsupportedTarget as error:
        raise Infeasible(f"plan field row must be {SCALAR} or a matrix instruction; {error}") from None


def _transfer(fields: dict[str, str], name: str) -> Transfer:
    match = _TRANSFER.fullmatch(fields[name])
    if match is None or int(match[2]) < 1 or int(match[4] or 1) < 1:
        raise Infeasible(f"plan field {name} must look like row*4+0 or k*8+4; got {fields[name]!r}; correct it")
    return Transfer(Along(match[1]), int(match[2]), int(match[3]), int(match[4] or 1))
