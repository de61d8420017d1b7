"""Memories of the interpreter: values, who wrote what, and the logs from which races are found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(slots=True)
class GlobalMemory:
    """A kernel parameter: flat values whose index 0 lies at `origin`; `known` marks what holds meaningful data."""

    values: Array
    origin: int = 0
    known: Bools | None = None  # None: everything
    writer: Ints | None = None  # (block, thread) of the last store as one number, -1: none
    writer_epoch: Ints | None = None

    def prepare(self) -> None:
        """Clears who wrote what, for a new launch."""
        self.writer = np.full(self.values.size, -1, np.int64)
        self.writer_epoch = np.zeros(self.values.size, np.int64)


@dataclass(frozen=True, slots=True)
class LoggedAccess:
    """One access of many threads: flat addresses, the threads, their blocks (place in the chunk), and where it stands."""

    addresses: Ints
    threads: Ints
    blocks: Ints
    place: tuple[str, str]

    def of_blocks(self, wanted: Bools) -> LoggedAccess:
        """The part that belongs to some blocks."""
        keep = wanted[self.blocks]
        return LoggedAccess(self.addresses[keep], self.threads[keep], self.blocks[keep], self.place)


@dataclass(slots=True)
class SharedMemory:
    """Shared memory of a chunk of blocks, one row each; reads and writes since the last barrier are logged."""

    values: Array
    known: Bools
    reads: list[LoggedAccess] = field(default_factory=list[LoggedAccess])
    writes: list[LoggedAccess] = field(default_factory=list[LoggedAccess])

    @property
    def size(self) -> int:
        """Numbers of one block."""
        return self.values.shape[1]


@dataclass(slots=True)
class RegisterArray:
    """Registers of a chunk: values and known flags of shape (blocks, threads, size)."""

    values: Array
    known: Bools


def conflicting_pairs(
    memory_size: int, reads: list[LoggedAccess], writes: list[LoggedAccess]
) -> list[tuple[LoggedAccess, Bools]]:
    """Accesses that touch what another thread of the block wrote in the same interval, with the conflicting entries.

    Any two accesses of different threads between the same two barriers are unordered, so order does not matter: each address
    needs its set of writers (one of them, and whether there are several) only.
    """
    if not writes:
        return []
    writer = np.full(memory_size, -1, np.int64)
    several = np.zeros(memory_size, np.bool_)
    for access in writes:
        foreign = (writer[access.addresses] >= 0) & (writer[access.addresses] != access.threads)
        several[access.addresses[foreign]] = True
        writer[access.addresses] = access.threads
        lost = writer[access.addresses] != access.threads  # two threads in one statement: one of them is not the last
        several[access.addresses[lost]] = True
    found: list[tuple[LoggedAccess, Bools]] = []
    for access in (*writes, *reads):
        own = writer[access.addresses]
        conflict = several[access.addresses] | ((own >= 0) & (own != access.threads))
        if conflict.any():
            found.append((access, conflict))
    return found
