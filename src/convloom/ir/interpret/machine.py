"""The machine: runs a kernel's statements for chunks of blocks, all their threads at once.

Threads advance in lock-step from statement to statement. That loses no fault: between two barriers the accesses of different
threads are compared as sets, whatever order they ran in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import InternalError
from convloom.expr import Expr
from convloom.ir.interpret.findings import FindingKind, Findings
from convloom.ir.interpret.index_code import evaluate_index
from convloom.ir.interpret.instructions import execute
from convloom.ir.interpret.memory import (
    Bools,
    GlobalMemory,
    Ints,
    LoggedAccess,
    RegisterArray,
    SharedMemory,
    conflicting_pairs,
)
from convloom.ir.interpret.numbers import converted, multiply_add
from convloom.ir.ops import (
    Allocate,
    Barrier,
    Binary,
    BinaryOp,
    Buffer,
    Comment,
    Constant,
    Convert,
    For,
    If,
    Instruct,
    Kernel,
    Let,
    LoopKind,
    MultiplyAdd,
    Parameter,
    Read,
    Scope,
    Splat,
    Statement,
    Value,
    Write,
)
from convloom.ir.text import statement_text

Array = NDArray[Any]
_INT32 = 2**31


@dataclass(frozen=True, slots=True)
class Options:
    """What is checked, and how many threads run at once (whole blocks)."""

    races: bool = True
    known: bool = True  # reads of memory that nobody wrote
    overflow: bool = True
    chunk_threads: int = 1 << 14


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an interpretation found, and how many blocks ran."""

    findings: Findings
    blocks: int


def interpret(
    kernel: Kernel,
    memories: Mapping[str, GlobalMemory],
    arguments: Mapping[str, int],
    floats: Mapping[str, float],
    blocks: int,
    options: Options | None = None,
) -> Outcome:
    """Runs a whole launch on the memories, which it changes; index arguments and float arguments by name.

    The kernel must not be serialised for a CPU. Raises nothing for faults of the kernel: they are findings.
    """
    options = options or Options()
    findings = Findings()
    for memory in memories.values():
        memory.prepare()
    step = max(1, options.chunk_threads // kernel.threads)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            _Chunk(
                kernel, memories, arguments, floats, range(first, min(first + step, blocks)), options, findings
            ).run()
    return Outcome(findings, blocks)


@dataclass(slots=True)
class _Chunk:
    """Some blocks of a launch. Arrays have the shape (blocks, threads), lanes as a third axis; uniform values are ints."""

    kernel: Kernel
    memories: Mapping[str, GlobalMemory]
    arguments: Mapping[str, int]
    floats: Mapping[str, float]
    blocks: range
    options: Options
    findings: Findings
    names: dict[str, Any] = field(init=False)
    active: Bools | None = None  # None: all threads
    shared: dict[Buffer, SharedMemory] = field(default_factory=dict[Buffer, SharedMemory])
    registers: dict[Buffer, RegisterArray] = field(default_factory=dict[Buffer, RegisterArray])
    place: tuple[str, str] = ("", "")
    epoch: Ints = field(init=False)
    thread_grid: Ints = field(init=False)
    block_grid: Ints = field(init=False)

    def __post_init__(self) -> None:
        count, threads = len(self.blocks), self.kernel.threads
        self.thread_grid = np.broadcast_to(np.arange(threads, dtype=np.int64)[None, :], (count, threads))
        self.block_grid = np.broadcast_to(np.arange(count, dtype=np.int64)[:, None], (count, threads))
        block_ids = np.arange(self.blocks.start, self.blocks.stop, dtype=np.int64)[:, None]
        self.names = {**self.arguments, "tid": self.thread_grid[:1], "bid": block_ids}
        self.epoch = np.zeros(count, np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """(blocks, threads)."""
        return (len(self.blocks), self.kernel.threads)

    def evaluate(self, expression: Expr) -> Any:
        """An index expression of the current statement."""
        return self._index(expression)

    def read_bytes(self, buffer: Buffer, indices: Ints, taken: Bools | None) -> Array:
        """Numbers that an instruction reads, checked and logged like any read."""
        read = self._read_shared if buffer.scope is Scope.SHARED else self._read_global
        return read(buffer, indices, taken)

    def write_bytes(self, buffer: Buffer, indices: Ints, taken: Bools | None, values: Array) -> None:
        """Numbers that an instruction writes, checked and logged like any write."""
        write = self._write_shared if buffer.scope is Scope.SHARED else self._write_global
        write(buffer, indices, taken, values)

    def run(self) -> None:
        """All statements, then the races of the last interval."""
        self._body(self.kernel.body, "body")
        for memory in self.shared.values():
            self._close_interval(memory, None)

    # --- statements -------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Statement, ...], path: str) -> None:
        for number, statement in enumerate(body):
            self._statement(statement, f"{path}.{number}")

    def _statement(self, statement: Statement, path: str) -> None:
        match statement:
            case Comment():
                return
            case Allocate():
                self._allocate(statement.buffer)
            case For():
                self._for(statement, path)
            case If():
                self._enter(path, statement)
                self._masked(self._index(statement.condition) != 0, statement.body, path)
            case Let():
                self._enter(path, statement)
                value = statement.value
                self.names[statement.variable.name] = (
                    self._index(value) if isinstance(value, Expr) else self._read(value)
                )
            case Write():
                self._enter(path, statement)
                self._write(statement)
            case Instruct():
                self._enter(path, statement)
                execute(self, statement)
            case Barrier():
                self._enter(path, statement)
                self._barrier()

    def _enter(self, path: str, statement: Statement) -> None:
        self.place = (path, statement)  # type: ignore[assignment]  # text is made only when a finding needs it

    def _where(self) -> tuple[str, str]:
        path, statement = self.place
        return path, statement if isinstance(statement, str) else statement_text(statement)

    def _allocate(self, buffer: Buffer) -> None:
        dtype = np.dtype(np.int64) if buffer.dtype is None else buffer.dtype.numpy
        if buffer.scope is Scope.SHARED:
            shape: tuple[int, ...] = (len(self.blocks), buffer.size)
            self.shared[buffer] = SharedMemory(np.zeros(shape, dtype), np.zeros(shape, np.bool_))
            return
        shape = (len(self.blocks), self.kernel.threads, buffer.size)
        self.registers[buffer] = RegisterArray(np.zeros(shape, dtype), np.zeros(shape, np.bool_))

    def _for(self, loop: For, path: str) -> None:
        if loop.kind is LoopKind.WORK_ITEMS:
            raise InternalError(
                "the interpreter runs kernels before they are serialised for a CPU; got a loop over work-items"
            )
        self._enter(path, loop)
        extent = self._index(loop.extent)
        most = int(np.max(extent))
        uniform = isinstance(extent, int) or bool(np.min(extent) == most)
        for iteration in range(most):
            self.names[loop.variable.name] = iteration
            if uniform:
                self._body(loop.body, path)
            else:
                self._masked(iteration < extent, loop.body, path)

    def _masked(self, condition: Any, body: tuple[Statement, ...], path: str) -> None:
        """Runs the body for the threads where the condition holds."""
        if isinstance(condition, bool | np.bool_):
            if condition:
                self._body(body, path)
            return
        before = self.active
        wanted = np.broadcast_to(condition, self.thread_grid.shape)
        self.active = wanted if before is None else before & wanted
        if self.active.any():
            self._body(body, path)
        self.active = before

    def _barrier(self) -> None:
        reached: Bools | None = None
        if self.active is not None:
            reached = self.active.any(axis=1)
            partial = reached & ~self.active.all(axis=1)
            if partial.any():
                missing = ~self.active & partial[:, None]
                self._report(FindingKind.DIVERGENT_BARRIER, "the block", missing, np.zeros_like(self.thread_grid))
        for memory in self.shared.values():
            self._close_interval(memory, reached)
        self.epoch[slice(None) if reached is None else reached] += 1

    def _close_interval(self, memory: SharedMemory, reached: Bools | None) -> None:
        """Finds races since the last barrier, for the blocks that reach this one."""
        reads, writes = memory.reads, memory.writes
        if reached is not None and not reached.all():
            memory.reads = [access.of_blocks(~reached) for access in reads]
            memory.writes = [access.of_blocks(~reached) for access in writes]
            reads = [access.of_blocks(reached) for access in reads]
            writes = [access.of_blocks(reached) for access in writes]
        else:
            memory.reads, memory.writes = [], []
        name = next(buffer.name for buffer, own in self.shared.items() if own is memory)
        for access, conflict in conflicting_pairs(memory.values.size, reads, writes):
            path, statement = access.place
            text = statement if isinstance(statement, str) else statement_text(statement)
            self.findings.add(
                FindingKind.RACE,
                (path, text),
                f"shared {name}",
                access.blocks[conflict] + self.blocks.start,
                access.threads[conflict],
                access.addresses[conflict] % memory.size,
            )

    # --- index math -------------------------------------------------------------------------------------------------

    def _index(self, expression: Expr) -> Any:
        watched = self.options.overflow and self.kernel.index_bits == 32
        return evaluate_index(expression, self.names, self._watch if watched else None)

    def _watch(self, value: Any) -> Any:
        if isinstance(value, int):
            outside = not -_INT32 <= value < _INT32
        else:
            outside = bool(value.size) and (int(value.max()) >= _INT32 or int(value.min()) < -_INT32)
        if outside:
            grid = np.broadcast_to(value, self.thread_grid.shape)
            self._report(FindingKind.OVERFLOW, "index math", (grid >= _INT32) | (grid < -_INT32), grid)
        return value

    def _report(self, kind: FindingKind, subject: str, where: Bools, indices: Ints) -> None:
        """Records the threads (of shape (blocks, threads)) that are active and affected."""
        affected = where if self.active is None else where & self.active
        if not affected.any():
            return
        blocks, threads = np.nonzero(affected)
        self.findings.add(kind, self._where(), subject, blocks + self.blocks.start, threads, indices[affected])

    # --- values -----------------------------------------------------------------------------------------------------

    def _value(self, value: Value) -> Any:
        match value:
            case Constant():
                shape = (1, 1) if value.lanes == 1 else (1, 1, value.lanes)
                return np.full(shape, value.value, value.dtype.numpy)
            case Parameter():
                return np.full((1, 1), self.floats[value.name], value.dtype.numpy)
            case Read():
                return self._read(value)
            case Convert():
                return converted(self._value(value.value), value.dtype)
            case Splat():
                return self._value(value.value)[..., None]
            case Binary():
                left, right = self._value(value.left), self._value(value.right)
                return left + right if value.op is BinaryOp.ADD else left * right
            case MultiplyAdd():
                return multiply_add(*(self._value(part) for part in (value.left, value.right, value.addend)))

    def _read(self, read: Read) -> Any:
        index = self._index(read.index)
        buffer = read.buffer
        if buffer.scope is Scope.CONSTANT:
            return np.asarray(buffer.values, np.int64)[index]
        if buffer.scope is Scope.REGISTER:
            return self._read_register(buffer, index, read.lanes)
        mask = None if read.mask is None else self._index(read.mask) != 0
        if isinstance(mask, bool | np.bool_) and mask:
            mask = None
        indices, taken = self._addresses(index, read.lanes, mask)
        if buffer.scope is Scope.SHARED:
            values = self._read_shared(buffer, indices, taken)
        else:
            values = self._read_global(buffer, indices, taken)
        return values if read.lanes > 1 else values[..., 0]

    def _addresses(self, index: Any, lanes: int, mask: Any) -> tuple[Ints, Bools | None]:
        """(indices of every thread and lane, which of the threads take part; None: all)."""
        grid = np.broadcast_to(np.asarray(index, np.int64), self.thread_grid.shape)
        taken = self.active
        if mask is not None:
            wanted = np.broadcast_to(mask, self.thread_grid.shape)
            taken = wanted if taken is None else taken & wanted
        return grid[..., None] + np.arange(lanes, dtype=np.int64), taken

    def _inside(self, name: str, indices: Ints, taken: Bools | None, low: int, high: int) -> Ints:
        """The indices moved into [low, high); those of taking threads that were outside are findings."""
        outside = (indices < low) | (indices >= high)
        if taken is not None:
            outside &= taken[..., None]
        if outside.any():
            first = indices[..., 0] if indices.shape[-1] == 1 else np.where(outside, indices, -_INT32).max(axis=-1)
            self._report_at(FindingKind.OUT_OF_BOUNDS, name, outside.any(axis=-1), first)
            return np.clip(indices, low, max(high - 1, low))
        return indices if taken is None else np.where(taken[..., None], indices, low)

    def _report_at(self, kind: FindingKind, subject: str, where: Bools, indices: Ints) -> None:
        blocks, threads = np.nonzero(where)
        self.findings.add(kind, self._where(), subject, blocks + self.blocks.start, threads, indices[where])

    def _read_register(self, buffer: Buffer, index: Any, lanes: int) -> Any:
        array = self.registers[buffer]
        if isinstance(index, int):
            values, known = array.values[..., index : index + lanes], array.known[..., index : index + lanes]
        else:
            indices, _ = self._addresses(index, lanes, None)
            values = np.take_along_axis(array.values, indices, axis=-1)
            known = np.take_along_axis(array.known, indices, axis=-1)
        if self.options.known and not known.all():
            grid = np.broadcast_to(np.asarray(index, np.int64), self.thread_grid.shape)
            self._report(FindingKind.UNINITIALISED, f"register {buffer.name}", ~known.all(axis=-1), grid)
        return values if lanes > 1 else values[..., 0]

    def _read_shared(self, buffer: Buffer, indices: Ints, taken: Bools | None) -> Array:
        memory = self.shared[buffer]
        indices = self._inside(f"shared {buffer.name}", indices, taken, 0, memory.size)
        rows = self.block_grid[..., None]
        if self.options.known:
            unknown = ~memory.known[rows, indices]
            self._report_unknown(f"shared {buffer.name}", unknown, indices, taken)
        if self.options.races:
            memory.reads.append(self._logged(memory, indices, taken))
        values = memory.values[rows, indices]
        return values if taken is None else np.where(taken[..., None], values, np.zeros((), values.dtype))

    def _report_unknown(self, subject: str, unknown: Bools, indices: Ints, taken: Bools | None) -> None:
        if not unknown.any():
            return
        affected = unknown if taken is None else unknown & taken[..., None]
        if affected.any():
            first = np.where(affected, indices, -1).max(axis=-1)
            self._report_at(FindingKind.UNINITIALISED, subject, affected.any(axis=-1), first)

    def _logged(self, memory: SharedMemory, indices: Ints, taken: Bools | None) -> LoggedAccess:
        addresses = indices + self.block_grid[..., None] * memory.size
        threads = np.broadcast_to(self.thread_grid[..., None], indices.shape)
        blocks = np.broadcast_to(self.block_grid[..., None], indices.shape)
        keep = slice(None) if taken is None else np.broadcast_to(taken[..., None], indices.shape).ravel()
        return LoggedAccess(addresses.ravel()[keep], threads.ravel()[keep], blocks.ravel()[keep], self.place)

    def _read_global(self, buffer: Buffer, indices: Ints, taken: Bools | None) -> Array:
        memory = self.memories[buffer.name]
        high = memory.values.size - memory.origin
        places = self._inside(f"global {buffer.name}", indices, taken, -memory.origin, high) + memory.origin
        if self.options.known and memory.known is not None:
            self._report_unknown(f"global {buffer.name}", ~memory.known[places], indices, taken)
        if self.options.races and buffer.written:
            self._check_writers(buffer, memory, places, indices, taken)
        if not memory.values.size:
            return np.zeros(indices.shape, memory.values.dtype)
        values = memory.values[places]
        return values if taken is None else np.where(taken[..., None], values, np.zeros((), values.dtype))

    def _check_writers(
        self, buffer: Buffer, memory: GlobalMemory, places: Ints, indices: Ints, taken: Bools | None
    ) -> None:
        """Another thread wrote the element, and no barrier of a common block lies between."""
        assert memory.writer is not None and memory.writer_epoch is not None
        threads = self.kernel.threads
        mine = (self.blocks.start + self.block_grid) * threads + self.thread_grid
        writer = memory.writer[places]
        foreign = (writer >= 0) & (writer != mine[..., None])
        same_block = writer // threads == (self.blocks.start + self.block_grid)[..., None]
        ordered = same_block & (memory.writer_epoch[places] < self.epoch[:, None, None])
        conflict = foreign & ~ordered
        if taken is not None:
            conflict &= taken[..., None]
        if conflict.any():
            first = np.where(conflict, indices, -_INT32).max(axis=-1)
            self._report_at(FindingKind.RACE, f"global {buffer.name}", conflict.any(axis=-1), first)

    # --- stores -----------------------------------------------------------------------------------------------------

    def _write(self, statement: Write) -> None:
        buffer = statement.buffer
        value = statement.value
        numbers = self._index(value) if isinstance(value, Expr) else self._value(value)
        index = self._index(statement.index)
        mask = None if statement.mask is None else self._index(statement.mask) != 0
        values = np.asarray(numbers)
        if values.ndim < 3:
            values = values.reshape(*((1, 1, *values.shape)[-2:] if values.ndim else (1, 1)), 1)
        lanes = values.shape[-1]
        if buffer.scope is Scope.REGISTER:
            self._write_register(buffer, index, values, mask)
            return
        indices, taken = self._addresses(index, lanes, mask)
        values = np.broadcast_to(values, indices.shape)
        if buffer.scope is Scope.SHARED:
            self._write_shared(buffer, indices, taken, values)
        else:
            self._write_global(buffer, indices, taken, values)

    def _write_register(self, buffer: Buffer, index: Any, values: Array, mask: Any) -> None:
        array = self.registers[buffer]
        lanes = values.shape[-1]
        if isinstance(index, int) and self.active is None and mask is None:
            array.values[..., index : index + lanes] = values
            array.known[..., index : index + lanes] = True
            return
        indices, taken = self._addresses(index, lanes, mask)
        rows, columns = self.block_grid[..., None], self.thread_grid[..., None]
        if taken is None:
            array.values[rows, columns, indices] = values
            array.known[rows, columns, indices] = True
            return
        keep = np.broadcast_to(taken[..., None], indices.shape)
        chosen = tuple(np.broadcast_to(part, indices.shape)[keep] for part in (rows, columns, indices))
        array.values[chosen] = np.broadcast_to(values, indices.shape)[keep]
        array.known[chosen] = True

    def _write_shared(self, buffer: Buffer, indices: Ints, taken: Bools | None, values: Array) -> None:
        memory = self.shared[buffer]
        indices = self._inside(f"shared {buffer.name}", indices, taken, 0, memory.size)
        access = self._logged(memory, indices, taken)
        if self.options.races:
            memory.writes.append(access)
        keep = slice(None) if taken is None else np.broadcast_to(taken[..., None], indices.shape).ravel()
        memory.values.reshape(-1)[access.addresses] = values.ravel()[keep]
        memory.known.reshape(-1)[access.addresses] = True

    def _write_global(self, buffer: Buffer, indices: Ints, taken: Bools | None, values: Array) -> None:
        memory = self.memories[buffer.name]
        high = memory.values.size - memory.origin
        places = self._inside(f"global {buffer.name}", indices, taken, -memory.origin, high) + memory.origin
        if self.options.races:
            self._check_writers(buffer, memory, places, indices, taken)
        keep = np.ones(places.shape, np.bool_) if taken is None else np.broadcast_to(taken[..., None], places.shape)
        chosen = places[keep]
        mine = np.broadcast_to(
            ((self.blocks.start + self.block_grid) * self.kernel.threads + self.thread_grid)[..., None], places.shape
        )[keep]
        assert memory.writer is not None and memory.writer_epoch is not None
        memory.values[chosen] = values[keep]
        memory.writer[chosen] = mine
        memory.writer_epoch[chosen] = np.broadcast_to(self.epoch[:, None, None], places.shape)[keep]
        if memory.known is not None:
            memory.known[chosen] = True
        if self.options.races:
            lost = memory.writer[chosen] != mine
            if lost.any():
                blocks, threads = mine[lost] // self.kernel.threads, mine[lost] % self.kernel.threads
                subject = f"global {buffer.name}"
                self.findings.add(
                    FindingKind.RACE, self._where(), subject, blocks, threads, chosen[lost] - memory.origin
                )
