"""Evaluates the values of a statement for all threads of a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from convloom.ir.interpret.access import combined, inside, lane_places, read_global, read_shared, zeroed
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.functions import call
from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.numbers import converted, multiply_add
from convloom.ir.interpret.registers import read_register
from convloom.ir.ops import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Constant,
    Convert,
    MultiplyAdd,
    Pack,
    Parameter,
    Read,
    Scope,
    Splat,
    Value,
)
from convloom.ir.types import value_type


def evaluate(chunk: Chunk, value: Value) -> Array:
    """The numbers, of shape (lanes, threads, blocks) with axes of 1 where nothing varies."""
    match value:
        case Read():
            return read(chunk, value)
        case MultiplyAdd():
            _count(chunk, "multiply-add", value.left)
            return multiply_add(
                evaluate(chunk, value.left), evaluate(chunk, value.right), evaluate(chunk, value.addend)
            )
        case Convert():
            return converted(evaluate(chunk, value.value), value.dtype)
        case Pack():
            parts = np.broadcast_to(evaluate(chunk, value.value), (value_type(value.value).lanes, *chunk.shape))
            return np.ascontiguousarray(parts.transpose(1, 2, 0)).view(np.uint32).transpose(2, 0, 1)
        case Splat():
            one = evaluate(chunk, value.value)
            return np.broadcast_to(one, (value.lanes, *one.shape[1:]))
        case Constant():
            return np.full((value.lanes, 1, 1), value.value, value.dtype.numpy)
        case Parameter():
            return np.full((1, 1, 1), chunk.launch.floats[value.name], value.dtype.numpy)
        case Binary():
            _count(chunk, "add" if value.op is BinaryOp.ADD else "multiply", value.left)
            left, right = evaluate(chunk, value.left), evaluate(chunk, value.right)
            return left + right if value.op is BinaryOp.ADD else left * right
        case Call():
            _count(chunk, "function", value.values[0])
            return call(value.function, [evaluate(chunk, part) for part in value.values], value.numbers)


def read(chunk: Chunk, read: Read) -> Array:
    """The numbers of a read; zeros where its mask is 0."""
    buffer = read.buffer
    if buffer.scope is Scope.REGISTER and read.mask is None:
        return read_register(chunk, buffer, chunk.index(read.index), read.lanes)
    mask = None if read.mask is None else chunk.index(read.mask) != 0
    taken = combined(chunk.active, mask)
    index = _index_where(chunk, read, taken)
    return zeroed(_read_from(chunk, buffer, index, read.lanes, taken), mask)


def _index_where(chunk: Chunk, read: Read, taken: Any) -> Any:
    """The index; faults in its arithmetic count for the threads that read."""
    before, chunk.active = chunk.active, taken
    index = chunk.index(read.index)
    chunk.active = before
    return index


def _read_from(chunk: Chunk, buffer: Buffer, index: Any, lanes: int, taken: Any) -> Array:
    match buffer.scope:
        case Scope.SHARED:
            return read_shared(chunk, buffer, index, lanes, taken)
        case Scope.GLOBAL:
            return read_global(chunk, buffer, index, lanes, taken)
        case Scope.REGISTER:
            return read_register(chunk, buffer, index, lanes)
        case Scope.CONSTANT:
            places = inside(chunk, f"table {buffer.name}", lane_places(index, lanes), taken, range(buffer.size))
            return np.asarray(buffer.values, np.int64)[places]


def _count(chunk: Chunk, kind: str, operand: Value) -> None:
    if chunk.launch.counts is not None:
        chunk.launch.counts.operation(kind, operand, chunk.active, chunk.shape)
