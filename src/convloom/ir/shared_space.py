"""Where the shared buffers of a kernel lie in one common space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convloom.ir.arguments import argument_buffer
from convloom.ir.ops import Allocate, Barrier, Buffer, Instruct, Kernel, Read, Scope, Statement, Write
from convloom.ir.rewrite import statement_values, statements_in

_ALIGNMENT = 128  # of every buffer, in bytes: the widest swizzle or bulk copy needs no more


@dataclass(slots=True)
class _Life:
    """The outermost statements, by number, from the buffer's allocation to its last mention."""

    first: int
    last: int


def shared_offsets(kernel: Kernel) -> dict[Buffer, int]:
    """Byte offset of each SHARED buffer, in the order of allocation.

    Buffers may lie in one place if a barrier of the whole block, an outermost statement, stands between the last
    mention of one and the allocation of the other. requires: copies to or from a buffer are waited for where it is
    mentioned last.
    """
    lives = _lives(kernel.body)
    barriers = [number for number, statement in enumerate(kernel.body) if isinstance(statement, Barrier)]
    offsets: dict[Buffer, int] = {}
    for buffer, life in lives.items():
        alignment = max(buffer.alignment, _ALIGNMENT)
        offset = 0
        for other in sorted(offsets, key=offsets.__getitem__):
            apart = any(lives[other].last < barrier < life.first for barrier in barriers)
            if not apart and offset < offsets[other] + _padded(other) and offsets[other] < offset + _padded(buffer):
                offset = -(-(offsets[other] + _padded(other)) // alignment) * alignment
        offsets[buffer] = offset
    return offsets


def _lives(body: tuple[Statement, ...]) -> dict[Buffer, _Life]:
    lives: dict[Buffer, _Life] = {}
    for number, outermost in enumerate(body):
        for statement in statements_in((outermost,)):
            if isinstance(statement, Allocate) and statement.buffer.scope is Scope.SHARED:
                lives[statement.buffer] = _Life(number, number)
            for buffer in _mentioned(statement):
                if buffer in lives:
                    lives[buffer].last = number
    return lives


def _mentioned(statement: Statement) -> Iterator[Buffer]:
    if isinstance(statement, Write):
        yield statement.buffer
    elif isinstance(statement, Instruct):
        for _, item in statement.arguments:
            buffer = argument_buffer(item)
            if buffer is not None:
                yield buffer
    for value in statement_values(statement):
        if isinstance(value, Read):
            yield value.buffer


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that a block needs."""
    return max((offset + _padded(buffer) for buffer, offset in shared_offsets(kernel).items()), default=0)


def shared_alignment(kernel: Kernel) -> int:
    """Bytes that the common space must be aligned to."""
    return max((buffer.alignment for buffer in shared_offsets(kernel)), default=_ALIGNMENT) or _ALIGNMENT


def _padded(buffer: Buffer) -> int:
    nbytes = buffer.size * (8 if buffer.dtype is None else buffer.dtype.nbytes)
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
