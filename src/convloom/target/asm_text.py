"""From a row's text pattern and C expressions to one statement; inline assembly with its constraint letters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from convloom.artifact import Language
from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.target.instruction import (
    Direction,
    Family,
    Instruction,
    Operand,
    OperandKind,
    Ordering,
    Register,
    Text,
    TextForm,
)

_NAME = re.compile(r"\$([a-z_]+)(?:#(\d+))?")  # `$name`, or `$name#1` for one register of it
_LETTERS = {Register.B32: "r", Register.F32: "f", Register.F64: "d", Register.B64: "l"}
_PREFIX = {Direction.OUT: "=", Direction.IN_OUT: "+", Direction.IN: ""}


def statement(row: Instruction, language: Language, arguments: Mapping[str, Sequence[str]]) -> str:
    """The instruction as one statement of the language.

    `arguments` gives for each operand its C expressions: one per register, of the register's class (B32: a 32-bit
    integer, F32: float, ..); one for an address, a descriptor or a tensor map (64-bit, but a 32-bit shared address);
    one literal for an immediate. Raises UnsupportedTarget if the language has no text for it, IllegalProblem for a
    wrong number of expressions.
    """
    text = row.text(language)
    if text is None:
        raise UnsupportedTarget(
            f"{row.name} must be written in a language it has; got {language.value}; choose another row"
        )
    for operand in row.operands:
        _check_count(row, operand, arguments)
    if text.form is TextForm.STATEMENT:
        return _filled(text.pattern, arguments)
    return _assembly(row, text, arguments)


def _check_count(row: Instruction, operand: Operand, arguments: Mapping[str, Sequence[str]]) -> None:
    given = len(arguments.get(operand.name, ()))
    if given != operand.registers:
        raise IllegalProblem(
            f"operand {operand.name!r} of {row.name} takes {operand.registers} expressions; got {given}; pass one each"
        )


def _assembly(row: Instruction, text: Text, arguments: Mapping[str, Sequence[str]]) -> str:
    places: dict[str, list[str]] = {}
    written: list[str] = []
    read: list[str] = []
    count = 0
    for operand in sorted(row.operands, key=lambda operand: operand.direction is Direction.IN):
        places[operand.name] = [f"%{count + number}" for number in range(operand.registers)]
        count += operand.registers
        letter = "n" if operand.kind is OperandKind.IMMEDIATE else _LETTERS[operand.register]
        side = read if operand.direction is Direction.IN else written
        side.extend(f'"{_PREFIX[operand.direction]}{letter}"({item})' for item in arguments[operand.name])
    body = _filled(text.pattern, places)
    clobbers = ' : "memory"' if touches_memory(row) else ""
    return f'asm volatile("{body}" : {", ".join(written)} : {", ".join(read)}{clobbers});'


def _filled(pattern: str, places: Mapping[str, Sequence[str]]) -> str:
    def place(found: re.Match[str]) -> str:
        return ", ".join(places[found[1]]) if found[2] is None else places[found[1]][int(found[2])]

    return _NAME.sub(place, pattern)


def touches_memory(row: Instruction) -> bool:
    """Whether the compiler must keep memory accesses on their side of the statement: all but register arithmetic."""
    addressed = any(operand.space is not None for operand in row.operands)
    return addressed or row.ordering is not Ordering.NONE or row.family is Family.REGISTER_BUDGET
