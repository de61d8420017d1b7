"""The state of some blocks of a launch that advance together, all their threads or one group of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convloom.dtypes import DType
from convloom.expr import Expr
from convloom.ir.interpret.counts import Counts
from convloom.ir.interpret.findings import FindingKind, Findings, Place
from convloom.ir.interpret.flights import Copies
from convloom.ir.interpret.index_code import INT32, IndexMath
from convloom.ir.interpret.memory import Array, Bools, GlobalMemory, Ints, LocalMemory, SharedMemory
from convloom.ir.interpret.options import Options
from convloom.ir.interpret.order import Order
from convloom.ir.ops import Buffer, Kernel, Scope, Statement
from convloom.ir.text import statement_text

_POISON = 0x55  # the byte that fresh local memory is filled with


@dataclass(frozen=True, slots=True)
class Launch:
    """What all chunks of a launch share."""

    kernel: Kernel
    memories: Mapping[str, GlobalMemory]
    floats: Mapping[str, float]
    options: Options
    findings: Findings
    counts: Counts | None
    places: dict[str, Place] = field(default_factory=dict[str, Place])  # by path, as they are needed


@dataclass(slots=True)
class Chunk:
    """Values have the shape (lanes, threads, blocks), index values (threads, blocks), each axis 1 where nothing varies.

    Index values that are the same for all are ints. `active`: the threads that run the present statement (None: all).
    """

    launch: Launch
    blocks: range
    names: dict[str, Any]
    group: range  # the threads of each block that are meant
    active: Bools | None = None
    shared: dict[str, SharedMemory] = field(default_factory=dict[str, SharedMemory])
    registers: dict[str, LocalMemory] = field(default_factory=dict[str, LocalMemory])
    allocations: dict[str, int] = field(default_factory=dict[str, int])
    path: str = ""
    statement: Statement | None = None
    order: Order | None = None  # None: barriers of whole blocks are all that orders threads
    threads: Ints = field(init=False)  # (threads, 1)
    math: IndexMath = field(init=False)
    copies: Copies = field(init=False)

    def __post_init__(self) -> None:
        self.threads = np.arange(self.group.start, self.group.stop, dtype=np.int64)[:, None]
        watched = self.launch.options.overflow and self.launch.kernel.index_bits == 32
        self.math = IndexMath(self._watch if watched else None, self._divisor)
        seed = (self.launch.options.seed, self.blocks.start, self.group.start)
        self.copies = Copies(np.zeros(self.shape, np.int64), np.random.default_rng(seed))
        self.names["tid"] = self.threads
        numbers = np.arange(self.blocks.start, self.blocks.stop, dtype=np.int64)[None, :]
        self.names["bid"] = self.blocks.start if len(self.blocks) == 1 else numbers

    @property
    def shape(self) -> tuple[int, int]:
        """(threads, blocks)."""
        return self.threads.shape[0], len(self.blocks)

    def enter(self, path: str, statement: Statement) -> None:
        """Sets the place that findings and counts are for."""
        self.path, self.statement = path, statement

    @property
    def place(self) -> Place:
        """The present statement; its text is made once, when something needs it."""
        known = self.launch.places.get(self.path)
        if known is None:
            assert self.statement is not None
            known = self.launch.places[self.path] = Place(self.path, statement_text(self.statement))
        return known

    def index(self, expression: Expr) -> Any:
        """The value of index math."""
        return self.math.evaluate(expression, self.names)

    def all_active(self) -> bool:
        """Whether every thread runs the present statement."""
        return self.active is None or bool(self.active.all())

    def report(self, kind: FindingKind, subject: str, where: Any, indices: Any) -> None:
        """Records the active threads of `where` (both arrays of shape (threads, blocks) or broadcast to it)."""
        affected = np.broadcast_to(where if self.active is None else where & self.active, self.shape)
        if not affected.any():
            return
        threads, blocks = np.nonzero(affected)
        shown = np.broadcast_to(np.asarray(indices, np.int64), self.shape)[affected]
        first = self.blocks.start
        self.launch.findings.add(kind, self.place, subject, blocks + first, threads + self.group.start, shown)

    def _watch(self, value: Any) -> Any:
        if isinstance(value, int):
            outside: Any = value not in INT32
            found = outside
        else:
            found = bool(value.size) and (int(value.max()) >= INT32.stop or int(value.min()) < INT32.start)
            outside = (value >= INT32.stop) | (value < INT32.start) if found else False
        if found:
            self.report(FindingKind.OVERFLOW, "a sum or product", np.asarray(outside), value)
        return value

    def _divisor(self, value: Any) -> Any:
        if isinstance(value, int):
            if value == 0:
                self.report(FindingKind.DIVISION, "a divisor", np.True_, 0)
            return value or 1
        zero = value == 0
        if zero.any():
            self.report(FindingKind.DIVISION, "a divisor", zero, value)
            return np.where(zero, 1, value)
        return value

    # --- local memory -----------------------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Brings a shared or register buffer into being; an existing one loses its contents.

        Shared memory is there once for all groups: the first one that comes allocates.
        """
        if self.order is not None and buffer.scope is Scope.SHARED:
            self.shared[buffer.name] = self.order.shared_memory(buffer)
            return
        times = self.allocations[buffer.name] = self.allocations.get(buffer.name, 0) + 1
        known = (self.shared if buffer.scope is Scope.SHARED else self.registers).get(buffer.name)
        if isinstance(known, SharedMemory):
            if times <= known.allocations:
                return
            known.allocations = times
        if known is not None and known.size == buffer.size:
            known.knowledge.forget()
        elif buffer.scope is Scope.SHARED:
            self.shared[buffer.name] = SharedMemory(_poisoned((buffer.size, len(self.blocks)), buffer.dtype))
        else:
            self.registers[buffer.name] = LocalMemory(_poisoned((buffer.size, *self.shape), buffer.dtype))


def _poisoned(shape: tuple[int, ...], dtype: DType | None) -> Array:
    kind = np.dtype(np.int64) if dtype is None else dtype.numpy
    return np.full((*shape, kind.itemsize), _POISON, np.uint8).view(kind)[..., 0]
