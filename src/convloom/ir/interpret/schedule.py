"""Runs the groups of threads of some blocks in an order that a seed decides, from barrier to barrier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from convloom.errors import InternalError
from convloom.ir.interpret.chunk import Chunk, Launch
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Bools, SharedMemory
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.statements import Arrival, run_body


@dataclass(slots=True)
class _Group:
    """Threads that advance together; `arrived`: those that wait at a barrier (None: not there)."""

    chunk: Chunk
    steps: Iterator[Arrival]
    arrived: Bools | None = None
    ended: bool = False

    @property
    def runnable(self) -> bool:
        return self.arrived is None and not self.ended

    def advance(self) -> None:
        """Runs to the next barrier or the end."""
        try:
            arrival = next(self.steps)
        except StopIteration:
            self.ended = True
            return
        if isinstance(arrival, Pause):
            raise InternalError("a chunk without an order pauses at barriers of its block only; report this")
        self.arrived = np.broadcast_to(np.True_ if arrival is None else arrival, self.chunk.shape)


def run_blocks(launch: Launch, blocks: range, arguments: Mapping[str, int]) -> None:
    """Runs the kernel's body for some blocks to its end."""
    threads = launch.kernel.threads
    size = launch.options.group_threads or threads
    shared: dict[str, SharedMemory] = {}
    groups: list[_Group] = []
    for first in range(0, threads, size):
        group = range(first, min(first + size, threads))
        chunk = Chunk(launch, blocks, dict(arguments), group, shared=shared)
        groups.append(_Group(chunk, run_body(chunk, launch.kernel.body)))
    order = np.random.default_rng((launch.options.seed, blocks.start))
    while True:
        runnable = [group for group in groups if group.runnable]
        if runnable:
            runnable[int(order.integers(len(runnable)))].advance()
        elif all(group.ended for group in groups):
            return
        else:
            _pass_barrier(launch, groups, shared)


def _pass_barrier(launch: Launch, groups: list[_Group], shared: dict[str, SharedMemory]) -> None:
    """No group can go on: those that wait do so at one barrier, which opens; threads that are missing are findings."""
    waiting = next(group for group in groups if group.arrived is not None)
    absent = np.zeros(waiting.chunk.shape, np.bool_)[:1]
    arrivals = [
        np.broadcast_to(absent, group.chunk.shape) if group.arrived is None else group.arrived for group in groups
    ]
    here: Bools = np.any(np.concatenate(arrivals), axis=0, keepdims=True)[0]
    for group, arrived in zip(groups, arrivals, strict=True):
        _report_missing(group, waiting, here & ~arrived)
        group.arrived = None
    if launch.counts is not None:
        launch.counts.barrier(int(here.sum()))
    for memory in shared.values():
        memory.pass_barrier(None if here.all() else here)


def _report_missing(group: _Group, waiting: _Group, missing: Bools) -> None:
    """Threads that are not at the barrier where others of their block are."""
    if not missing.any():
        return
    chunk = group.chunk
    state = chunk.active, chunk.path, chunk.statement
    chunk.active, chunk.path, chunk.statement = None, waiting.chunk.path, waiting.chunk.statement
    chunk.report(FindingKind.DIVERGENT_BARRIER, "the block", missing, 0)
    chunk.active, chunk.path, chunk.statement = state
