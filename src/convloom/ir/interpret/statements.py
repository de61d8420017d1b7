"""Executes statements for all threads of a chunk, in lock-step from one statement to the next.

That loses no fault: between two barriers the accesses of different threads are compared as sets, whatever their order.
Execution stops at every barrier; what happens there is for `schedule` to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from convloom.errors import InternalError
from convloom.expr import Expr, bounds, divisor
from convloom.ir.interpret.access import add_global, combined, write_global, write_shared
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.instructions import execute
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.registers import write_register
from convloom.ir.interpret.values import evaluate, read
from convloom.ir.ops import (
    Allocate,
    Barrier,
    For,
    If,
    Instruct,
    Let,
    LoopKind,
    Read,
    Scope,
    Statement,
    Write,
)

Arrival = Bools | None | Pause
"""The threads that arrive at a barrier (None: all of the chunk), or a point of another order."""


def run_body(chunk: Chunk, body: tuple[Statement, ...], path: str = "body") -> Iterator[Arrival]:
    """Runs statements one after the other, giving way at barriers; `path` is that of the body in the kernel."""
    for number, statement in enumerate(body):
        here = f"{path}.{number}"
        chunk.enter(here, statement)
        match statement:
            case For():
                yield from _for(chunk, statement, here)
            case If():
                condition = chunk.index(statement.condition) != 0
                yield from _masked(chunk, condition, statement.body, here)
            case Barrier() if chunk.order is not None:
                yield from chunk.order.barrier()
            case Barrier():
                yield chunk.active
            case Instruct() if chunk.order is not None:
                yield from chunk.order.execute(statement)
            case _:
                _run(chunk, statement)


def _run(chunk: Chunk, statement: Statement) -> None:
    match statement:
        case Write():
            _write(chunk, statement)
        case Let():
            _let(chunk, statement)
        case Allocate():
            chunk.allocate(statement.buffer)
        case Instruct():
            execute(chunk, statement)
        case _:
            return


# --- names ----------------------------------------------------------------------------------------------------------


def _let(chunk: Chunk, statement: Let) -> None:
    value = statement.value
    bound = _integer(read(chunk, value)) if isinstance(value, Read) else chunk.index(value)
    chunk.names[statement.variable.name] = bound
    if isinstance(value, Read) or not _keeps_facts(statement.variable, value):
        _check_facts(chunk, statement.variable, bound)


@lru_cache(maxsize=1 << 14)
def _keeps_facts(name: Expr, value: Expr) -> bool:
    """Whether the name's facts follow from those of the names in its value, which are checked where these are bound."""
    facts, known = name.facts, bounds(value)
    low = facts.lo is None or (known.lo is not None and known.lo >= facts.lo)
    high = facts.hi is None or (known.hi is not None and known.hi <= facts.hi)
    return low and high and divisor(value) % facts.divisor == 0


def _integer(values: Array) -> Any:
    """Index values of one lane, as an int where they do not vary; a copy, as the array may be written later."""
    return int(values[0, 0, 0]) if values.size == 1 else values[0].copy()


def _check_facts(chunk: Chunk, name: Expr, value: Any) -> None:
    """A name's value keeps to its declared bounds and divisor: the compiler relied on them."""
    facts = name.facts
    low = -(2**63) if facts.lo is None else facts.lo
    high = 2**63 - 1 if facts.hi is None else facts.hi
    if isinstance(value, int):
        wrong: Any = not low <= value <= high or value % facts.divisor != 0
        found = wrong
    else:
        found = int(value.min()) < low or int(value.max()) > high
        if facts.divisor > 1:
            found = found or bool((value % facts.divisor != 0).any())
        wrong = (value < low) | (value > high) | (value % facts.divisor != 0) if found else False
    if found:
        chunk.report(FindingKind.BROKEN_FACT, name.name, np.asarray(wrong), value)


# --- control flow ---------------------------------------------------------------------------------------------------


def _for(chunk: Chunk, loop: For, path: str) -> Iterator[Arrival]:
    if loop.kind is LoopKind.WORK_ITEMS:
        raise InternalError(
            "the interpreter runs kernels before they are serialised for a CPU; got a loop over work-items; "
            "plan for another target"
        )
    extent = chunk.index(loop.extent)
    most = extent if isinstance(extent, int) else int(extent.max())
    uniform = isinstance(extent, int) or int(extent.min()) == most
    if chunk.launch.counts is not None:
        active = np.True_ if chunk.active is None else chunk.active
        shown = np.broadcast_to(extent, chunk.shape)[np.broadcast_to(active, chunk.shape)]
        chunk.launch.counts.loop(path, shown)
    if most > 0:
        _check_facts(chunk, loop.variable, extent - 1 if uniform else np.maximum(extent, 1) - 1)
    for iteration in range(most):
        chunk.names[loop.variable.name] = iteration
        if uniform:
            yield from run_body(chunk, loop.body, path)
        else:
            yield from _masked(chunk, iteration < extent, loop.body, path)


def _masked(chunk: Chunk, condition: Any, body: tuple[Statement, ...], path: str) -> Iterator[Arrival]:
    """Runs the body for the threads where the condition holds."""
    if isinstance(condition, bool | np.bool_):
        if condition:
            yield from run_body(chunk, body, path)
        return
    before = chunk.active
    chunk.active = combined(before, condition)
    assert chunk.active is not None
    if chunk.active.all():
        chunk.active = None
    if chunk.active is None or chunk.active.any():
        yield from run_body(chunk, body, path)
    chunk.active = before


# --- stores ---------------------------------------------------------------------------------------------------------


def _write(chunk: Chunk, statement: Write) -> None:
    buffer = statement.buffer
    mask = None if statement.mask is None else chunk.index(statement.mask) != 0
    before = chunk.active
    chunk.active = taken = combined(before, mask)
    values = _stored(chunk, statement)
    index = chunk.index(statement.index)
    match buffer.scope:
        case Scope.REGISTER:
            write_register(chunk, buffer, index, values, taken)
        case Scope.SHARED:
            write_shared(chunk, buffer, index, values, taken)
        case _:
            (add_global if statement.adds else write_global)(chunk, buffer, index, values, taken)
    chunk.active = before


def _stored(chunk: Chunk, statement: Write) -> Array:
    if not isinstance(statement.value, Expr):
        return evaluate(chunk, statement.value)
    value = np.asarray(chunk.index(statement.value), np.int64)
    return value.reshape(1, 1, 1) if value.ndim == 0 else value[None]
