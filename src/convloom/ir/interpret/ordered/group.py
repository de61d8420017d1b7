"""One group of threads of an ordered launch (a warp, or a warpgroup that multiplies together): state and accesses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convloom.ir.interpret.access import report_lanes
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind, Place
from convloom.ir.interpret.instructions import check_whole_groups, grouped, operand_value, store
from convloom.ir.interpret.memory import Array, Bools, SharedMemory
from convloom.ir.interpret.order import Use
from convloom.ir.interpret.ordered.accesses import Actors, Toucher
from convloom.ir.interpret.ordered.block import Block, Clock
from convloom.ir.interpret.ordered.row_memory import RowMemory
from convloom.ir.interpret.ordered.world import Flight, World, item_bytes
from convloom.ir.ops import Address, Buffer, Descriptor, Instruct, Registers, Scope
from convloom.target.instruction import Completion, Direction, Instruction

KINDS = {Completion.COPY_GROUP: "copy", Completion.BULK_GROUP: "bulk", Completion.MULTIPLY_GROUP: "multiply"}
"""Kinds of groups of asynchronous operations."""


@dataclass(eq=False)
class Group:
    """The accesses of `order.Order`. `committed`: groups of asynchronous operations by kind, per thread."""

    world: World
    block: Block
    chunk: Chunk
    toucher: Toucher
    committed: dict[str, Array] = field(default_factory=dict[str, Array])
    issued: dict[tuple[str, int], tuple[int, Place]] = field(default_factory=dict[tuple[str, int], tuple[int, Place]])
    """By (kind, thread): the latest group with an operation in it, and where that is."""
    copy_epochs: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Per thread: the number of its present copies, which a commit and an arrival behind them raise."""
    commits: list[Array] = field(default_factory=list[Array])
    """By number of commits, per thread: the number of the copies in the last one."""
    touched: dict[str, Bools] = field(default_factory=dict[str, Bools])  # registers since the last wgmma.fence
    multiplying: dict[str, Array] = field(default_factory=dict[str, Array])  # group whose multiply has the register
    in_row: bool = False
    cluster_turn: int = 0

    def __post_init__(self) -> None:
        for kind in KINDS.values():
            self.committed[kind] = np.zeros(len(self.chunk.group), np.int64)
        self.copy_epochs = np.ones(len(self.chunk.group), np.int64)

    # --- memory -----------------------------------------------------------------------------------------------------

    def shared_memory(self, buffer: Buffer) -> SharedMemory:
        """See `Order`."""
        first, size = self.world.offsets[buffer.name], item_bytes(buffer)
        kind = np.dtype(np.int64) if buffer.dtype is None else buffer.dtype.numpy
        part = slice(first, first + buffer.size * size)
        memory = SharedMemory(self.block.bytes[part].view(kind)[:, None])
        memory.knowledge.complete = self.block.known[part][::size]
        return memory

    def note_shared(self, buffer: Buffer, places: Array, taken: Bools | None, use: Use) -> None:
        """See `Order`."""
        first, size = self.world.offsets[buffer.name], item_bytes(buffer)
        pieces = self.block.pieces((first + places * size).reshape(-1), size)
        self._note(self.block.shadow, pieces, places, places, taken, use, f"shared {buffer.name}")

    def note_global(self, buffer: Buffer, places: Array, indices: Array, taken: Bools | None, use: Use) -> None:
        """See `Order`."""
        shadow = self.world.shadows.get(buffer.name)
        if shadow is not None:
            self._note(shadow, places.reshape(-1, 1), places, indices, taken, use, f"global {buffer.name}")

    def _note(
        self, shadow: Any, pieces: Array, places: Array, indices: Array, taken: Bools | None, use: Use, subject: str
    ) -> None:
        """Accesses of a statement: `pieces` (n, m) of `places` (lanes, threads or 1, 1)."""
        if not self.world.launch.options.races:
            return
        shape = (places.shape[0], *self.chunk.shape)
        spread = np.broadcast_to(pieces.reshape(*places.shape, -1), (*shape, pieces.shape[1]))
        threads = np.broadcast_to(self.chunk.threads, shape)
        kept = np.ones(shape, np.bool_) if taken is None else np.broadcast_to(taken, shape)
        verdict, _, _ = self.toucher.judge(shadow, spread[kept], threads[kept], Actors(), use)
        if verdict.unordered.any():
            wrong = np.zeros(shape, np.bool_)
            wrong[kept] = verdict.unordered.reshape(-1, pieces.shape[1]).any(axis=1)
            named = f"{subject} (with {self.toucher.other(verdict)})"
            report_lanes(self.chunk, FindingKind.RACE, named, wrong, taken, indices)

    def touch_registers(self, buffer: Buffer, index: Any, lanes: int) -> None:
        """See `Order`."""
        if self.in_row or not self.world.launch.options.races:
            return
        held = self.multiplying.get(buffer.name)
        touched = self.touched.setdefault(buffer.name, np.ones(buffer.size, np.bool_))
        if not isinstance(index, int):
            index, lanes = 0, buffer.size
        touched[index : index + lanes] = True
        if held is not None and held[index : index + lanes].any():
            self.report_all(FindingKind.RACE, f"register {buffer.name} (with a multiply in flight)", index)

    def report_all(self, kind: FindingKind, subject: str, index: int) -> None:
        """Records a fault of all active threads."""
        self.chunk.report(kind, subject, np.True_, index)

    # --- instructions ---------------------

    def active_threads(self) -> Array:
        """Numbers, in their block, of the threads that run the present statement."""
        active = np.broadcast_to(True if self.chunk.active is None else self.chunk.active, self.chunk.shape)
        return np.flatnonzero(active[:, 0]) + self.chunk.group.start

    def whole(self, row: Instruction, threads: Array, lanes: int) -> None:
        """Warps take part as a whole."""
        if threads.size % lanes:
            self.report_all(FindingKind.PARTIAL_GROUP, row.name, 0)

    def memory(self, statement: Instruct, actors: Actors, flight: Flight | None = None) -> RowMemory:
        """Memory as one execution of the row sees it."""
        row, start = statement.row, self.chunk.group.start

        def threads_of(shape: tuple[int, ...]) -> Array:
            if len(shape) == 2:
                return start + np.arange(shape[1])
            return start + np.arange(shape[1])[:, None] * row.lanes + np.minimum(np.arange(shape[2]), row.lanes - 1)

        allowed = [
            range(self.world.offsets[item.buffer.name], self.world.offsets[item.buffer.name] + bytes_of(item.buffer))
            for _, item in statement.arguments
            if isinstance(item, Address | Descriptor) and item.buffer.scope is Scope.SHARED
        ]
        remote = any(
            isinstance(item, Registers) and row.operand(name).space is not None for name, item in statement.arguments
        )
        return RowMemory(
            self.world, self.block, row, self.toucher, threads_of, actors, [] if remote else allowed, flight
        )

    def values(self, statement: Instruct, memory: RowMemory) -> dict[str, Any]:
        """The operands that are read."""
        row = statement.row
        return {
            name: operand_value(self.chunk, memory, row, name, item)
            for name, item in statement.arguments
            if row.operand(name).direction is not Direction.OUT
        }

    def active(self, row: Instruction) -> Bools | None:
        """Which lanes take part, in the row's groups (None: all)."""
        if self.chunk.active is None:
            return None
        flags = grouped(self.chunk, row, np.broadcast_to(self.chunk.active, self.chunk.shape)[None])[..., 0]
        if row.lanes > 1:
            check_whole_groups(self.chunk, row, flags)
        return flags

    def run(self, statement: Instruct, memory: RowMemory) -> None:
        """Executes the row on a memory."""
        results = statement.row.execute(self.values(statement, memory), memory, self.active(statement.row))
        arguments = dict(statement.arguments)
        for name, words in results.items():
            store(self.chunk, arguments[name], words)

    def commit_copies(self, threads: Array) -> None:
        """The threads' copies since the last commit are a group."""
        local = threads - self.chunk.group.start
        self.committed["copy"][local] += 1
        for place, count in zip(local, self.committed["copy"][local], strict=True):
            while len(self.commits) < count:
                self.commits.append(np.zeros(len(self.chunk.group), np.int64))
            self.commits[count - 1][place] = self.copy_epochs[place]
        self.copy_epochs[local] += 1

    def copies_of(self, thread: int) -> Clock:
        """The clock of somebody who has seen all copies that a thread issued so far."""
        column = self.world.column("a copy in flight", self.block.number, thread)
        clock = np.zeros((2, column + 1), np.int32)
        clock[0, column] = self.copy_epochs[thread - self.chunk.group.start]
        return clock

    def label(self, kind: str, thread: int) -> int:
        """The number of the open group of a thread."""
        return int(self.committed[kind][thread - self.chunk.group.start]) + 1

    # --- the end --------------

    def finish(self) -> None:
        """The threads end: nothing that they issued may still use shared memory or registers."""
        for (kind, thread), (label, place) in self.issued.items():
            name = {"copy": "a copy in flight", "bulk": "a bulk copy that reads", "multiply": "a multiply in flight"}[
                kind
            ]
            column = self.world.column(name, self.block.number, thread)
            if self.block.clocks[0, thread, column] < label:
                self.world.report(FindingKind.UNFINISHED, place, name, self.block.number, thread)


def bytes_of(buffer: Buffer) -> int:
    """Bytes of a whole buffer."""
    return buffer.size * item_bytes(buffer)
