"""Rules of the IR about instructions: their arguments, what these must obey, and who executes them together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from convloom.expr import Expr, divisor, evaluate, free_symbols
from convloom.ir.ops import (
    Address,
    Argument,
    Descriptor,
    For,
    If,
    Instruct,
    Kernel,
    Let,
    MapParameter,
    Numbers,
    Registers,
    Scope,
    Statement,
)
from convloom.ir.rewrite import statements_in
from convloom.ir.shared_space import shared_offsets
from convloom.ir.symbols import thread_id
from convloom.target.instruction import Constraint, Direction, Operand, OperandKind, Rule
from convloom.target.memory import Space


def check_instruction_arguments(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """An instruction has the arguments that its row names, each of a form and size that the operand takes."""
    for statement in statements_in(kernel.body):
        if not isinstance(statement, Instruct):
            continue
        row, given = statement.row, dict(statement.arguments)
        names = {operand.name for operand in row.operands}
        if names != set(given):
            wanted, got = (", ".join(sorted(words)) or "nothing" for words in (names, given))
            yield f"{row.name} takes {wanted}; got {got}"
            continue
        for operand in row.operands:
            yield from _wrong_argument(kernel, f"{operand.name} of {row.name}", operand, given[operand.name])


_FORMS: dict[OperandKind, tuple[type, ...]] = {
    OperandKind.REGISTERS: (Registers, Address, Numbers, Expr),
    OperandKind.ADDRESS: (Address, Registers),
    OperandKind.DESCRIPTOR: (Descriptor,),
    OperandKind.TENSOR_MAP: (MapParameter,),
    OperandKind.IMMEDIATE: (Expr,),
}


def _wrong_argument(kernel: Kernel, name: str, operand: Operand, item: Argument) -> Iterator[str]:
    forms = _FORMS[operand.kind] if operand.direction is Direction.IN else (Registers,)
    if not isinstance(item, forms):
        yield f"{name} must be one of {', '.join(form.__name__ for form in forms)}; got {type(item).__name__}"
        return
    count = item.count if isinstance(item, Registers) else len(item.values) if isinstance(item, Numbers) else 1
    if count != operand.registers:
        yield f"{name} takes {operand.registers} registers or numbers; got {count}"
    if operand.kind is OperandKind.IMMEDIATE and not (isinstance(item, Expr) and item.is_const):
        yield f"{name} must be a constant; got {item!r}"
    if isinstance(item, MapParameter) and item not in kernel.maps:
        yield f"{name} must be a map of the kernel; got {item.name}"
    if isinstance(item, Address) and operand.space is not None:
        in_global = operand.space is Space.GLOBAL
        if in_global is not (item.buffer.scope is Scope.GLOBAL):
            yield f"{name} must lie in {operand.space.value} memory; {item.buffer.name} does not"


def check_instruction_rules(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Constants obey the rules of their operands, and addresses in shared memory are provably aligned as these ask."""
    starts = shared_offsets(kernel)
    for statement in statements_in(kernel.body):
        if isinstance(statement, Instruct):
            given = dict(statement.arguments)
            for rule in statement.row.constraints:
                item = given.get(rule.operand)
                shared = item.buffer.scope is Scope.SHARED if isinstance(item, Address) else False
                start = starts.get(item.buffer, 0) if isinstance(item, Address) and shared else 0
                if item is not None and not _obeys(rule, item, start):
                    name = f"{rule.operand} of {statement.row.name}"
                    yield f"{name} must be {rule.rule.value} {', '.join(map(str, rule.numbers))}; got {_shown(item)}"


def _obeys(rule: Constraint, item: Argument, start: int) -> bool:
    """False where a rule is broken, or (alignment in shared memory) where nothing proves that it is obeyed."""
    if isinstance(item, Address) and item.buffer.scope is Scope.SHARED and rule.rule is Rule.MULTIPLE:
        size = 8 if item.buffer.dtype is None else item.buffer.dtype.nbytes
        return start % rule.numbers[0] == 0 and divisor(item.index) * size % rule.numbers[0] == 0
    if isinstance(item, Expr) and item.is_const:
        return bool(rule.holds(np.asarray(item.value)))
    return True


def _shown(item: Argument) -> str:
    return f"{item.buffer.name}[{item.index!r}]" if isinstance(item, Address) else repr(item)


Flags = NDArray[np.bool_]
Values = dict[str, int | NDArray[np.int64]]


def check_lanes_together(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """No condition that depends on the thread alone parts the lanes that execute an instruction together."""
    thread = thread_id(kernel.threads)
    values: Values = {thread.name: np.arange(kernel.threads)}
    yield from _parted(kernel.body, np.ones(kernel.threads, np.bool_), values)


def _parted(body: tuple[Statement, ...], reached: Flags, values: Values) -> Iterator[str]:
    for statement in body:
        match statement:
            case Let(value=Expr() as value) if _is_known(value, values):
                values = {**values, statement.variable.name: evaluate(value, values)}
            case Let():
                values = _without(values, statement.variable)
            case If():
                taken = reached
                if _is_known(statement.condition, values):
                    taken = reached & (np.asarray(evaluate(statement.condition, values)) != 0)
                yield from _parted(statement.body, taken, values)
            case For():
                yield from _parted(statement.body, reached, _without(values, statement.variable))
            case Instruct() if statement.row.lanes > 1 and _splits(reached, statement.row.lanes):
                yield f"{statement.row.name} is executed by {statement.row.lanes} lanes together; some are masked off"
            case _:
                pass


def _without(values: Values, name: Expr) -> Values:
    return {known: value for known, value in values.items() if known != name.name}


def _is_known(expression: Expr, values: Values) -> bool:
    return all(symbol.name in values for symbol in free_symbols(expression))


def _splits(reached: Flags, lanes: int) -> bool:
    missing = -reached.size % lanes
    groups = np.pad(reached, (0, missing)).reshape(-1, lanes)
    return bool((groups.any(axis=1) & ~groups.all(axis=1)).any())
