"""Executes instruction rows: register arrays as words of subgroups, addresses as bytes of the machine's memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from convloom.errors import InternalError, NotYetSupported
from convloom.expr import Expr
from convloom.ir.interpret.memory import RegisterArray
from convloom.ir.ops import Address, Argument, Buffer, Instruct, Registers, Scope
from convloom.target.instruction import Direction, Instruction, OperandKind
from convloom.target.memory import Space

Array = NDArray[Any]
_SPACE_STEP = 1 << 40  # between the made-up addresses of two buffers
_SCOPES = {Space.SHARED: Scope.SHARED, Space.GLOBAL: Scope.GLOBAL}


class Machine(Protocol):
    """What an instruction needs of the machine that runs it."""

    @property
    def registers(self) -> dict[Buffer, RegisterArray]: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def active(self) -> NDArray[np.bool_] | None: ...
    def evaluate(self, expression: Expr) -> Any: ...
    def read_bytes(self, buffer: Buffer, indices: Array, taken: NDArray[np.bool_] | None) -> Array: ...
    def write_bytes(self, buffer: Buffer, indices: Array, taken: NDArray[np.bool_] | None, values: Array) -> None: ...


def execute(machine: Machine, statement: Instruct) -> None:
    """Runs the row for all subgroups of all blocks; written registers are stored back."""
    row = statement.row
    arguments = dict(statement.arguments)
    memory = MachineMemory(machine, row)
    values = {name: _value(machine, memory, row, name, item) for name, item in arguments.items()}
    active = None if machine.active is None else machine.active.reshape(_grouped(machine, row))
    if row.lanes > 1 and active is not None and not (active.all(axis=-1) | ~active.any(axis=-1)).all():
        raise InternalError(
            f"all {row.lanes} lanes of a subgroup must execute {row.name}; some are masked; report this"
        )
    written = row.execute(values, memory, active)
    for name, words in written.items():
        _store_registers(machine, arguments[name], words, active)


def _grouped(machine: Machine, row: Instruction) -> tuple[int, ...]:
    blocks, threads = machine.shape
    return (blocks, threads) if row.lanes == 1 else (blocks, threads // row.lanes, row.lanes)


def _value(machine: Machine, memory: MachineMemory, row: Instruction, name: str, item: Argument) -> Any:
    operand = row.operand(name)
    if isinstance(item, Registers):
        return (
            _words(machine, item).reshape(*_grouped(machine, row), item.count) if _is_read(operand.direction) else None
        )
    if isinstance(item, Address):
        number = memory.address(item) + _spread(machine, machine.evaluate(item.index)) * memory.number_bytes(
            item.buffer
        )
        return number.reshape(*_grouped(machine, row), 1).astype(operand.register.word)
    number = machine.evaluate(item)
    if operand.kind is OperandKind.IMMEDIATE:
        return int(number)
    return _spread(machine, number).reshape(*_grouped(machine, row), 1).astype(operand.register.word)


def _is_read(direction: Direction) -> bool:
    return direction is not Direction.OUT


def _spread(machine: Machine, value: Any) -> Array:
    return np.broadcast_to(np.asarray(value, np.int64), machine.shape)


def _words(machine: Machine, item: Registers) -> Array:
    array = machine.registers[item.buffer].values
    first = machine.evaluate(item.index)
    if not isinstance(first, int):
        raise NotYetSupported(f"registers of an instruction have constant numbers; got {item.index!r}; unroll the loop")
    return np.ascontiguousarray(array[..., first : first + item.count]).view(np.dtype(f"u{array.dtype.itemsize}"))


def _store_registers(machine: Machine, item: Argument, words: Array, active: Array | None) -> None:
    if not isinstance(item, Registers):
        raise InternalError(f"an instruction writes registers; got {item!r}; report this")
    array = machine.registers[item.buffer]
    first = machine.evaluate(item.index)
    new = np.ascontiguousarray(words).view(array.values.dtype).reshape(*machine.shape, item.count)
    place = np.s_[..., first : first + item.count]
    if active is None:
        array.values[place] = new
        array.known[place] = True
        return
    taken = active.reshape(machine.shape)[..., None]
    array.values[place] = np.where(taken, new, array.values[place])
    array.known[place] |= taken


class MachineMemory:
    """The machine's memories behind the byte interface of `target.memory.Memory`; accesses are checked and logged there."""

    def __init__(self, machine: Machine, row: Instruction) -> None:
        self._machine = machine
        self._row = row
        self._buffers: list[Buffer] = []

    def address(self, item: Address) -> int:
        """A made-up byte address at which the buffer begins (small enough for the operand's word)."""
        if item.buffer not in self._buffers:
            self._buffers.append(item.buffer)
        return self._base(self._buffers.index(item.buffer), item.buffer)

    def number_bytes(self, buffer: Buffer) -> int:
        """Bytes of one number."""
        return 8 if buffer.dtype is None else buffer.dtype.nbytes

    def _base(self, place: int, buffer: Buffer) -> int:
        return 0 if buffer.scope is Scope.SHARED else (place + 1) * _SPACE_STEP

    def load(self, space: Space, addresses: Array, nbytes: int, active: Array | None = None) -> Array:
        """See `target.memory.Memory`."""
        return self._access(space, addresses, nbytes, active, None)

    def store(self, space: Space, addresses: Array, data: Array, active: Array | None = None) -> None:
        """See `target.memory.Memory`."""
        self._access(space, addresses, data.shape[-1], active, data)

    def update(
        self,
        space: Space,
        addresses: Array,
        operand: Array,
        combine: Callable[[Array, Array], Array],
        active: Array | None = None,
    ) -> Array:
        """See `target.memory.Memory`."""
        raise NotYetSupported(f"the interpreter has no indivisible update yet; {self._row.name} needs one")

    def _access(self, space: Space, addresses: Array, nbytes: int, active: Any, data: Array | None) -> Array:
        machine = self._machine
        buffer = next(own for own in self._buffers if own.scope is _SCOPES[space])
        width = self.number_bytes(buffer)
        base = self._base(self._buffers.index(buffer), buffer)
        lanes, count = addresses.shape[-1], nbytes // width
        per_thread = np.zeros((*machine.shape, 1), np.int64).reshape(*addresses.shape[:-1], -1)
        taken = np.zeros(per_thread.shape, np.bool_)
        per_thread[..., :lanes] = (addresses - base) // width
        if active is None:
            active = True if machine.active is None else machine.active.reshape(per_thread.shape)[..., :lanes]
        taken[..., :lanes] = active
        indices = per_thread.reshape(*machine.shape, 1) + np.arange(count)
        flags = taken.reshape(machine.shape)
        if data is None:
            values = machine.read_bytes(buffer, indices, flags)
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(*per_thread.shape, nbytes)
            return raw[..., :lanes, :]
        whole = np.zeros((*per_thread.shape, nbytes), np.uint8)
        whole[..., :lanes, :] = data
        dtype = cast(Any, buffer.dtype).numpy
        values = whole.reshape(*machine.shape, nbytes).view(dtype)
        machine.write_bytes(buffer, indices, flags, values)
        return whole[..., :lanes, :]
