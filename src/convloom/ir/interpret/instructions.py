"""Executes instruction rows: register arrays as words of subgroups, addresses as bytes of the machine's memories.

Rows work on arrays of shape (blocks, subgroups, lanes, registers), the interpreter on (registers, threads, blocks).
What a row does to order (groups of copies) is done here; data is the row's own semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from convloom.errors import IllegalProblem, InternalError, NotYetSupported
from convloom.expr import Expr
from convloom.ir.interpret.access import read_global, read_shared, write_global, write_shared, zeroed
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.copies import commit, issue, wait
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.registers import read_register, write_register
from convloom.ir.ops import Address, Argument, Buffer, Descriptor, Instruct, MapParameter, Numbers, Registers, Scope
from convloom.target.group_multiply import MatrixDescriptor
from convloom.target.instruction import Completion, Direction, Instruction, OperandKind, Ordering
from convloom.target.memory import Space
from convloom.target.tensor_map import TensorMap

_SPACE_STEP = 1 << 40  # between the made-up addresses of two global buffers
_SCOPES = {Space.SHARED: Scope.SHARED, Space.GLOBAL: Scope.GLOBAL}


def execute(chunk: Chunk, statement: Instruct) -> None:
    """Runs the row for all subgroups of all blocks; written registers are stored back."""
    row, arguments = statement.row, dict(statement.arguments)
    memory = ChunkMemory(chunk, row)
    values = {
        name: operand_value(chunk, memory, row, name, item)
        for name, item in arguments.items()
        if row.operand(name).direction is not Direction.OUT
    }
    active = None if chunk.active is None else grouped(chunk, row, np.broadcast_to(chunk.active, chunk.shape)[None])
    active = None if active is None else active[..., 0]
    if row.lanes > 1 and active is not None:
        check_whole_groups(chunk, row, active)
    if chunk.launch.counts is not None:
        threads, blocks = chunk.shape
        whole = active is None
        groups = threads * blocks // row.lanes if whole else int(active.reshape(blocks, -1, row.lanes)[..., 0].sum())
        chunk.launch.counts.row(row.name, row.shape, groups)
    try:
        results = row.execute(values, memory, active)
    except IllegalProblem:  # a broken constraint: undefined on a device, a finding here
        chunk.report(FindingKind.BROKEN_RULE, row.name, np.True_, 0)
        return
    for name, words in results.items():
        store(chunk, arguments[name], words)
    _order(chunk, row, values)


def check_whole_groups(chunk: Chunk, row: Instruction, active: Array) -> None:
    """Reports groups of lanes of which only a part executes the row."""
    partial = active.any(axis=-1) & ~active.all(axis=-1)
    if partial.any():
        threads, blocks = chunk.shape
        chunk.report(
            FindingKind.PARTIAL_GROUP, row.name, np.repeat(partial, row.lanes, axis=1).reshape(blocks, threads).T, 0
        )


def _order(chunk: Chunk, row: Instruction, values: dict[str, Any]) -> None:
    """Effects on the order of copies; barriers and fences of single rows are not executed yet."""
    match row.ordering:
        case Ordering.NONE:
            return
        case Ordering.COMMIT if row.completion is Completion.COPY_GROUP:
            commit(chunk)
        case Ordering.WAIT if row.completion is Completion.COPY_GROUP:
            wait(chunk, int(values["pending"]))
        case _:
            raise NotYetSupported(
                f"the interpreter orders copy groups and whole-block barriers; got {row.name}; run it on a GPU"
            )


def grouped(chunk: Chunk, row: Instruction, values: Array) -> Array:
    """(registers, threads, blocks) -> (blocks, subgroups, lanes, registers); of one lane: (blocks, threads, ..)."""
    threads, blocks = chunk.shape
    whole = np.broadcast_to(values, (len(values), threads, blocks)).transpose(2, 1, 0)
    if row.lanes == 1:
        return whole
    return whole.reshape(blocks, threads // row.lanes, row.lanes, len(values))


class Spaces(Protocol):
    """Where buffers and maps are, for the operands of rows."""

    def base(self, buffer: Buffer) -> int:
        """The byte address of a buffer's number 0."""
        ...

    def tensor_map(self, name: str) -> TensorMap:
        """A map of the kernel."""
        ...


def operand_value(chunk: Chunk, memory: Spaces, row: Instruction, name: str, item: Argument) -> Any:
    """An operand as `Instruction.execute` takes it."""
    operand = row.operand(name)
    match item:
        case Registers():
            held = read_register(chunk, item.buffer, chunk.index(item.index), item.count)
            words = np.ascontiguousarray(held).view(np.dtype(f"u{held.dtype.itemsize}"))
            return np.ascontiguousarray(grouped(chunk, row, words)).astype(operand.register.word, copy=False)
        case MapParameter():
            return memory.tensor_map(item.name)
        case Address() | Descriptor():
            numbers = [
                memory.base(item.buffer) + np.asarray(chunk.index(item.index), np.int64) * item_bytes(item.buffer)
            ]
            if isinstance(item, Descriptor):
                bits = MatrixDescriptor(0, item.leading, item.stride, item.swizzle).encode()
                numbers = [(numbers[0] >> 4 & 0x3FFF).astype(np.uint64) | np.uint64(bits)]
        case Numbers():
            numbers = [np.asarray(chunk.index(value), np.int64) for value in item.values]
        case Expr():
            number = chunk.index(item)
            if operand.kind is OperandKind.IMMEDIATE:
                return int(number)
            numbers = [np.asarray(number, np.int64)]
    spread = np.stack([np.broadcast_to(number, chunk.shape) for number in numbers])
    return np.ascontiguousarray(grouped(chunk, row, spread)).astype(operand.register.word)


def store(chunk: Chunk, item: Argument, words: Array) -> None:
    """Writes an instruction's result to its registers."""
    if not isinstance(item, Registers):
        raise InternalError(f"an instruction writes registers; got {item!r}; report this")
    threads, blocks = chunk.shape
    dtype = chunk.registers[item.buffer.name].values.dtype
    values = np.ascontiguousarray(words).view(dtype).reshape(blocks, threads, item.count).transpose(2, 1, 0)
    write_register(chunk, item.buffer, chunk.index(item.index), values, chunk.active)


def item_bytes(buffer: Buffer) -> int:
    """Bytes of one number of a buffer that instructions may address."""
    if buffer.dtype is None:
        raise InternalError(f"instructions do not address index arrays; got {buffer.name}; report this")
    return buffer.dtype.nbytes


class ChunkMemory:
    """The chunk's memories behind the byte interface of `target.memory.Memory`; accesses are checked as any others."""

    def __init__(self, chunk: Chunk, row: Instruction) -> None:
        self._chunk = chunk
        self._row = row
        self._buffers: dict[Scope, list[Buffer]] = {Scope.SHARED: [], Scope.GLOBAL: []}

    def base(self, buffer: Buffer) -> int:
        """A made-up byte address at which the buffer begins."""
        known = self._buffers[buffer.scope]
        if buffer not in known:
            known.append(buffer)
        return known.index(buffer) * _SPACE_STEP

    def tensor_map(self, name: str) -> TensorMap:
        """See `Spaces`; kernels with maps are run in order."""
        raise InternalError(f"a kernel with tensor maps runs in order; got map {name}; report this")

    def load(self, space: Space, addresses: Array, nbytes: int, active: Bools | None = None) -> Array:
        """See `target.memory.Memory`."""
        buffer, places, taken = self._places(space, addresses, active)
        read = read_shared if buffer.scope is Scope.SHARED else read_global
        values = zeroed(read(self._chunk, buffer, places, nbytes // item_bytes(buffer), taken), taken)
        threads, blocks = self._chunk.shape
        whole = np.broadcast_to(values, (len(values), threads, blocks)).transpose(2, 1, 0)
        raw = np.ascontiguousarray(whole).view(np.uint8).reshape(*self._lane_shape(addresses), nbytes)
        return raw[..., : addresses.shape[-1], :]

    def store(self, space: Space, addresses: Array, data: Array, active: Bools | None = None) -> None:
        """See `target.memory.Memory`."""
        buffer, places, taken = self._places(space, addresses, active)
        nbytes = data.shape[-1]
        whole = np.zeros((*self._lane_shape(addresses), nbytes), np.uint8)
        whole[..., : addresses.shape[-1], :] = data
        threads, blocks = self._chunk.shape
        dtype = buffer.dtype
        assert dtype is not None
        values = whole.reshape(blocks, threads, nbytes).view(dtype.numpy).transpose(2, 1, 0)
        if self._row.completion is Completion.COPY_GROUP and buffer.scope is Scope.SHARED:
            issue(self._chunk, buffer, places, values, taken)
            return
        write = write_shared if buffer.scope is Scope.SHARED else write_global
        write(self._chunk, buffer, places, values, taken)

    def update(
        self,
        space: Space,
        addresses: Array,
        operand: Array,
        combine: Callable[[Array, Array], Array],
        active: Bools | None = None,
    ) -> Array:
        """See `target.memory.Memory`."""
        raise NotYetSupported(
            f"the interpreter has no indivisible update yet; {self._row.name} needs one; use another row"
        )

    def _lane_shape(self, addresses: Array) -> tuple[int, ...]:
        """(blocks, threads) in the grouping of the addresses, all lanes included."""
        threads, blocks = self._chunk.shape
        return (blocks, threads) if addresses.ndim == 2 else (blocks, addresses.shape[1], threads // addresses.shape[1])

    def _places(self, space: Space, addresses: Array, active: Bools | None) -> tuple[Buffer, Array, Bools]:
        """(buffer, number index of every thread, which threads take part), both of shape (threads, blocks)."""
        told = addresses if active is None else addresses[active]  # those of other lanes may be anything
        buffer = self._buffers[_SCOPES[space]][int(told.max(initial=0)) // _SPACE_STEP]
        lanes = addresses.shape[-1]
        numbers = np.zeros(self._lane_shape(addresses), np.int64)
        taken = np.zeros(numbers.shape, np.bool_)
        numbers[..., :lanes] = (addresses.astype(np.int64) - self.base(buffer)) // item_bytes(buffer)
        taken[..., :lanes] = True if active is None else active
        threads, blocks = self._chunk.shape
        flags = taken.reshape(blocks, threads).T
        if self._chunk.active is not None:
            flags = flags & self._chunk.active
        return buffer, numbers.reshape(blocks, threads).T, flags
