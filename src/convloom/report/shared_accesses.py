"""What the first subgroup of a kernel asks of shared memory, read off the final IR, with the banks it meets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.expr import Expr, evaluate
from convloom.ir.interpret.counts import Counts
from convloom.ir.ops import (
    Address,
    Binary,
    Buffer,
    Call,
    Convert,
    For,
    If,
    Instruct,
    Kernel,
    Let,
    MultiplyAdd,
    Pack,
    Read,
    Scope,
    Splat,
    Statement,
    Value,
    Write,
)
from convloom.ir.rewrite import values_in
from convloom.target.memory_requests import Geometry

_COPY = re.compile(r"cp\.async\.\w+\.(\d+)")
_MATRIX = re.compile(r"(?:ld|st)matrix\b")
_MATRIX_BYTES = 16  # of the line whose address a lane gives


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One statement: what it does, byte address of each lane, bytes per lane, wavefronts it takes and the fewest."""

    what: str
    buffer: str
    addresses: tuple[int, ...]
    nbytes: int
    wavefronts: int
    fewest: int

    @property
    def conflicts(self) -> bool:
        """Whether lanes wait for each other at some bank."""
        return self.wavefronts > self.fewest


def shared_accesses(kernel: Kernel) -> tuple[SharedAccess, ...]:
    """The accesses of threads 0 to 31 of block 0, in the first round of every loop, equal ones once.

    Statements whose address depends on what is read from memory are left out.
    """
    lanes = min(Geometry().subgroup, kernel.threads)
    values: dict[str, Any] = {"tid": np.arange(lanes), "bid": 0}
    found = dict.fromkeys(_walk(kernel.body, values))
    return tuple(found)


def _walk(body: Iterable[Statement], values: dict[str, Any]) -> Iterator[SharedAccess]:
    for statement in body:
        if isinstance(statement, Let) and isinstance(statement.value, Expr):
            _learn(values, statement.variable.name, statement.value)
        elif isinstance(statement, For):
            yield from _walk(statement.body, {**values, statement.variable.name: 0})
        elif isinstance(statement, If):
            yield from _walk(statement.body, values)
        else:
            for what, buffer, index, nbytes in _asked(statement):
                yield from _access(what, buffer, index, nbytes, values)


def _learn(values: dict[str, Any], name: str, value: Expr) -> None:
    try:
        values[name] = evaluate(value, values)
    except IllegalProblem:  # it depends on a size of the call, or on what memory holds
        values.pop(name, None)


def _asked(statement: Statement) -> Iterator[tuple[str, Buffer, Expr, int]]:
    """(what, buffer, index, bytes per lane) of each access of a statement to shared memory."""
    if isinstance(statement, Write) and not isinstance(statement.value, Expr):
        for read in _reads(statement.value):
            yield "load", read.buffer, read.index, read.lanes * _size(read.buffer)
        if statement.buffer.scope is Scope.SHARED:
            lanes = _lanes(statement.value)
            yield "store", statement.buffer, statement.index, lanes * _size(statement.buffer)
    elif isinstance(statement, Instruct):
        copy = _COPY.fullmatch(statement.row.name)
        nbytes = int(copy[1]) if copy else _MATRIX_BYTES if _MATRIX.match(statement.row.name) else 0
        for _, argument in statement.arguments if nbytes else ():
            if isinstance(argument, Address) and argument.buffer.scope is Scope.SHARED:
                yield statement.row.name, argument.buffer, argument.index, nbytes


def _reads(value: Value) -> Iterator[Read]:
    return (part for part in values_in(value) if isinstance(part, Read) and part.buffer.scope is Scope.SHARED)


def _lanes(value: Value) -> int:
    """Numbers that a value holds."""
    match value:
        case Read() | Splat():
            return value.lanes
        case Convert():
            return _lanes(value.value)
        case Pack():
            return 1
        case Binary():
            return _lanes(value.left)
        case MultiplyAdd():
            return _lanes(value.addend)
        case Call():
            return _lanes(value.values[0])
        case _:
            return getattr(value, "lanes", 1)


def _size(buffer: Buffer) -> int:
    return 8 if buffer.dtype is None else buffer.dtype.nbytes


def _access(what: str, buffer: Buffer, index: Expr, nbytes: int, values: dict[str, Any]) -> Iterator[SharedAccess]:
    try:
        places = evaluate(index, values)
    except IllegalProblem:  # see _learn
        return
    first: NDArray[np.int64] = np.broadcast_to(places, np.shape(values["tid"])) * _size(buffer)
    counts = Counts()
    counts.access("", buffer, first[:, None], nbytes, None, (first.size, 1), what == "store")
    (site,) = counts.sites.values()
    yield SharedAccess(what, buffer.name, tuple(first.tolist()), nbytes, site.units, site.ideal)
