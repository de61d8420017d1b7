"""Memories of the interpreter: values, which of them are known, and who accessed them since the last barrier.

Arrays have the number in memory as their first axis. Shared memory adds the block, registers the thread and the block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOBODY = -1
SEVERAL = -2
ADDERS = -3  # as a writer: threads that added atomically


@dataclass(slots=True)
class Owners:
    """Per element: the thread that wrote it last, and the thread that read it (NOBODY, or SEVERAL of them)."""

    writer: Ints
    reader: Ints

    @staticmethod
    def of_size(size: int) -> Owners:
        """Nobody touched any of `size` elements."""
        return Owners(np.full(size, NOBODY, np.int64), np.full(size, NOBODY, np.int64))

    def clear(self, part: Any = slice(None)) -> None:
        """Forgets all accesses, or those to a part."""
        self.writer[part] = NOBODY
        self.reader[part] = NOBODY

    def read(self, places: Ints, threads: Ints) -> Bools:
        """Notes reads (places and threads of one shape); True where another thread wrote the element."""
        before = self.reader[places]
        self.reader[places] = np.where((before == NOBODY) | (before == threads), threads, SEVERAL)
        after = self.reader[places]
        self.reader[places[(after != threads)]] = SEVERAL
        writer = self.writer[places]
        return (writer != NOBODY) & (writer != threads)

    def write(self, places: Ints, threads: Ints) -> Bools:
        """Notes writes; True where another thread wrote or read the element, also in the same statement."""
        writer, reader = self.writer[places], self.reader[places]
        conflict = ((writer != NOBODY) & (writer != threads)) | ((reader != NOBODY) & (reader != threads))
        self.writer[places] = threads
        conflict |= self.writer[places] != threads
        return conflict

    def add(self, places: Ints) -> Bools:
        """Notes atomic additions; True where the element was read or stored to, by whichever thread."""
        conflict = ~np.isin(self.writer[places], (NOBODY, ADDERS)) | (self.reader[places] != NOBODY)
        self.writer[places] = ADDERS
        return conflict


@dataclass(slots=True)
class GlobalMemory:
    """A kernel parameter: flat values whose index 0 lies at `origin`, at the byte address `address`.

    `known` marks what holds meaningful data (None: everything); only the `allowed` range of positions may be touched.
    """

    values: Array
    origin: int = 0
    known: Bools | None = None
    address: int = 0
    allowed: range | None = None
    owners: Owners | None = None  # made for a launch that writes it

    @property
    def indices(self) -> range:
        """The indices that a kernel may use."""
        allowed = range(self.values.size) if self.allowed is None else self.allowed
        return range(allowed.start - self.origin, allowed.stop - self.origin)


@dataclass(slots=True)
class Knowledge:
    """Which elements of a local memory were written: for all threads (blocks) alike, in detail where they differ."""

    complete: Bools  # (size,)
    shape: tuple[int, ...]
    detail: Bools | None = None  # of `shape`; an element is known where this or `complete` says so

    def forget(self) -> None:
        """Nothing is known any more."""
        self.complete[:] = False
        self.detail = None

    def details(self) -> Bools:
        """The array to mark single threads or blocks in."""
        if self.detail is None:
            self.detail = np.zeros(self.shape, np.bool_)
        return self.detail


@dataclass(slots=True)
class LocalMemory:
    """Shared memory of a chunk, of shape (size, blocks), or registers, of shape (size, threads, blocks)."""

    values: Array
    knowledge: Knowledge = field(init=False)

    def __post_init__(self) -> None:
        self.knowledge = Knowledge(np.zeros(self.size, np.bool_), self.values.shape)

    @property
    def size(self) -> int:
        """Numbers of one thread or block."""
        return self.values.shape[0]


@dataclass(slots=True)
class SharedMemory(LocalMemory):
    """Shared memory with the accesses since the last barrier; one column of owners while all blocks do the same."""

    owners: Owners = field(init=False)
    per_block: bool = False
    allocations: int = 1  # how often the statement that brings it into being was executed
    in_flight: Bools | None = None  # of the values' shape: elements that an asynchronous copy may still change

    def __post_init__(self) -> None:
        LocalMemory.__post_init__(self)
        self.owners = Owners.of_size(self.size)

    def spread(self) -> Owners:
        """The owners with one column for each block, flat (element * blocks + block)."""
        if not self.per_block:
            blocks = self.values.shape[1]
            self.owners = Owners(np.repeat(self.owners.writer, blocks), np.repeat(self.owners.reader, blocks))
            self.per_block = True
        return self.owners

    def fly(self, places: Ints, taken: Bools, flies: bool) -> None:
        """Marks elements, places of shape (lanes, threads, blocks), as in flight or as landed."""
        if self.in_flight is None:
            self.in_flight = np.zeros(self.values.shape, np.bool_)
        kept = np.broadcast_to(taken, places.shape)
        columns: Ints = np.arange(places.shape[2], dtype=np.int64)
        blocks: Ints = np.zeros_like(places) + columns
        self.in_flight[places[kept], blocks[kept]] = flies

    def flying(self, places: Ints) -> Bools | None:
        """Which elements are in flight; None where no copy was ever issued."""
        if self.in_flight is None:
            return None
        if places.shape[2] == 1:
            return self.in_flight[places[..., 0]]
        return self.in_flight[places, np.arange(places.shape[2])]

    def pass_barrier(self, reached: Bools | None) -> None:
        """Forgets accesses, of the blocks that reached the barrier if not all did."""
        if reached is not None:
            blocks = np.flatnonzero(reached)
            numbers = np.arange(self.size, dtype=np.int64)[:, None] * reached.size
            self.spread().clear((numbers + blocks).ravel())
        elif self.per_block:
            self.owners, self.per_block = Owners.of_size(self.size), False
        else:
            self.owners.clear()
