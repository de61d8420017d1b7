"""A block that is present: its shared memory as bytes, its threads' clocks, and its barriers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from convloom.ir.interpret.findings import Place
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.ordered.roles import WARP
from convloom.ir.interpret.ordered.shadow import Shadow

Clock = Array
"""What one thread (or all that arrived somewhere) has seen, and what of it lies behind a proxy fence: (2, columns)."""
_POISON = 0x55


def fitted(clocks: Array, width: int) -> Array:
    """Clocks with at least `width` columns; nothing was seen of new ones."""
    missing = width - clocks.shape[-1]
    if missing <= 0:
        return clocks
    return np.concatenate([clocks, np.zeros((*clocks.shape[:-1], missing), clocks.dtype)], axis=-1)


def byte_places(addresses: Array, nbytes: int) -> Array:
    """The places of `nbytes` bytes from each address on: (n,) -> (n, nbytes)."""
    return np.asarray(addresses[:, None] + np.arange(nbytes), np.int64)


def joined(one: Clock, other: Clock) -> Clock:
    """What either has seen."""
    width = max(one.shape[-1], other.shape[-1])
    return np.maximum(fitted(one, width), fitted(other, width))


def nothing() -> Clock:
    """The clock of somebody who saw nothing."""
    return np.zeros((2, 0), np.int32)


@dataclass(slots=True)
class Meeting:
    """A barrier that counts threads: how many arrived, what they had seen, and what each finished round had."""

    arrived: int = 0
    expected: int = 0
    gathered: Clock = field(default_factory=nothing)
    rounds: list[Clock] = field(default_factory=list[Clock])

    def arrive(self, threads: int, expected: int, clock: Clock) -> None:
        """Adds threads; the last ones end the round."""
        self.arrived += threads
        self.expected = expected
        self.gathered = joined(self.gathered, clock)
        if self.arrived >= expected:
            self.rounds.append(self.gathered)
            self.arrived, self.gathered = 0, nothing()


@dataclass(slots=True)
class Transactions:
    """What hardware does not keep of a transaction barrier: `column` counts its finished phases.

    `gathered`: of arrivals in the present phase, `released`: of those in the last finished one. `maker`: the epoch of
    the thread that initialised it; `published`: whether copies may use it.
    """

    name: str
    column: int
    maker: tuple[int, int]
    phase: int = 0
    published: bool = False
    gathered: Clock = field(default_factory=nothing)
    released: Clock = field(default_factory=nothing)


@dataclass(slots=True)
class Budgets:
    """Registers per thread that each warp holds, registers in the block's pool, and where it changed last."""

    held: Array
    pool: int = 0
    place: Place | None = None


class Block:
    """`first_column`: of its threads' columns. Clocks have the shape (2, threads, columns): seen, and fenced."""

    def __init__(self, number: int, threads: int, nbytes: int, granule: int, first_column: int, registers: int) -> None:
        self.number = number
        self.granule = granule
        self.first_column = first_column
        self.bytes = np.full(nbytes, _POISON, np.uint8)
        self.known = np.zeros(nbytes, np.bool_)
        self.shadow = Shadow(-(-nbytes // granule))
        self.clocks = np.zeros((2, threads, first_column + threads), np.int32)
        self.meetings: dict[int, Meeting] = {}
        self.transactions: dict[int, Transactions] = {}
        self.budgets = Budgets(np.full(-(-threads // WARP), registers))
        self.ended = False
        everyone = np.arange(threads)
        self.clocks[0, everyone, first_column + everyone] = 1

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.clocks.shape[1]

    def own_columns(self, threads: Array) -> Array:
        """The columns of threads."""
        return self.first_column + threads

    def own_clocks(self, threads: Array) -> Array:
        """The threads' present numbers in their own columns."""
        return self.clocks[0, threads, self.own_columns(threads)]

    def fit(self, width: int, spare: int = 0) -> None:
        """Makes room for columns, and for some to spare where there is none."""
        if width > self.clocks.shape[-1]:
            self.clocks = fitted(self.clocks, width + spare)

    def release(self, threads: Array) -> Clock:
        """What the threads have seen together; what they do from now on is no part of it."""
        clock = self.clocks[:, threads].max(axis=1)
        self.tick(threads)
        return clock

    def tick(self, threads: Array) -> None:
        """Later accesses of the threads get later epochs."""
        self.clocks[0, threads, self.own_columns(threads)] += 1

    def acquire(self, threads: Array, clock: Clock) -> None:
        """The threads have seen that too."""
        self.fit(clock.shape[-1])
        width = clock.shape[-1]
        held = self.clocks[:, threads, :width]
        self.clocks[:, threads, :width] = np.maximum(held, clock[:, None])

    def acquire_column(self, threads: Array, column: int, clock: Array | int) -> None:
        """The threads have seen a column up to a number."""
        self.fit(column + 1)
        self.clocks[0, threads, column] = np.maximum(self.clocks[0, threads, column], clock)

    def fence(self, threads: Array) -> None:
        """All that the threads have seen lies behind a proxy fence."""
        self.clocks[1, threads] = np.maximum(self.clocks[1, threads], self.clocks[0, threads])
        self.tick(threads)

    def pieces(self, addresses: Array, nbytes: int) -> Array:
        """Numbers of the shadow's pieces: (n,) -> (n, pieces of each)."""
        return addresses[:, None] // self.granule + np.arange(-(-nbytes // self.granule))

    def load(self, addresses: Array, nbytes: int) -> tuple[Array, Bools]:
        """(bytes of shape (n, nbytes), whether each was written)."""
        places = byte_places(addresses, nbytes)
        return self.bytes[places], self.known[places]

    def store(self, addresses: Array, data: Array) -> None:
        """Writes bytes of shape (n, nbytes)."""
        places = byte_places(addresses, data.shape[-1])
        self.bytes[places] = data
        self.known[places] = True
