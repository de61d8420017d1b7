"""Rows of NVIDIA's warp-level instructions: mma.sync, ldmatrix, stmatrix, dp4a, cp.async, bar.

Source of shapes and lane maps: NVIDIA, PTX ISA, "Warp-level matrix instructions" and "Asynchronous copy"; lane l has
group l // 4 and place l % 4 within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convloom.artifact import Language
from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, U8, DType
from convloom.target.instruction import (
    Capability,
    Completion,
    Constraint,
    Direction,
    Execution,
    Family,
    Fragment,
    Instruction,
    Operand,
    OperandKind,
    Ordering,
    OutOfBounds,
    Register,
    Rule,
    Semantics,
    Text,
    TextForm,
    Vendor,
    no_effect,
)
from convloom.target.lane_map import Digits, lane_map, to_lanes, to_matrix
from convloom.target.memory import Space
from convloom.target.multiply import dot, multiply_fragments
from convloom.target.number_format import B16, TF32, Array, as_elements, as_words

WARP = 32
MATRIX_ROW_BYTES = 16
"""ldmatrix and stmatrix move 8 x 8 matrices of 16-bit elements, row by row."""

_REGISTER_OF = {F32.name: Register.F32, F64.name: Register.F64}


def nvidia(level: int, only: bool = False) -> Capability:
    """sm_`level`, or with `only` its architecture-specific extras (sm_90a)."""
    return Capability(Vendor.NVIDIA, level, only)


def ptx(pattern: str) -> tuple[Text, ...]:
    """The one text of an NVIDIA row."""
    return (Text(Language.CUDA, TextForm.PTX, pattern),)


def register_operand(name: str, direction: Direction, fragment: Fragment) -> Operand:
    """A matrix in registers; packed types lie in 32-bit words."""
    register = _REGISTER_OF.get(fragment.dtype.name, Register.B32)
    count = fragment.elements * fragment.dtype.bits // (8 * register.word.itemsize)
    return Operand(name, direction, register, count, fragment=fragment)


# --- mma.sync -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """One lane map set: digits of lane and element for A (m x k), B (k x n) and C, D (m x n)."""

    m: int
    n: int
    k: int
    a: tuple[Digits, Digits]
    b: tuple[Digits, Digits]
    d: tuple[Digits, Digits]

    @property
    def name(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


def _sixteen_rows(k: int, run: int) -> _Shape:
    """m16n8: `run` neighbouring k per element group (those of one 32-bit register); registers alternate rows first."""
    blocks = k // (4 * run)
    a = (((8, k), (4, run)), ((blocks, 4 * run), (2, 8 * k), (run, 1)))
    b = (((8, 1), (4, 8 * run)), ((blocks, 32 * run), (run, 8)))
    return _Shape(16, 8, k, a, b, (((8, 8), (4, 2)), ((2, 64), (2, 1))))


_EIGHT_ROWS = _Shape(
    8, 8, 4, (((8, 4), (4, 1)), ((1, 0),)), (((8, 1), (4, 8)), ((1, 0),)), (((8, 8), (4, 2)), ((2, 1),))
)

_FLOATS = ((F16, F16), (BF16, BF16))
_BYTES = ((S8, S8), (S8, U8), (U8, S8), (U8, U8))
_TINY_FLOATS = ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2))

_MMA: tuple[tuple[_Shape, tuple[tuple[DType, DType], ...], DType, int], ...] = (  # shape, (A, B) types, C type, level
    (_sixteen_rows(16, 2), _FLOATS, F32, 80),
    (_sixteen_rows(8, 2), _FLOATS, F32, 80),
    (_sixteen_rows(8, 1), ((TF32, TF32),), F32, 80),
    (_sixteen_rows(4, 1), ((TF32, TF32),), F32, 80),
    (_sixteen_rows(32, 4), _BYTES, S32, 80),
    (_sixteen_rows(16, 4), _BYTES, S32, 80),
    (_EIGHT_ROWS, ((F64, F64),), F64, 80),
    (_sixteen_rows(32, 4), _TINY_FLOATS, F32, 89),
    (_sixteen_rows(4, 1), ((F64, F64),), F64, 90),
    (_sixteen_rows(8, 1), ((F64, F64),), F64, 90),
    (_sixteen_rows(16, 1), ((F64, F64),), F64, 90),
)


def _mma_row(shape: _Shape, a_type: DType, b_type: DType, d_type: DType, level: int) -> Instruction:
    a = Fragment(a_type, (shape.m, shape.k), lane_map(*shape.a))
    b = Fragment(b_type, (shape.k, shape.n), lane_map(*shape.b))
    d = Fragment(d_type, (shape.m, shape.n), lane_map(*shape.d))
    opcode = f"mma.sync.aligned.{shape.name}.row.col.{d_type}.{a_type}.{b_type}.{d_type}"
    return Instruction(
        name=f"mma.{shape.name}.{d_type}.{a_type}.{b_type}",
        family=Family.MATRIX_MULTIPLY,
        needs=nvidia(level),
        lanes=WARP,
        operands=(
            register_operand("d", Direction.OUT, d),
            register_operand("a", Direction.IN, a),
            register_operand("b", Direction.IN, b),
            register_operand("c", Direction.IN, d),
        ),
        texts=ptx(f"{opcode} {{$d}}, {{$a}}, {{$b}}, {{$c}};"),
        semantics=multiply_fragments(a, b, d),
        shape=(shape.m, shape.n, shape.k),
    )


def _mma_rows() -> Iterator[Instruction]:
    for shape, pairs, d_type, level in _MMA:
        for a_type, b_type in pairs:
            yield _mma_row(shape, a_type, b_type, d_type, level)


# --- ldmatrix, stmatrix ---------------------------------------------------------------------------------------------


def _matrices(count: int, transposed: bool) -> Fragment:
    """`count` 8 x 8 matrices below each other; a lane holds two neighbours of a row (transposed: of a column)."""
    lane, inner = ((((8, 8), (4, 2)), (2, 1)), (((8, 1), (4, 16)), (2, 8)))[transposed]
    return Fragment(B16, (8 * count, 8), lane_map(lane, ((count, 64), inner)))


def _matrix_load(fragment: Fragment) -> Semantics:
    rows = fragment.shape[0]

    def run(execution: Execution) -> dict[str, Array]:
        addresses = execution.number("address")[..., :rows]
        data = execution.space.load(Space.SHARED, addresses, MATRIX_ROW_BYTES)
        return {"d": as_words(to_lanes(as_elements(data, B16), fragment.layout), Register.B32.word)}

    return run


def _matrix_store(fragment: Fragment) -> Semantics:
    rows = fragment.shape[0]

    def run(execution: Execution) -> dict[str, Array]:
        held = as_elements(execution.words("a"), B16)
        matrix = to_matrix(held, fragment.layout, fragment.shape)
        addresses = execution.number("address")[..., :rows]
        execution.space.store(Space.SHARED, addresses, as_words(matrix, np.dtype(np.uint8)))
        return {}

    return run


def _matrix_move_row(count: int, transposed: bool, load: bool) -> Instruction:
    fragment = _matrices(count, transposed)
    name = f"{'ldmatrix' if load else 'stmatrix'}.x{count}{'.trans' if transposed else ''}"
    opcode = f"{name.split('.')[0]}.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    address = Operand("address", Direction.IN, kind=OperandKind.ADDRESS, space=Space.SHARED)
    return Instruction(
        name=name,
        family=Family.MATRIX_LOAD if load else Family.MATRIX_STORE,
        needs=nvidia(75 if load else 90),
        lanes=WARP,
        operands=(register_operand("d", Direction.OUT, fragment), address)
        if load
        else (address, register_operand("a", Direction.IN, fragment)),
        texts=ptx(f"{opcode} {{$d}}, [$address];" if load else f"{opcode} [$address], {{$a}};"),
        semantics=(_matrix_load if load else _matrix_store)(fragment),
        constraints=(Constraint("address", Rule.MULTIPLE, (MATRIX_ROW_BYTES,)),),
        out_of_bounds=OutOfBounds.FAULT,
        meaning="Lane 8j + r gives the address of row r of matrix j; other lanes' addresses are not used.",
    )


def _matrix_move_rows() -> Iterator[Instruction]:
    for load in (True, False):
        for transposed in (False, True):
            for count in (1, 2, 4):
                yield _matrix_move_row(count, transposed, load)


# --- dp4a -----------------------------------------------------------------------------------------------------------


def _dot_row(a: DType, b: DType) -> Instruction:
    """One lane holds four neighbours of k of a row of A and of a column of B, and one number of C."""
    one = ((1, 0),)
    left, right = Fragment(a, (1, 4), lane_map(one, ((4, 1),))), Fragment(b, (4, 1), lane_map(one, ((4, 1),)))
    total = Fragment(S32, (1, 1), lane_map(one, one))
    kinds = "".join(f".{dtype.name[0]}32" for dtype in (a, b))
    return Instruction(
        name=f"dp4a.{a}.{b}",
        family=Family.DOT,
        needs=nvidia(61),
        lanes=1,
        operands=(
            register_operand("d", Direction.OUT, total),
            register_operand("a", Direction.IN, left),
            register_operand("b", Direction.IN, right),
            register_operand("c", Direction.IN, total),
        ),
        texts=ptx(f"dp4a{kinds} $d, $a, $b, $c;"),
        semantics=dot(a, b, S32),
        shape=(1, 1, 4),
    )


# --- cp.async -------------------------------------------------------------------------------------------------------


def _copy(nbytes: int) -> Semantics:
    def run(execution: Execution) -> dict[str, Array]:
        sources, given = execution.number("source"), execution.number("source_bytes")
        data = np.zeros((*sources.shape, nbytes), np.uint8)
        active = np.ones(sources.shape, bool) if execution.active is None else execution.active
        for size in np.unique(given[active & (given > 0)]):
            chosen = active & (given == size)
            data[..., :size] |= execution.space.load(Space.GLOBAL, sources, int(size), chosen)
        execution.space.store(Space.SHARED, execution.number("destination"), data, execution.active)
        return {}

    return run


def _copy_row(nbytes: int, cache: str) -> Instruction:
    return Instruction(
        name=f"cp.async.{cache}.{nbytes}",
        family=Family.ASYNC_COPY,
        needs=nvidia(80),
        lanes=1,
        operands=(
            Operand("destination", Direction.IN, kind=OperandKind.ADDRESS, space=Space.SHARED),
            Operand("source", Direction.IN, Register.B64, kind=OperandKind.ADDRESS, space=Space.GLOBAL),
            Operand("source_bytes", Direction.IN),
        ),
        texts=ptx(f"cp.async.{cache}.shared.global [$destination], [$source], {nbytes}, $source_bytes;"),
        semantics=_copy(nbytes),
        constraints=(
            Constraint("destination", Rule.MULTIPLE, (nbytes,)),
            Constraint("source", Rule.MULTIPLE, (nbytes,)),
            Constraint("source_bytes", Rule.WITHIN, (0, nbytes)),
        ),
        out_of_bounds=OutOfBounds.ZERO_PAST_RANGE,
        completion=Completion.COPY_GROUP,
        meaning="Bytes from source_bytes on are written as zeros and not read; 'cg' passes by the first-level cache.",
    )


# --- order ----------------------------------------------------------------------------------------------------------


def order_row(
    name: str,
    needs: Capability,
    family: Family,
    ordering: Ordering,
    text: str,
    meaning: str,
    operands: tuple[Operand, ...] = (),
    constraints: tuple[Constraint, ...] = (),
    lanes: int = 1,
    group: Completion = Completion.AT_ONCE,
) -> Instruction:
    """A row without effect on data: a barrier, a fence; a commit or a wait, for groups of the kind `group`."""
    return Instruction(
        name,
        family,
        needs,
        lanes,
        operands,
        ptx(text),
        no_effect,
        constraints=constraints,
        completion=group,
        ordering=ordering,
        meaning=meaning,
    )


def immediate(name: str) -> Operand:
    """A number in the text."""
    return Operand(name, Direction.IN, kind=OperandKind.IMMEDIATE)


_BARRIER = (immediate("barrier"), immediate("threads"))
_BARRIER_RULES = (
    Constraint("barrier", Rule.WITHIN, (0, 15)),
    Constraint("threads", Rule.MULTIPLE, (WARP,)),
    Constraint("threads", Rule.WITHIN, (WARP, 1024)),
)
_ORDER_ROWS = (
    order_row(
        "cp.async.commit_group",
        nvidia(80),
        Family.ASYNC_COPY,
        Ordering.COMMIT,
        "cp.async.commit_group;",
        "The thread's cp.async since the last commit become one group.",
        group=Completion.COPY_GROUP,
    ),
    order_row(
        "cp.async.wait_group",
        nvidia(80),
        Family.ASYNC_COPY,
        Ordering.WAIT,
        "cp.async.wait_group $pending;",
        "The thread's own copies are visible to it, all but those of the latest `pending` groups.",
        (immediate("pending"),),
        (Constraint("pending", Rule.WITHIN, (0, 63)),),
        group=Completion.COPY_GROUP,
    ),
    order_row(
        "bar.sync",
        nvidia(70),
        Family.BARRIER,
        Ordering.SYNC,
        "bar.sync $barrier, $threads;",
        "Waits until `threads` threads have arrived; they see each other's earlier accesses.",
        _BARRIER,
        _BARRIER_RULES,
        WARP,
    ),
    order_row(
        "bar.arrive",
        nvidia(70),
        Family.BARRIER,
        Ordering.ARRIVE,
        "bar.arrive $barrier, $threads;",
        "Counts as arrived and goes on; others wait by bar.sync.",
        _BARRIER,
        _BARRIER_RULES,
        WARP,
    ),
)

ROWS: tuple[Instruction, ...] = (
    *_mma_rows(),
    *_matrix_move_rows(),
    *(_dot_row(a, b) for a, b in _BYTES),
    *(_copy_row(nbytes, cache) for nbytes, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg"))),
    *_ORDER_ROWS,
)
