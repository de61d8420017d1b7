"""Rows of sm_90a's asynchronous warpgroup multiplies: wgmma.mma_async m64 nN, its fence, commit and wait.

Source: NVIDIA, PTX ISA, "Asynchronous warpgroup level matrix instructions". A warpgroup is four warps; its lane
32w + 4g + t is place t of group g in warp w.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, S8, S32, U8, DType
from convloom.errors import IllegalProblem
from convloom.target.group_multiply import Major, element_addresses, read_matrix
from convloom.target.instruction import (
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
    Proxy,
    Register,
    Rule,
    Semantics,
)
from convloom.target.lane_map import lane_map
from convloom.target.memory import Space
from convloom.target.multiply import fragment_matrix, matrix_words, product
from convloom.target.number_format import TF32, Array
from convloom.target.nvidia_sm80 import WARP, immediate, nvidia, order_row, ptx, register_operand

WARPGROUP = 4 * WARP
M = 64
K_BYTES = 32
"""Bytes of k in each row that one instruction multiplies."""
NEEDS = nvidia(90, only=True)

_PAIRS: tuple[tuple[DType, DType, DType], ...] = (  # A, B, D
    (F16, F16, F32),
    (BF16, BF16, F32),
    (TF32, TF32, F32),
    (E4M3, E4M3, F32),
    (E4M3, E5M2, F32),
    (E5M2, E4M3, F32),
    (E5M2, E5M2, F32),
    (S8, S8, S32),
    (S8, U8, S32),
    (U8, S8, S32),
    (U8, U8, S32),
)
_FLOAT_WIDTHS = tuple(range(8, 257, 8))
_INTEGER_WIDTHS = (8, 16, 24, *range(32, 257, 16))
_SIGNS = (1, -1)
_ORIENTATIONS = tuple(major.value for major in Major)


def wgmma(n: int, a_type: DType, b_type: DType, a_in_registers: bool = False) -> Instruction:
    """The row of one width and pair of types, with A from shared memory or from registers.

    Raises IllegalProblem for a width or pair of types that the hardware lacks.
    """
    return _wgmma(n, a_type, b_type, a_in_registers)


@cache
def _wgmma(n: int, a_type: DType, b_type: DType, a_in_registers: bool) -> Instruction:
    d_type = next((d for a, b, d in _PAIRS if (a, b) == (a_type, b_type)), None)
    widths = _INTEGER_WIDTHS if d_type == S32 else _FLOAT_WIDTHS
    if d_type is None or n not in widths:
        raise IllegalProblem(
            f"wgmma takes n in {widths[0]}..{widths[-1]} (multiples of 8; integers beyond 24: of 16) and pairs of "
            f"equal f16, bf16, tf32 or any of fp8, of 8-bit integers; got n={n}, {a_type}, {b_type}; choose another row"
        )
    k = K_BYTES // a_type.nbytes
    d = Fragment(d_type, (M, n), lane_map(((4, 16 * n), (8, n), (4, 2)), ((n // 8, 8), (2, 8 * n), (2, 1))))
    a = _register_a(a_type, k) if a_in_registers else None
    swaps = a_type in (F16, BF16)
    return Instruction(
        name=f"wgmma.m64n{n}k{k}.{d_type}.{a_type}.{b_type}.{'rs' if a_in_registers else 'ss'}",
        family=Family.GROUP_MULTIPLY,
        needs=NEEDS,
        lanes=WARPGROUP,
        operands=_operands(d, a, a_type.is_float, swaps),
        texts=ptx(_pattern(n, k, (d_type, a_type, b_type), a is not None, swaps)),
        semantics=_multiply((n, k), d, a, (a_type, b_type)),
        shape=(M, n, k),
        constraints=_constraints(a is not None, a_type.is_float, swaps),
        out_of_bounds=OutOfBounds.FAULT,
        completion=Completion.MULTIPLY_GROUP,
        proxy=Proxy.ASYNC,
        meaning="d := a * b, plus d where accumulate is not 0. Registers may be touched again after wgmma.wait_group.",
    )


def _register_a(dtype: DType, k: int) -> Fragment:
    run = 4 // dtype.nbytes
    element = ((k // (4 * run), 4 * run), (2, 8 * k), (run, 1))
    return Fragment(dtype, (M, k), lane_map(((4, 16 * k), (8, k), (4, run)), element))


def _operands(d: Fragment, a: Fragment | None, signs: bool, swaps: bool) -> tuple[Operand, ...]:
    shared = [
        Operand(name, Direction.IN, Register.B64, kind=OperandKind.DESCRIPTOR, space=Space.SHARED)
        for name in ("a", "b")[a is not None :]
    ]
    in_registers = [register_operand("a", Direction.IN, a)] if a is not None else []
    names = [*(("sign_a", "sign_b") if signs else ()), *_swap_names(a is not None, swaps)]
    accumulate = Operand("accumulate", Direction.IN)
    accumulator = register_operand("d", Direction.IN_OUT, d)
    return (accumulator, *in_registers, *shared, accumulate, *map(immediate, names))


def _swap_names(a_in_registers: bool, swaps: bool) -> tuple[str, ...]:
    return ("major_a", "major_b")[a_in_registers:] if swaps else ()


def _pattern(n: int, k: int, types: tuple[DType, DType, DType], a_in_registers: bool, swaps: bool) -> str:
    d, a, b = types
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}"
    names = [*(("sign_a", "sign_b") if a.is_float else ()), *_swap_names(a_in_registers, swaps)]
    tail = "".join(f", ${name}" for name in names)
    left = "{$a}" if a_in_registers else "$a"
    return (
        "{ .reg .pred accumulate; setp.ne.b32 accumulate, $accumulate, 0; "
        f"{opcode} {{$d}}, {left}, $b, accumulate{tail}; }}"
    )


def _constraints(a_in_registers: bool, signs: bool, swaps: bool) -> tuple[Constraint, ...]:
    return (
        *(Constraint(name, Rule.ONE_OF, _SIGNS) for name in ("sign_a", "sign_b") if signs),
        *(Constraint(name, Rule.ONE_OF, _ORIENTATIONS) for name in _swap_names(a_in_registers, swaps)),
    )


def _multiply(extents: tuple[int, int], d: Fragment, a: Fragment | None, types: tuple[DType, DType]) -> Semantics:
    n, k = extents

    def run(execution: Execution) -> dict[str, Array]:
        words = execution.words("d")
        if a is not None:
            left = fragment_matrix(execution.words("a"), a)
        else:
            left = _shared_matrix(execution, "a", (M, k), types[0])
        right = np.swapaxes(_shared_matrix(execution, "b", (n, k), types[1]), -1, -2)
        sign = int(execution.values.get("sign_a", 1)) * int(execution.values.get("sign_b", 1))
        total = sign * product(left, right)
        keep = execution.number("accumulate")[..., :1, None] != 0
        with np.errstate(invalid="ignore"):
            total = np.where(keep, total + fragment_matrix(words, d), total)
        return {"d": matrix_words(total, d, words.dtype)}

    return run


def _shared_matrix(execution: Execution, name: str, extents: tuple[int, int], dtype: DType) -> Array:
    """The (outer, k) matrix behind a descriptor; the lanes of a warpgroup give the same one."""
    descriptors = execution.words(name)[..., 0]
    if (descriptors != descriptors[..., :1]).any():
        raise IllegalProblem(f"all lanes give the same descriptor {name!r}; got different ones; make it uniform")
    major = Major(int(execution.values.get(f"major_{name}", 0)))
    addresses = element_addresses(descriptors[..., 0], *extents, dtype, major)
    return read_matrix(execution.space, addresses, dtype, major)


def _multiply_rows() -> Iterator[Instruction]:
    for a_type, b_type, d_type in _PAIRS:
        for a_in_registers in (False, True):
            for n in _INTEGER_WIDTHS if d_type == S32 else _FLOAT_WIDTHS:
                yield wgmma(n, a_type, b_type, a_in_registers)


_ORDER = (
    order_row(
        "wgmma.fence",
        NEEDS,
        Family.FENCE,
        Ordering.FENCE_REGISTERS,
        "wgmma.fence.sync.aligned;",
        "Register accesses before it are seen by the multiplies after it; due before the first one and after the "
        "program itself touched accumulators or register operands.",
        lanes=WARPGROUP,
    ),
    order_row(
        "wgmma.commit_group",
        NEEDS,
        Family.GROUP_MULTIPLY,
        Ordering.COMMIT,
        "wgmma.commit_group.sync.aligned;",
        "The warpgroup's multiplies since the last commit become one group.",
        lanes=WARPGROUP,
        group=Completion.MULTIPLY_GROUP,
    ),
    order_row(
        "wgmma.wait_group",
        NEEDS,
        Family.GROUP_MULTIPLY,
        Ordering.WAIT,
        "wgmma.wait_group.sync.aligned $pending;",
        "All groups but the latest `pending` are complete: registers hold results, tiles may be overwritten.",
        (immediate("pending"),),
        (Constraint("pending", Rule.WITHIN, (0, 7)),),
        WARPGROUP,
        Completion.MULTIPLY_GROUP,
    ),
)


@cache
def rows() -> tuple[Instruction, ...]:
    """All widths, pairs of types and sources of A (some 600 rows, made on first use)."""
    return (*_multiply_rows(), *_ORDER)
