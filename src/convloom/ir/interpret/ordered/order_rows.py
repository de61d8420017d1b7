"""Rows without effect on data: barriers of threads, fences, groups of asynchronous operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.ordered.block import Meeting
from convloom.ir.interpret.ordered.group import KINDS, Group
from convloom.ir.interpret.ordered.waits import arrive, meet
from convloom.target.instruction import Completion, Instruction, Ordering


def _sync(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> Iterator[Pause]:
    name = f"barrier {given['barrier']}"
    return meet(group, int(given["barrier"]), threads.size, int(given["threads"]), threads, name)


def _arrive_named(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    number = int(given["barrier"])
    meeting = group.block.meetings.setdefault(number, Meeting())
    arrive(group, meeting, threads.size, int(given["threads"]), threads, f"barrier {number}")


def _cluster(group: Group) -> tuple[Meeting, int]:
    size = group.world.launch.kernel.cluster
    meeting = group.world.clusters.setdefault(group.world.cluster_of(group.block), Meeting())
    return meeting, size * group.block.threads


def _cluster_arrive(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    meeting, expected = _cluster(group)
    group.cluster_turn = len(meeting.rounds)
    arrive(group, meeting, threads.size, expected, threads, "the cluster's barrier")


def _cluster_wait(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> Iterator[Pause]:
    meeting, _ = _cluster(group)
    turn = group.cluster_turn

    def awaited() -> str:
        return f"the cluster's barrier, where {meeting.arrived} of {meeting.expected} threads arrived"

    yield Pause(lambda: len(meeting.rounds) > turn, awaited)
    group.block.acquire(threads, meeting.rounds[turn])


def _commit(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    if row.completion is Completion.COPY_GROUP:
        group.commit_copies(threads)
    else:
        group.committed[KINDS[row.completion]][threads - group.chunk.group.start] += 1


def _wait_groups(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    kind = KINDS[row.completion]
    done = group.committed[kind][threads - group.chunk.group.start] - int(given["pending"])
    reads_only = row.ordering is Ordering.WAIT_READ
    if kind == "multiply":
        _end_multiplies(group, threads, int(done.min()))
        return
    for thread, groups in zip(map(int, threads), map(int, done), strict=True):
        if (kind, thread) not in group.issued or groups <= 0:
            continue
        count = int(group.commits[groups - 1][thread - group.chunk.group.start]) if kind == "copy" else groups
        names = {"copy": ("a copy in flight",), "bulk": ("a bulk copy that reads", "a bulk copy")}[kind]
        for name in names[:1] if reads_only else names:
            column = group.world.column(name, group.block.number, thread)
            group.block.acquire_column(np.array([thread]), column, count)
        if not reads_only:
            owner = group.chunk.group.start if kind == "copy" else thread
            group.world.land_group((kind, group.block.number, owner), count)


def _end_multiplies(group: Group, threads: Array, done: int) -> None:
    column = group.world.column("a multiply in flight", group.block.number, group.chunk.group.start)
    group.block.acquire_column(threads, column, done)
    for held in group.multiplying.values():
        held[held <= done] = 0


def _fence_proxy(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    _publish_barriers(group, threads)
    group.block.fence(threads)


def _fence_init(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    _publish_barriers(group, threads)


def _publish_barriers(group: Group, threads: Array) -> None:
    for state in group.block.transactions.values():
        column, clock = state.maker
        if (group.block.clocks[0, threads, column] >= clock).any():
            state.published = True


def _fence_registers(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    for name, memory in group.chunk.registers.items():
        group.touched[name] = np.zeros(memory.size, np.bool_)


def _fence_threads(group: Group, row: Instruction, threads: Array, given: dict[str, Any]) -> None:
    group.toucher.fence_threads(threads)


HANDLERS: dict[Ordering, Callable[[Group, Instruction, Array, dict[str, Any]], Iterator[Pause] | None]] = {
    Ordering.SYNC: _sync,
    Ordering.ARRIVE: _arrive_named,
    Ordering.CLUSTER_ARRIVE: _cluster_arrive,
    Ordering.CLUSTER_WAIT: _cluster_wait,
    Ordering.COMMIT: _commit,
    Ordering.WAIT: _wait_groups,
    Ordering.WAIT_READ: _wait_groups,
    Ordering.FENCE_PROXY: _fence_proxy,
    Ordering.FENCE_REGISTERS: _fence_registers,
    Ordering.FENCE_BARRIER_INIT: _fence_init,
    Ordering.FENCE_THREADS: _fence_threads,
}
