"""Rows that every target has: multiply-adds of one thread, vector loads and stores of global and shared memory."""

from __future__ import annotations

import numpy as np

from convloom.artifact import Language
from convloom.dtypes import F32, F64, S32, DType
from convloom.target.instruction import (
    Capability,
    Constraint,
    Direction,
    Execution,
    Family,
    Instruction,
    Operand,
    OperandKind,
    OutOfBounds,
    Register,
    Rule,
    Semantics,
    Text,
    TextForm,
)
from convloom.target.memory import Space
from convloom.target.multiply import multiply_add
from convloom.target.number_format import Array, as_words

VECTOR_BYTES = (1, 2, 4, 8, 16)
"""Widths of one thread's access; an address must be a multiple of the width."""

_FMA = (  # type, register, text by language
    (F32, Register.F32, {Language.C: "fmaf", Language.OPENCL: "fma", Language.CUDA: "fmaf"}),
    (F64, Register.F64, {Language.C: "fma", Language.OPENCL: "fma", Language.CUDA: "fma"}),
)
_WORD_TYPE = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}
_PTX_TYPE = {1: "u8", 2: "u16", 4: "b32", 8: "v2.b32", 16: "v4.b32"}
_OPENCL_SPACE = {Space.GLOBAL: "__global", Space.SHARED: "__local"}


def _multiply_add_row(dtype: DType, register: Register, texts: tuple[Text, ...]) -> Instruction:
    inputs = tuple(Operand(name, Direction.IN, register) for name in "abc")
    return Instruction(
        name=f"fma.{dtype}",
        family=Family.MULTIPLY_ADD,
        needs=Capability(),
        lanes=1,
        operands=(Operand("d", Direction.OUT, register), *inputs),
        texts=texts,
        semantics=multiply_add(dtype),
        shape=(1, 1, 1),
    )


def _function_texts(functions: dict[Language, str]) -> tuple[Text, ...]:
    return tuple(
        Text(language, TextForm.STATEMENT, f"$d = {function}($a, $b, $c);") for language, function in functions.items()
    )


def _multiply_add_rows() -> tuple[Instruction, ...]:
    integer = tuple(Text(language, TextForm.STATEMENT, "$d = $a * $b + $c;") for language in Language)
    return (
        *(_multiply_add_row(dtype, register, _function_texts(functions)) for dtype, register, functions in _FMA),
        _multiply_add_row(S32, Register.B32, integer),
    )


def _address(space: Space) -> Operand:
    register = Register.B32 if space is Space.SHARED else Register.B64
    return Operand("address", Direction.IN, register, kind=OperandKind.ADDRESS, space=space)


def _load_semantics(space: Space, nbytes: int) -> Semantics:
    def run(execution: Execution) -> dict[str, Array]:
        data = execution.space.load(space, execution.number("address"), nbytes, execution.active)
        return {"d": as_words(_padded(data), Register.B32.word)}

    return run


def _padded(data: Array) -> Array:
    """Bytes of the last axis filled up with zeros to a whole 32-bit word."""
    missing = -data.shape[-1] % Register.B32.word.itemsize
    return np.concatenate([data, np.zeros((*data.shape[:-1], missing), np.uint8)], axis=-1) if missing else data


def _store_semantics(space: Space, nbytes: int) -> Semantics:
    def run(execution: Execution) -> dict[str, Array]:
        data = as_words(execution.words("a"), np.dtype(np.uint8))[..., :nbytes]
        execution.space.store(space, execution.number("address"), data, execution.active)
        return {}

    return run


def _transfer_row(space: Space, nbytes: int, load: bool) -> Instruction:
    data = Operand("d" if load else "a", Direction.OUT if load else Direction.IN, registers=max(1, nbytes // 4))
    address = _address(space)
    return Instruction(
        name=f"{'load' if load else 'store'}.{space.value}.{nbytes * 8}",
        family=Family.LOAD if load else Family.STORE,
        needs=Capability(),
        lanes=1,
        operands=(data, address) if load else (address, data),
        texts=_transfer_texts(space, nbytes, load),
        semantics=(_load_semantics if load else _store_semantics)(space, nbytes),
        constraints=(Constraint("address", Rule.MULTIPLE, (nbytes,)),),
        out_of_bounds=OutOfBounds.FAULT,
    )


def _transfer_texts(space: Space, nbytes: int, load: bool) -> tuple[Text, ...]:
    place = f"*({_OPENCL_SPACE[space]} {_WORD_TYPE[nbytes]} *)($address)"
    value = f"{place} = ({_WORD_TYPE[nbytes]})($a);"
    opcode = f"{'ld' if load else 'st'}.{space.value}.{_PTX_TYPE[nbytes]}"
    register = {True: "{$%s}", False: "$%s"}[nbytes > 4] % ("d" if load else "a")
    ptx = f"{opcode} {register}, [$address];" if load else f"{opcode} [$address], {register};"
    opencl = Text(Language.OPENCL, TextForm.STATEMENT, f"$d = {place};" if load else value)
    return (Text(Language.CUDA, TextForm.PTX, ptx), *((opencl,) if nbytes <= 4 else ()))


ROWS: tuple[Instruction, ...] = (
    *_multiply_add_rows(),
    *(
        _transfer_row(space, nbytes, load)
        for load in (True, False)
        for space in (Space.GLOBAL, Space.SHARED)
        for nbytes in VECTOR_BYTES
    ),
)
