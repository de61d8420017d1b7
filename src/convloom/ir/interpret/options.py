"""What an interpretation checks, counts and how much of it runs at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Landing(Enum):
    """When the values of an asynchronous copy become visible: at its issue, at the wait for it, or either by a seed."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SEEDED = "seeded"


@dataclass(frozen=True, slots=True)
class Options:
    """Which checks run; accesses out of bounds are always found.

    `chunk_threads`: threads that run at a time (whole blocks). `group_threads`: threads of a block that advance
    together from barrier to barrier, in an order of groups that `seed` decides; 0: the whole block. `alignment`: bytes
    that a vector access of that many bytes or more is aligned to. `landing`: of asynchronous copies. `counted`:
    whether to count (see `counts`). `multiprocessors`: blocks that are present at a time, where they are ordered by
    more than barriers; `clocks`: order all kernels that way.
    """

    races: bool = True
    known: bool = True  # reads of memory that nobody wrote
    overflow: bool = True
    counted: bool = False
    chunk_threads: int = 1 << 14
    group_threads: int = 0
    alignment: int = 16
    landing: Landing = Landing.LATEST
    seed: int = 0
    multiprocessors: int = 2
    clocks: bool = False
