"""Asynchronous copies of threads into shared memory: in flight from their issue until their thread has waited for them.

A thread's copies form groups in order; a wait is for all groups but the latest few. The values land at a moment of
choice between issue and wait. Whatever touches an element in flight is a race: faulty kernels alone see the moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convloom.ir.interpret.access import count_access, note_race, put_shared, shared_places
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.flights import Copies, Copy
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.options import Landing
from convloom.ir.ops import Buffer


def issue(chunk: Chunk, buffer: Buffer, index: Any, values: Array, taken: Bools | None) -> None:
    """Starts a copy; its elements must not be touched until it is waited for."""
    copies = chunk.copies
    lanes = len(values)
    places = np.broadcast_to(shared_places(chunk, buffer, index, lanes, taken), (lanes, *chunk.shape))
    wanted = np.ones(chunk.shape, np.bool_) if taken is None else np.broadcast_to(taken, chunk.shape)
    if chunk.launch.options.races:
        note_race(chunk, buffer, places, wanted, written=True)
        chunk.shared[buffer.name].fly(places, wanted, True)
    count_access(chunk, buffer, places, wanted, written=True)
    landed = _lands_at_once(copies, chunk.launch.options.landing)
    if landed:
        put_shared(chunk, buffer, places, values, wanted)
    copies.flying.append(Copy(buffer, places, values, wanted, copies.committed, landed))


def _lands_at_once(copies: Copies, landing: Landing) -> bool:
    return landing is Landing.EARLIEST or (landing is Landing.SEEDED and bool(copies.random.integers(2)))


def commit(chunk: Chunk) -> None:
    """Closes the present group of the active threads."""
    chunk.copies.committed = chunk.copies.committed + np.broadcast_to(
        True if chunk.active is None else chunk.active, chunk.shape
    )


def wait(chunk: Chunk, pending: int) -> None:
    """Ends the active threads' copies, all but those of the latest `pending` groups and of the open one."""
    copies = chunk.copies
    limit = copies.committed - pending
    left: list[Copy] = []
    for copy in copies.flying:
        done = copy.taken & (copy.group < limit)
        if chunk.active is not None:
            done = done & chunk.active
        if done.any():
            _end(chunk, copy, done)
        rest = copy.taken & ~done
        if rest.any():
            copy.taken = rest
            left.append(copy)
    copies.flying = left


def _end(chunk: Chunk, copy: Copy, done: Bools) -> None:
    """The elements are as if their thread had written them just now."""
    memory = chunk.shared[copy.buffer.name]
    if chunk.launch.options.races:
        memory.fly(copy.places, done, False)
        note_race(chunk, copy.buffer, copy.places, done, written=True, told=False)
    if not copy.landed:
        put_shared(chunk, copy.buffer, copy.places, copy.values, done)
