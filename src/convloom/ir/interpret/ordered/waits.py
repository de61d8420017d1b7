"""Where groups wait for each other: barriers that count threads, transaction barriers, values in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.ordered.accesses import Actors
from convloom.ir.interpret.ordered.block import Meeting
from convloom.ir.interpret.ordered.group import Group
from convloom.ir.ops import Instruct
from convloom.target.instruction import Execution, Family
from convloom.target.transaction_barrier import decode

_WHOLE_BLOCK = -1  # the number of the block's own barrier


def await_row(group: Group, statement: Instruct, threads: Array) -> Iterator[Pause]:
    """Waits for a barrier's phase, or a value in memory, and acquires what was released."""
    row = statement.row
    memory = group.memory(statement, Actors())
    memory.silent = True
    values, active = group.values(statement, memory), group.active(row)
    local = threads - group.chunk.group.start
    if row.family is Family.BARRIER:
        for place, thread in zip(values["barrier"][0, local, 0], threads, strict=True):
            state = group.block.transactions.get(int(place))
            if state is None:
                group.toucher.report(
                    FindingKind.UNINITIALISED, "transaction barrier", np.array([thread]), np.array([place])
                )
                return
            group.toucher.check_barrier(state, int(thread), asynchronous=False)
    waited = values["barrier"][0, local, 0] if row.family is Family.BARRIER else ()
    places = sorted({int(place) for place in waited})
    seen: int | list[bytes] = -1
    version = -1
    passed = False

    def ready() -> bool:
        nonlocal seen, version, passed
        if version != group.world.version:
            version = group.world.version
            now = [group.block.bytes[place : place + 8].tobytes() for place in places] or version
            if now != seen:
                seen, passed = now, bool(row.execute(values, memory, active)["done"][0, local].all())
        return passed

    yield Pause(ready, lambda: _awaited(group, values, local))
    if row.family is Family.BARRIER:
        acquire_barriers(group, values, threads)
    else:
        memory.silent = False
        row.execute(values, memory, active)


def _awaited(group: Group, values: dict[str, Any], local: Array) -> str:
    if "barrier" not in values:
        return f"the value {int(values['value'][0, local[0], 0])} in global memory"
    place, parity = int(values["barrier"][0, local[0], 0]), int(values["parity"][0, local[0], 0])
    word = decode(group.block.bytes[place : place + 8].view(np.uint64))
    return (
        f"the end of a phase of parity {parity} of {group.block.transactions[place].name}, which is in phase "
        f"{group.block.transactions[place].phase} with {int(word.pending[0])} of {int(word.expected[0])} arrivals and "
        f"{int(word.pending_bytes[0])} bytes pending"
    )


def acquire_barriers(group: Group, values: dict[str, Any], threads: Array) -> None:
    """Threads have seen what the last finished phase of their barriers released."""
    places = values["barrier"][0, threads - group.chunk.group.start, 0]
    for place in np.unique(places):
        state = group.block.transactions[int(place)]
        chosen = threads[places == place]
        group.block.acquire(chosen, state.released)
        group.block.acquire_column(chosen, state.column, state.phase)


def block_barrier(group: Group) -> Iterator[Pause]:
    """See `Order`."""
    threads = group.active_threads()
    missing = len(group.chunk.group) - threads.size
    if missing:
        absent = (
            ~np.broadcast_to(group.chunk.active, group.chunk.shape) if group.chunk.active is not None else np.False_
        )
        before, group.chunk.active = group.chunk.active, None
        group.chunk.report(FindingKind.DIVERGENT_BARRIER, "the block", absent, 0)
        group.chunk.active = before
    if group.world.launch.counts is not None and group.chunk.group.start == 0:
        group.world.launch.counts.barrier(1)
    return meet(group, _WHOLE_BLOCK, threads.size + missing, group.block.threads, threads, "the barrier of the block")


def meet(group: Group, number: int, count: int, expected: int, threads: Array, name: str) -> Iterator[Pause]:
    """Arrives at a barrier of the block that counts threads, and waits."""
    meeting = group.block.meetings.setdefault(number, Meeting())
    return _join(group, meeting, count, expected, threads, name)


def _join(group: Group, meeting: Meeting, count: int, expected: int, threads: Array, name: str) -> Iterator[Pause]:
    arrive(group, meeting, count, expected, threads, name)
    turn = len(meeting.rounds) - (0 if meeting.arrived else 1)

    def awaited() -> str:
        return f"{name}, where {meeting.arrived} of {meeting.expected} threads arrived"

    yield Pause(lambda: len(meeting.rounds) > turn, awaited)
    group.block.acquire(threads, meeting.rounds[turn])


def arrive(group: Group, meeting: Meeting, count: int, expected: int, threads: Array, name: str) -> None:
    """Counts threads as arrived at a barrier."""
    if (meeting.arrived and meeting.expected != expected) or meeting.arrived + count > expected:
        group.report_all(FindingKind.BROKEN_RULE, f"{name}: threads that arrive must be as many as it counts", 0)
    meeting.arrive(count, expected, group.block.release(threads))
    group.world.version += 1


def acquire_tested(group: Group, statement: Instruct) -> None:
    """A test that found a phase over acquires as a wait does."""
    memory = group.memory(statement, Actors())
    memory.silent = True
    values = group.values(statement, memory)
    passed = statement.row.semantics(Execution(values, memory, group.active(statement.row)))["d"][0, :, 0] != 0
    threads = group.active_threads()
    acquire_barriers(group, values, threads[passed[threads - group.chunk.group.start]])
