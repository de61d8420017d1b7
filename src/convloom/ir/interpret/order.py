"""What a group of threads asks of the machinery that orders it among others, where barriers of the block are not all.

Kernels whose only order is barriers of whole blocks need none of it: their chunks have no `Order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from convloom.ir.interpret.memory import Array, Bools, SharedMemory
from convloom.ir.ops import Buffer, Instruct


class Use(Enum):
    """How memory is accessed."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"  # indivisibly


@dataclass(frozen=True, slots=True)
class Pause:
    """A point where others may run. `ready`: whether the group can go on; `awaited` says what it waits for."""

    ready: Callable[[], bool]
    awaited: Callable[[], str]


class Order(Protocol):
    """One group's accesses to memory that others reach, and its instructions."""

    def shared_memory(self, buffer: Buffer) -> SharedMemory:
        """A shared buffer's part of the block's bytes."""
        ...

    def note_shared(self, buffer: Buffer, places: Array, taken: Bools | None, use: Use) -> None:
        """Checks the order of accesses to shared memory; places have the shape (lanes, threads or 1, 1)."""
        ...

    def note_global(self, buffer: Buffer, places: Array, indices: Array, taken: Bools | None, use: Use) -> None:
        """The same for global memory: positions in the buffer's array, and indices to report."""
        ...

    def touch_registers(self, buffer: Buffer, index: Any, lanes: int) -> None:
        """The program itself reads or writes registers: not while an asynchronous multiply has them."""
        ...

    def execute(self, statement: Instruct) -> Iterator[Pause]:
        """Executes an instruction row."""
        ...

    def barrier(self) -> Iterator[Pause]:
        """The barrier of all threads of the block."""
        ...
