"""Accesses of one group's threads against the shadows, and what they release to and acquire from addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array, Bools, GlobalMemory
from convloom.ir.interpret.order import Use
from convloom.ir.interpret.ordered.block import Block, Clock, Transactions, joined
from convloom.ir.interpret.ordered.shadow import Access, Shadow, Verdict, View
from convloom.ir.interpret.ordered.world import World
from convloom.target.instruction import Ordering


@dataclass(frozen=True, slots=True)
class Actors:
    """Whose epochs accesses leave: each thread's own (`column` None), or those of an asynchronous operation.

    `clocks`: one number, or one per thread of the block. `together`: the threads must all have seen what came before.
    """

    asynchronous: bool = False
    column: int | Array | None = None
    clocks: int | Array = 0
    together: Array | None = None


@dataclass(slots=True)
class Toucher:
    """Checks accesses of the threads of one group."""

    world: World
    block: Block
    chunk: Chunk
    fenced_at: dict[int, Clock] = field(default_factory=dict[int, Clock])  # by thread: released by a fence
    pending: dict[int, Clock] = field(default_factory=dict[int, Clock])  # by thread: acquired by the next fence

    def touch(
        self, shadow: Shadow, pieces: Array, threads: Array, actors: Actors, use: Use, subject: str
    ) -> tuple[Bools, Bools] | None:
        """Checks and notes accesses: pieces (n, m), threads (n,). Reports them, by (thread, piece)."""
        if not self.world.launch.options.races or not pieces.size:
            return None
        verdict, whose, places = self.judge(shadow, pieces, threads, actors, use)
        self._report_unordered(verdict, whose, places, subject)
        if verdict.unfenced.any():
            self.report(FindingKind.UNFENCED, subject, whose[verdict.unfenced], places[verdict.unfenced])
        return verdict.unordered, verdict.unfenced

    def judge(
        self, shadow: Shadow, pieces: Array, threads: Array, actors: Actors, use: Use
    ) -> tuple[Verdict, Array, Array]:
        """The verdict on every piece, with its thread and its number."""
        whose = np.repeat(threads, pieces.shape[1])
        places = pieces.reshape(-1)
        clocks = self.block.clocks
        if actors.together is not None:
            common = clocks[:, actors.together].min(axis=1, keepdims=True)
            view = View(common[0], common[1], np.zeros_like(whose), actors.asynchronous)
        else:
            view = View(clocks[0], clocks[1], whose, actors.asynchronous)
        if actors.column is None:
            columns, numbers = self.block.own_columns(whose), self.block.own_clocks(whose)
        else:
            columns = actors.column if isinstance(actors.column, int) else actors.column[whose]
            numbers = actors.clocks if isinstance(actors.clocks, int) else actors.clocks[whose]
        access = Access(places, np.broadcast_to(columns, places.shape), np.broadcast_to(numbers, places.shape), view)
        act = {Use.READ: shadow.read, Use.WRITE: shadow.write, Use.UPDATE: shadow.update}[use]
        return act(access), whose, places

    def _report_unordered(self, verdict: Verdict, whose: Array, places: Array, subject: str) -> None:
        wrong = verdict.unordered
        if wrong.any():
            self.report(FindingKind.RACE, f"{subject} (with {self.other(verdict)})", whose[wrong], places[wrong])

    def other(self, verdict: Verdict) -> str:
        """Who the first access without order is in conflict with."""
        return self.world.columns[int(verdict.other[verdict.unordered][0])]

    def report(self, kind: FindingKind, subject: str, threads: Array, indices: Array) -> None:
        """Records faults of single threads of the block."""
        numbers = np.full(len(threads), self.block.number)
        self.world.launch.findings.add(kind, self.chunk.place, subject, numbers, threads, indices)

    def unknown(self, subject: str, threads: Array, indices: Array) -> None:
        """Records reads of what nobody wrote."""
        if threads.size and self.world.launch.options.known:
            self.report(FindingKind.UNINITIALISED, subject, threads, indices)

    def inside_global(self, name: str, memory: GlobalMemory, first: Array, threads: Array, nbytes: int) -> Array:
        """Bytes from the start of a buffer's array, moved inside; those outside are findings."""
        size = memory.values.itemsize
        allowed = range(memory.values.size) if memory.allowed is None else memory.allowed
        low, high = allowed.start * size, allowed.stop * size - nbytes
        outside = (first < low) | (first > high)
        if outside.any():
            indices = first // size - memory.origin
            self.report(FindingKind.OUT_OF_BOUNDS, f"global {name}", threads[outside], indices[outside])
        return np.clip(first, low, max(high, low))

    # --- order through memory ---------------------------------------------------------------------------------------

    def release_into(self, clock: Clock, thread: int) -> Clock:
        """The clock joined with all that a thread has seen."""
        return joined(clock, self.block.release(np.array([thread])))

    def check_barrier(self, state: Transactions, thread: int, *, asynchronous: bool) -> None:
        """A barrier is used behind its initialisation, and by copies behind a fence."""
        column, clock = state.maker
        one, zero = np.array([thread]), np.array([0])
        if self.block.clocks[0, thread, column] < clock:
            self.report(FindingKind.RACE, f"barrier {state.name} (with its initialisation)", one, zero)
        elif asynchronous and not state.published:
            self.report(FindingKind.UNFENCED, f"barrier {state.name}", one, zero)

    def synchronise(self, name: str, place: int, thread: int, ordering: Ordering) -> None:
        """What an atomic access at a place does to the order of threads."""
        key, one = (name, place), np.array([thread])
        known = self.world.locations.get(key)
        if known is not None:
            if ordering in (Ordering.ACQUIRE, Ordering.ACQUIRE_RELEASE, Ordering.AWAIT):
                self.block.acquire(one, known)
            self.pending[thread] = joined(self.pending[thread], known) if thread in self.pending else known
        released: Clock | None = None
        if ordering in (Ordering.RELEASE, Ordering.ACQUIRE_RELEASE):
            released = self.block.release(one)
        elif thread in self.fenced_at and ordering is not Ordering.AWAIT:
            released = self.fenced_at[thread]
        if released is not None:
            self.world.locations[key] = released if known is None else joined(known, released)

    def fence_threads(self, threads: Array) -> None:
        """Relaxed atomic accesses before it have acquired, those after it release."""
        for thread in map(int, threads):
            if thread in self.pending:
                self.block.acquire(np.array([thread]), self.pending.pop(thread))
            self.fenced_at[thread] = self.block.release(np.array([thread]))
