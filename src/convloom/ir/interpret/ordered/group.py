"""One group of threads of an ordered launch: a warp, or a warpgroup where matrix instructions need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convloom.errors import ConvloomError, IllegalProblem
from convloom.expr import Expr
from convloom.ir.interpret.access import report_lanes
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind, Place
from convloom.ir.interpret.instructions import check_whole_groups, grouped, operand_value, store
from convloom.ir.interpret.memory import Array, Bools, SharedMemory
from convloom.ir.interpret.order import Pause, Use
from convloom.ir.interpret.ordered.accesses import Actors, Toucher
from convloom.ir.interpret.ordered.block import Block, Meeting
from convloom.ir.interpret.ordered.row_memory import RowMemory
from convloom.ir.interpret.ordered.world import Flight, World, item_bytes
from convloom.ir.ops import Address, Argument, Buffer, Descriptor, Instruct, Registers, Scope
from convloom.target.instruction import Completion, Direction, Execution, Family, Instruction, Ordering
from convloom.target.transaction_barrier import decode

_WHOLE_BLOCK = -1  # the number of the block's own barrier
_KINDS = {Completion.COPY_GROUP: "copy", Completion.BULK_GROUP: "bulk", Completion.MULTIPLY_GROUP: "multiply"}


@dataclass(eq=False)
class Group:
    """Implements `order.Order`. `committed`: groups of asynchronous operations by kind, per thread."""

    world: World
    block: Block
    chunk: Chunk
    toucher: Toucher
    committed: dict[str, Array] = field(default_factory=dict[str, Array])
    issued: dict[tuple[str, int], tuple[int, Place]] = field(default_factory=dict[tuple[str, int], tuple[int, Place]])
    """By (kind, thread): the latest group with an operation in it, and where that is."""
    touched: dict[str, Bools] = field(default_factory=dict[str, Bools])  # registers since the last wgmma.fence
    multiplying: dict[str, Array] = field(default_factory=dict[str, Array])  # group whose multiply has the register
    in_row: bool = False
    cluster_turn: int = 0

    def __post_init__(self) -> None:
        for kind in _KINDS.values():
            self.committed[kind] = np.zeros(len(self.chunk.group), np.int64)

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
            self._report_all(FindingKind.RACE, f"register {buffer.name} (with a multiply in flight)", index)

    def _report_all(self, kind: FindingKind, subject: str, index: int) -> None:
        self.chunk.report(kind, subject, np.True_, index)

    # --- instructions -----------------------------------------------------------------------------------------------

    def active_threads(self) -> Array:
        """Numbers, in their block, of the threads that run the present statement."""
        active = np.broadcast_to(True if self.chunk.active is None else self.chunk.active, self.chunk.shape)
        return np.flatnonzero(active[:, 0]) + self.chunk.group.start

    def execute(self, statement: Instruct) -> Iterator[Pause]:
        """See `Order`."""
        row = statement.row
        threads = self.active_threads()
        if not threads.size:
            return
        if self.world.launch.counts is not None:
            self.world.launch.counts.row(row.name, row.shape, max(1, threads.size // row.lanes))
        self.in_row = True
        try:
            step = self._prepared(statement, threads)
        except IllegalProblem:
            self._report_all(FindingKind.BROKEN_RULE, row.name, 0)
            step = None
        except ConvloomError as error:
            self._report_all(FindingKind.BROKEN_RULE, f"{row.name}: {error}", 0)
            step = None
        finally:
            self.in_row = False
        if step is not None:
            yield from step
        elif row.ordering is not Ordering.NONE or row.completion is not Completion.AT_ONCE:
            yield Pause(lambda: True, lambda: "nothing")

    def _prepared(self, statement: Instruct, threads: Array) -> Iterator[Pause] | None:
        """Executes a row; what is left where threads wait."""
        row = statement.row
        if row.family is Family.REGISTER_BUDGET:
            self._whole(row, threads, 32)
            return None
        if row.ordering is Ordering.AWAIT:
            return self._await(statement, threads)
        if row.ordering in _HANDLERS:
            arguments = {name: self.chunk.index(item) for name, item in statement.arguments}  # type: ignore[arg-type]
            self._whole(row, threads, min(row.lanes, 32))
            return _HANDLERS[row.ordering](self, row, threads, arguments)
        if row.completion in (Completion.BULK_GROUP, Completion.BARRIER_BYTES):
            for thread in threads:
                self._issue_single(statement, int(thread))
        elif row.completion is Completion.MULTIPLY_GROUP:
            self._multiply(statement, threads)
        elif row.completion is Completion.COPY_GROUP:
            self._copy(statement)
        else:
            self._plain(statement)
        return None

    def _whole(self, row: Instruction, threads: Array, lanes: int) -> None:
        """Warps take part as a whole."""
        if threads.size % lanes:
            self._report_all(FindingKind.PARTIAL_GROUP, row.name, 0)

    def _memory(self, statement: Instruct, actors: Actors, flight: Flight | None = None) -> RowMemory:
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
        remote = any(isinstance(item, Registers) and row.operand(name).space is not None for name, item in statement.arguments)
        return RowMemory(
            self.world, self.block, row, self.toucher, threads_of, actors, [] if remote else allowed, flight
        )

    def _values(self, statement: Instruct, memory: RowMemory) -> dict[str, Any]:
        row = statement.row
        return {
            name: operand_value(self.chunk, memory, row, name, item)
            for name, item in statement.arguments
            if row.operand(name).direction is not Direction.OUT
        }

    def _active(self, row: Instruction) -> Bools | None:
        if self.chunk.active is None:
            return None
        flags = grouped(self.chunk, row, np.broadcast_to(self.chunk.active, self.chunk.shape)[None])[..., 0]
        if row.lanes > 1:
            check_whole_groups(self.chunk, row, flags)
        return flags

    def _run(self, statement: Instruct, memory: RowMemory) -> None:
        results = statement.row.execute(self._values(statement, memory), memory, self._active(statement.row))
        arguments = dict(statement.arguments)
        for name, words in results.items():
            store(self.chunk, arguments[name], words)

    def _plain(self, statement: Instruct) -> None:
        self._run(statement, self._memory(statement, Actors()))
        if statement.row.name == "mbarrier.try_wait.parity":
            self._acquire_tested(statement)

    def _acquire_tested(self, statement: Instruct) -> None:
        memory = self._memory(statement, Actors())
        memory.silent = True
        values = self._values(statement, memory)
        passed = statement.row.semantics(Execution(values, memory, self._active(statement.row)))["d"][0, :, 0] != 0
        threads = self.active_threads()
        self._acquire_barriers(values, threads[passed[threads - self.chunk.group.start]])

    # --- asynchronous operations ------------------------------------------------------------------------------------

    def _label(self, kind: str, thread: int) -> int:
        """The number of the open group of a thread."""
        return int(self.committed[kind][thread - self.chunk.group.start]) + 1

    def _issue_single(self, statement: Instruct, thread: int) -> None:
        """A copy that one thread issues."""
        row, chunk = statement.row, self.chunk
        bulk = row.completion is Completion.BULK_GROUP
        label = self._label("bulk", thread)
        flight = Flight(("bulk", self.block.number, thread, label), chunk.place, self.block, thread, self.world.next_flying())
        column = self.world.column("a bulk copy", self.block.number, thread) if bulk else None
        actors = Actors(True, column, label) if bulk else Actors(True, self._unknown_column(), flight.flying)
        memory = self._memory(statement, actors, flight)
        memory.threads_of = lambda shape: np.full(shape, thread)
        lane = thread - chunk.group.start
        values = {
            name: value[:, lane : lane + 1] if isinstance(value, np.ndarray) else value
            for name, value in self._values(statement, memory).items()
        }
        if bulk:
            memory.read_actors = Actors(True, self.world.column("a bulk copy that reads", self.block.number, thread), label)
            self.issued["bulk", thread] = label, chunk.place
        row.execute(values, memory)
        self.world.start(flight)

    def _unknown_column(self) -> int:
        """Of reads of global memory by copies that count on barriers; whoever writes there conflicts."""
        return self.world.column("a copy from global memory", -1, 0)

    def _copy(self, statement: Instruct) -> None:
        """Copies of many threads, in the groups of each."""
        start, block = self.chunk.group.start, self.block
        threads = self.active_threads()
        columns, labels = np.zeros(block.threads, np.int64), np.zeros(block.threads, np.int64)
        for thread in map(int, threads):
            columns[thread] = self.world.column("a copy in flight", block.number, thread)
            labels[thread] = self._label("copy", thread)
            self.issued["copy", thread] = int(labels[thread]), self.chunk.place
        first = int(threads[0])
        key = ("copy", block.number, start, int(labels[first]))
        flight = Flight(key, self.chunk.place, block, first, self.world.next_flying())
        memory = self._memory(statement, Actors(False, columns, labels), flight)
        memory.read_actors = Actors()
        self._run(statement, memory)
        self.world.start(flight)

    def _multiply(self, statement: Instruct, threads: Array) -> None:
        """A multiply of a warpgroup: it reads shared memory, and has its registers, until it is waited for."""
        row = statement.row
        start = int(threads[0])
        label = self._label("multiply", start)
        column = self.world.column("a multiply in flight", self.block.number, self.chunk.group.start)
        memory = self._memory(statement, Actors(True, column, label, together=threads))
        self._check_registers(statement)
        self._ignore_old(dict(statement.arguments))
        self._run(statement, memory)
        self.issued["multiply", self.chunk.group.start] = label, self.chunk.place
        self._hold_registers(statement, label, row)

    def _ignore_old(self, arguments: dict[str, Argument]) -> None:
        """A multiply that does not accumulate reads registers of which it uses nothing."""
        keep, d = arguments["accumulate"], arguments["d"]
        if isinstance(keep, Expr) and isinstance(d, Registers) and not np.any(self.chunk.index(keep)):
            index = self.chunk.index(d.index)
            self.chunk.registers[d.buffer.name].knowledge.complete[index : index + d.count] = True

    def _check_registers(self, statement: Instruct) -> None:
        for name, item in statement.arguments:
            if not isinstance(item, Registers) or not self.world.launch.options.races:
                continue
            index = self.chunk.index(item.index)
            part = slice(index, index + item.count)
            touched = self.touched.get(item.buffer.name, np.ones(item.buffer.size, np.bool_))
            if touched[part].any():
                self._report_all(FindingKind.UNFENCED, f"register {item.buffer.name} of {name}", index)

    def _hold_registers(self, statement: Instruct, label: int, row: Instruction) -> None:
        for _, item in statement.arguments:
            if isinstance(item, Registers):
                held = self.multiplying.setdefault(item.buffer.name, np.zeros(item.buffer.size, np.int64))
                index = self.chunk.index(item.index)
                held[index : index + item.count] = label

    # --- waits ------------------------------------------------------------------------------------------------------

    def _await(self, statement: Instruct, threads: Array) -> Iterator[Pause]:
        row = statement.row
        memory = self._memory(statement, Actors())
        memory.silent = True
        values, active = self._values(statement, memory), self._active(row)
        local = threads - self.chunk.group.start
        if row.family is Family.BARRIER:
            for place, thread in zip(values["barrier"][0, local, 0], threads, strict=True):
                state = self.block.transactions.get(int(place))
                if state is None:
                    self.toucher.report(FindingKind.UNINITIALISED, "transaction barrier", np.array([thread]), np.array([place]))
                    return
                self.toucher.check_barrier(state, int(thread), asynchronous=False)
        seen = -1
        passed = False

        def ready() -> bool:
            nonlocal seen, passed
            if seen != self.world.version:
                seen = self.world.version
                passed = bool(row.execute(values, memory, active)["done"][0, local].all())
            return passed

        yield Pause(ready, lambda: self._awaited(values, local))
        if row.family is Family.BARRIER:
            self._acquire_barriers(values, threads)
        else:
            memory.silent = False
            row.execute(values, memory, active)

    def _awaited(self, values: dict[str, Any], local: Array) -> str:
        if "barrier" not in values:
            return f"the value {int(values['value'][0, local[0], 0])} in global memory"
        place, parity = int(values["barrier"][0, local[0], 0]), int(values["parity"][0, local[0], 0])
        word = decode(self.block.bytes[place : place + 8].view(np.uint64))
        return (
            f"the end of a phase of parity {parity} of {self.block.transactions[place].name}, which is in phase "
            f"{self.block.transactions[place].phase} with {int(word.pending[0])} of {int(word.expected[0])} arrivals and "
            f"{int(word.pending_bytes[0])} bytes pending"
        )

    def _acquire_barriers(self, values: dict[str, Any], threads: Array) -> None:
        places = values["barrier"][0, threads - self.chunk.group.start, 0]
        for place in np.unique(places):
            state = self.block.transactions[int(place)]
            chosen = threads[places == place]
            self.block.acquire(chosen, state.released)
            self.block.acquire_column(chosen, state.column, state.phase)

    def barrier(self) -> Iterator[Pause]:
        """See `Order`."""
        threads = self.active_threads()
        missing = len(self.chunk.group) - threads.size
        if missing:
            absent = ~np.broadcast_to(self.chunk.active, self.chunk.shape) if self.chunk.active is not None else np.False_
            before, self.chunk.active = self.chunk.active, None
            self.chunk.report(FindingKind.DIVERGENT_BARRIER, "the block", absent, 0)
            self.chunk.active = before
        if self.world.launch.counts is not None and self.chunk.group.start == 0:
            self.world.launch.counts.barrier(1)
        return self._meet(_WHOLE_BLOCK, threads.size + missing, self.block.threads, threads, "the barrier of the block")

    def _meet(self, number: int, count: int, expected: int, threads: Array, name: str) -> Iterator[Pause]:
        meeting = self.block.meetings.setdefault(number, Meeting())
        return self._join(meeting, count, expected, threads, name)

    def _join(self, meeting: Meeting, count: int, expected: int, threads: Array, name: str) -> Iterator[Pause]:
        self._arrive(meeting, count, expected, threads, name)
        turn = len(meeting.rounds) - (0 if meeting.arrived else 1)

        def awaited() -> str:
            return f"{name}, where {meeting.arrived} of {meeting.expected} threads arrived"

        yield Pause(lambda: len(meeting.rounds) > turn, awaited)
        self.block.acquire(threads, meeting.rounds[turn])

    def _arrive(self, meeting: Meeting, count: int, expected: int, threads: Array, name: str) -> None:
        if meeting.arrived and meeting.expected != expected or meeting.arrived + count > expected:
            self._report_all(FindingKind.BROKEN_RULE, f"{name}: threads that arrive must be as many as it counts", 0)
        meeting.arrive(count, expected, self.block.release(threads))
        self.world.version += 1

    # --- rows that only order ---------------------------------------------------------------------------------------

    def _sync(self, row: Instruction, threads: Array, given: dict[str, Any]) -> Iterator[Pause]:
        name = f"barrier {given['barrier']}"
        return self._meet(int(given["barrier"]), threads.size, int(given["threads"]), threads, name)

    def _arrive_named(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        number = int(given["barrier"])
        meeting = self.block.meetings.setdefault(number, Meeting())
        self._arrive(meeting, threads.size, int(given["threads"]), threads, f"barrier {number}")

    def _cluster(self) -> tuple[Meeting, int]:
        size = self.world.launch.kernel.cluster
        meeting = self.world.clusters.setdefault(self.world.cluster_of(self.block), Meeting())
        return meeting, size * self.block.threads

    def _cluster_arrive(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        meeting, expected = self._cluster()
        self.cluster_turn = len(meeting.rounds)
        self._arrive(meeting, threads.size, expected, threads, "the cluster's barrier")

    def _cluster_wait(self, row: Instruction, threads: Array, given: dict[str, Any]) -> Iterator[Pause]:
        meeting, _ = self._cluster()
        turn = self.cluster_turn

        def awaited() -> str:
            return f"the cluster's barrier, where {meeting.arrived} of {meeting.expected} threads arrived"

        yield Pause(lambda: len(meeting.rounds) > turn, awaited)
        self.block.acquire(threads, meeting.rounds[turn])

    def _commit(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        self.committed[_KINDS[row.completion]][threads - self.chunk.group.start] += 1

    def _wait_groups(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        kind = _KINDS[row.completion]
        done = self.committed[kind][threads - self.chunk.group.start] - int(given["pending"])
        reads_only = row.ordering is Ordering.WAIT_READ
        if kind == "multiply":
            self._end_multiplies(threads, int(done.min()))
            return
        for thread, count in zip(map(int, threads), map(int, done), strict=True):
            if (kind, thread) not in self.issued or count <= 0:
                continue
            names = {"copy": ("a copy in flight",), "bulk": ("a bulk copy that reads", "a bulk copy")}[kind]
            for name in names[:1] if reads_only else names:
                column = self.world.column(name, self.block.number, thread)
                self.block.acquire_column(np.array([thread]), column, count)
            if not reads_only:
                owner = self.chunk.group.start if kind == "copy" else thread
                self.world.land_group((kind, self.block.number, owner), count)

    def _end_multiplies(self, threads: Array, done: int) -> None:
        column = self.world.column("a multiply in flight", self.block.number, self.chunk.group.start)
        self.block.acquire_column(threads, column, done)
        for held in self.multiplying.values():
            held[held <= done] = 0

    def _fence_proxy(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        self._publish_barriers(threads)
        self.block.fence(threads)

    def _fence_init(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        self._publish_barriers(threads)

    def _publish_barriers(self, threads: Array) -> None:
        for state in self.block.transactions.values():
            column, clock = state.maker
            if (self.block.clocks[0, threads, column] >= clock).any():
                state.published = True

    def _fence_registers(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        for name, memory in self.chunk.registers.items():
            self.touched[name] = np.zeros(memory.size, np.bool_)

    def _fence_threads(self, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
        self.toucher.fence_threads(threads)

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The threads end: nothing that they issued may still use shared memory or registers."""
        for (kind, thread), (label, place) in self.issued.items():
            name = {"copy": "a copy in flight", "bulk": "a bulk copy that reads", "multiply": "a multiply in flight"}[kind]
            column = self.world.column(name, self.block.number, thread)
            if self.block.clocks[0, thread, column] < label:
                self.world.report(FindingKind.UNFINISHED, place, name, self.block.number, thread)


def bytes_of(buffer: Buffer) -> int:
    """Bytes of a whole buffer."""
    return buffer.size * item_bytes(buffer)


_HANDLERS: dict[Ordering, Callable[[Group, Instruction, Array, dict[str, Any]], Iterator[Pause] | None]] = {
    Ordering.SYNC: Group._sync,
    Ordering.ARRIVE: Group._arrive_named,
    Ordering.CLUSTER_ARRIVE: Group._cluster_arrive,
    Ordering.CLUSTER_WAIT: Group._cluster_wait,
    Ordering.COMMIT: Group._commit,
    Ordering.WAIT: Group._wait_groups,
    Ordering.WAIT_READ: Group._wait_groups,
    Ordering.FENCE_PROXY: Group._fence_proxy,
    Ordering.FENCE_REGISTERS: Group._fence_registers,
    Ordering.FENCE_BARRIER_INIT: Group._fence_init,
    Ordering.FENCE_THREADS: Group._fence_threads,
}
