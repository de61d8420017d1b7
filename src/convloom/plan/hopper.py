"""The plan of the Hopper family: persistent blocks of roles around a ring of stages, wgmma fed by tensor copies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import TypeVar

from convloom.dtypes import F32
from convloom.errors import IllegalProblem, Infeasible, UnsupportedTarget
from convloom.plan.bulk_copy import CopyKind
from convloom.plan.plan_fields import axis_names, axis_text, fields_of, flag, numbers
from convloom.plan.products import products_of
from convloom.plan.split import NO_SPLIT, Split, parse_split
from convloom.problem.contraction import Contraction
from convloom.target.catalogue import row_named
from convloom.target.instruction import Family, Instruction
from convloom.target.number_format import TF32
from convloom.target.nvidia_wgmma import WARPGROUP, wgmma

FAMILY = "hopper"
PRODUCER = 1
"""Warpgroups of a block that do not multiply: one fetches the tiles."""
_SUM_BYTES = 16


class Output(Enum):
    """How results leave a consumer."""

    REGISTERS = "registers"  # each thread stores the runs of columns that it holds
    SHARED = "shared"  # through shared memory, by tensor stores that overlap the next tile
    TURNED = "turned"  # as `shared`, where C is contiguous along M: chunks hold lines of a column each
    PIECES = "pieces"  # through shared memory, from where threads store pieces of rows


@dataclass(frozen=True, slots=True)
class HopperPlan:
    """Consumer warpgroups below each other compute block_m x block_n of C; a producer fills `stages` K tiles.

    Axes as in `tiled.TiledPlan`. `a` and `b`: what fetches the tiles. The row multiplies 64 x block_n.
    """

    block_m: int
    block_n: int
    block_k: int
    consumers: int
    stages: int
    g: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    serial: tuple[str, ...]
    merged: tuple[str, ...]
    a: CopyKind
    b: CopyKind
    row: str
    store: int  # numbers per store of C, along n
    output: Output
    swap: bool  # the contraction's A and M act as B and N
    index_bits: int = 32
    split: Split = NO_SPLIT  # of K over the grid
    walk: int = 1  # as of tiled plans

    @property
    def instruction(self) -> Instruction:
        """The multiplying row."""
        return row_named(self.row)

    @property
    def lanes(self) -> int:
        """Registers are scalar."""
        return 1

    @property
    def k_groups(self) -> int:
        """All consumers have all of each K tile."""
        return 1

    @property
    def group_threads(self) -> int:
        """Threads that hold a tile of C: those of the consumers."""
        return WARPGROUP * self.consumers

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARPGROUP * (self.consumers + PRODUCER)

    @property
    def multiplies(self) -> int:
        """Instructions below each other in a consumer's part of a tile."""
        return self.block_m // (self.consumers * self.instruction.shape[0])

    @property
    def accumulators(self) -> int:
        """Registers of a consumer's thread that hold sums."""
        return self.multiplies * self.instruction.operand("d").registers

    def sum_width(self, acc_bytes: int) -> int:
        """Numbers of one access to sums that leave registers: at most 16 bytes."""
        return gcd(self.accumulators, _SUM_BYTES // acc_bytes)


def row_for(contraction: Contraction, n: int) -> Instruction | str:
    """The row that multiplies 64 x n of a contraction, both operands in shared memory; a reason if there is none."""
    products = products_of(contraction)
    cut = TF32 if products.tf32 and products.a is F32 and products.b is F32 else None
    try:
        row = wgmma(n, cut or products.a, cut or products.b)
    except IllegalProblem as error:
        return str(error)
    found = row.fragment("d").dtype
    return row if found is products.acc else f"{row.name} sums in {found}; the contraction in {products.acc}"


_OPTIONAL = {"index": "32", "split": str(NO_SPLIT), "walk": "1"}
_FIELDS = (
    "block", "consumers", "stages", "g", "m", "n", "serial", "k", "a", "b", "row", "store", "out", "swap", *_OPTIONAL,
)  # fmt: skip


def hopper_text(plan: HopperPlan) -> str:
    """One line with named fields; `parse_hopper` reads it back to an equal plan."""
    return (
        f"{FAMILY} block={plan.block_m}x{plan.block_n}x{plan.block_k} consumers={plan.consumers} stages={plan.stages}"
        f" g={axis_text(plan.g)} m={axis_text(plan.m)} n={axis_text(plan.n)} serial={axis_text(plan.serial)}"
        f" k={axis_text(plan.merged)} a={plan.a.value} b={plan.b.value} row={plan.row} store={plan.store}"
        f" out={plan.output.value} swap={int(plan.swap)} index={plan.index_bits} split={plan.split} walk={plan.walk}"
    )


def parse_hopper(text: str) -> HopperPlan:
    """The plan that `hopper_text` printed; Infeasible names the field that is missing or malformed."""
    fields = fields_of(text, FAMILY, _FIELDS, _OPTIONAL)
    block = numbers(fields, "block", 3)
    return HopperPlan(
        *block,
        consumers=numbers(fields, "consumers", 1)[0],
        stages=numbers(fields, "stages", 1)[0],
        g=axis_names(fields["g"]),
        m=axis_names(fields["m"]),
        n=axis_names(fields["n"]),
        serial=axis_names(fields["serial"]),
        merged=axis_names(fields["k"]),
        a=_choice(fields, "a", CopyKind),
        b=_choice(fields, "b", CopyKind),
        row=_row(fields["row"]),
        store=numbers(fields, "store", 1)[0],
        output=_choice(fields, "out", Output),
        swap=flag(fields, "swap"),
        index_bits=numbers(fields, "index", 1)[0],
        split=parse_split(fields["split"]),
        walk=numbers(fields, "walk", 1)[0],
    )


_Choice = TypeVar("_Choice", bound=Enum)


def _choice(fields: dict[str, str], name: str, kind: type[_Choice]) -> _Choice:
    found = next((item for item in kind if item.value == fields[name]), None)
    if found is None:
        words = ", ".join(str(item.value) for item in kind)
        raise Infeasible(f"plan field {name} must be one of {words}; got {fields[name]!r}; correct it")
    return found


def _row(name: str) -> str:
    try:
        row = row_named(name)
    except UnsupportedTarget as error:
        raise Infeasible(f"plan field row must be an asynchronous multiply; {error}") from None
    if row.family is not Family.GROUP_MULTIPLY or not row.shape:
        raise Infeasible(f"plan field row must be an asynchronous multiply; got {name}; choose a wgmma row")
    return name
