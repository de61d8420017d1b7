"""Rows of NVIDIA's indivisible updates and of the accesses that order threads of different blocks.

Source: NVIDIA, PTX ISA, "atom", "red", "ld", "st", "fence" and "Memory Consistency Model". Their scope is the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convloom.dtypes import BF16, F16, F32, F64, S32, DType
from convloom.target.instruction import (
    Constraint,
    Direction,
    Execution,
    Family,
    Instruction,
    Operand,
    OperandKind,
    Ordering,
    OutOfBounds,
    Register,
    Rule,
    Semantics,
)
from convloom.target.memory import Space
from convloom.target.number_format import Array, as_elements, as_words, exact, rounded
from convloom.target.nvidia_sm80 import nvidia, order_row, ptx

NEEDS = nvidia(70)
_ORDERINGS = {
    "relaxed": Ordering.NONE,
    "acquire": Ordering.ACQUIRE,
    "release": Ordering.RELEASE,
    "acq_rel": Ordering.ACQUIRE_RELEASE,
}
_ADDED: tuple[tuple[str, DType, int, Register, int], ...] = (  # name, element, elements, register, level
    ("s32", S32, 1, Register.B32, 70),
    ("f32", F32, 1, Register.F32, 70),
    ("f64", F64, 1, Register.F64, 70),
    ("f16x2", F16, 2, Register.B32, 70),
    ("bf16x2", BF16, 2, Register.B32, 90),
)


def _address(space: Space) -> Operand:
    register = Register.B64 if space is Space.GLOBAL else Register.B32
    return Operand("address", Direction.IN, register, kind=OperandKind.ADDRESS, space=space)


def _add(space: Space, dtype: DType, register: Register, returns: bool) -> Semantics:
    def combine(old: Array, new: Array) -> Array:
        total = exact(as_elements(old[..., None], dtype), dtype) + exact(as_elements(new[..., None], dtype), dtype)
        return as_words(rounded(total, dtype), register.word)[..., 0]

    def run(execution: Execution) -> dict[str, Array]:
        operand = execution.words("value")[..., 0]
        old = execution.space.update(space, execution.number("address"), operand, combine, execution.active)
        return {"d": old[..., None]} if returns else {}

    return run


def _add_row(kind: tuple[str, DType, int, Register, int], space: Space, order: str, returns: bool) -> Instruction:
    name, dtype, _, register, level = kind
    suffix = f"noftz.{name}" if name.endswith("x2") else name
    opcode = f"{'atom' if returns else 'red'}.{order}.gpu.{space.value}.add.{suffix}"
    value, result = Operand("value", Direction.IN, register), Operand("d", Direction.OUT, register)
    return Instruction(
        name=f"{'atom' if returns else 'red'}.add.{name}.{space.value}.{order}",
        family=Family.ATOMIC,
        needs=nvidia(level),
        lanes=1,
        operands=(*((result,) if returns else ()), _address(space), value),
        texts=ptx(f"{opcode} {'$d, ' if returns else ''}[$address], $value;"),
        semantics=_add(space, dtype, register, returns),
        constraints=(Constraint("address", Rule.MULTIPLE, (register.word.itemsize,)),),
        out_of_bounds=OutOfBounds.FAULT,
        ordering=_ORDERINGS[order],
        meaning="memory += value, indivisible (of two 16-bit numbers each for itself); d := what was there before.",
    )


def _add_rows() -> Iterator[Instruction]:
    for kind in _ADDED:
        for space in (Space.GLOBAL, Space.SHARED):
            for order in _ORDERINGS:
                yield _add_row(kind, space, order, returns=True)
                if order in ("relaxed", "release"):
                    yield _add_row(kind, space, order, returns=False)


def _loaded(execution: Execution) -> Array:
    data = execution.space.load(Space.GLOBAL, execution.number("address"), 4, execution.active)
    return np.ascontiguousarray(data).view(np.uint32)


def _load(execution: Execution) -> dict[str, Array]:
    return {"d": _loaded(execution)}


def _wait(execution: Execution) -> dict[str, Array]:
    return {"done": _loaded(execution)[..., 0] == execution.words("value")[..., 0]}


def _store(execution: Execution) -> dict[str, Array]:
    data = np.ascontiguousarray(execution.words("value")).view(np.uint8)
    execution.space.store(Space.GLOBAL, execution.number("address"), data, execution.active)
    return {}


_VALUE = Operand("value", Direction.IN)
_WAIT = (
    "{ .reg .pred done; .reg .b32 seen; again: ld.acquire.gpu.global.b32 seen, [$address]; "
    "setp.eq.b32 done, seen, $value; @!done bra again; }"
)


def _access_row(
    name: str, family: Family, text: str, semantics: Semantics, ordering: Ordering, operands: tuple[Operand, ...]
) -> Instruction:
    return Instruction(
        name=name,
        family=family,
        needs=NEEDS,
        lanes=1,
        operands=operands,
        texts=ptx(text),
        semantics=semantics,
        constraints=(Constraint("address", Rule.MULTIPLE, (4,)),),
        out_of_bounds=OutOfBounds.FAULT,
        ordering=ordering,
    )


_GLOBAL = _address(Space.GLOBAL)
ROWS: tuple[Instruction, ...] = (
    *_add_rows(),
    _access_row(
        "ld.acquire.b32",
        Family.ATOMIC,
        "ld.acquire.gpu.global.b32 $d, [$address];",
        _load,
        Ordering.ACQUIRE,
        (Operand("d", Direction.OUT), _GLOBAL),
    ),
    _access_row(
        "st.release.b32",
        Family.ATOMIC,
        "st.release.gpu.global.b32 [$address], $value;",
        _store,
        Ordering.RELEASE,
        (_GLOBAL, _VALUE),
    ),
    _access_row("wait.acquire.b32", Family.ATOMIC, _WAIT, _wait, Ordering.AWAIT, (_GLOBAL, _VALUE)),
    order_row(
        "fence.acq_rel.gpu",
        NEEDS,
        Family.FENCE,
        Ordering.FENCE_THREADS,
        "fence.acq_rel.gpu;",
        "With relaxed atomic accesses after it (before it) the thread releases (acquires) to (from) the whole GPU.",
    ),
)
