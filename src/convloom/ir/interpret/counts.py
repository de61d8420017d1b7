"""What a launch did, counted: memory requests and what they cost, operations, barriers.

A request is one access of one subgroup. Its cost is wavefronts in shared memory, sectors in global memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from convloom.ir.interpret.memory import Bools, Ints
from convloom.ir.ops import Buffer, Scope, Value
from convloom.ir.types import value_type
from convloom.target.memory_requests import Geometry, sectors, wavefronts


@dataclass(slots=True)
class Site:
    """One access statement on one buffer. `units`: wavefronts (shared) or sectors (global); `ideal`: the fewest."""

    path: str
    buffer: str
    scope: Scope
    written: bool
    accesses: int = 0
    requests: int = 0
    units: int = 0
    ideal: int = 0
    moved_bytes: int = 0  # asked for by threads

    @property
    def excess(self) -> float:
        """Units per least possible unit: 1 without bank conflicts, or with full use of every sector."""
        return self.units / self.ideal if self.ideal else 1.0


@dataclass(slots=True)
class Loop:
    """How often threads that advance together entered a loop, and its iterations: the fewest and the most of one."""

    entered: int
    fewest: int
    most: int


@dataclass(slots=True)
class Counts:
    """Sums over all blocks.

    `operations` counts numbers (lanes of active threads) by kind, matrix rows included;
    `rows` executions of instruction rows by name, per group of lanes; `barriers` per block.
    """

    geometry: Geometry = field(default_factory=Geometry)
    sites: dict[tuple[str, str], Site] = field(default_factory=dict[tuple[str, str], Site])
    operations: dict[str, int] = field(default_factory=dict[str, int])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    barriers: int = 0
    loops: dict[str, Loop] = field(default_factory=dict[str, Loop])  # by path

    def loop(self, path: str, iterations: Ints | int) -> None:
        """Adds an entry into a loop; numbers of iterations of the active threads."""
        fewest, most = int(np.min(iterations)), int(np.max(iterations))
        known = self.loops.get(path)
        if known is None:
            self.loops[path] = Loop(1, fewest, most)
        else:
            known.entered += 1
            known.fewest, known.most = min(known.fewest, fewest), max(known.most, most)

    def barrier(self, blocks: int) -> None:
        """Adds a barrier of so many blocks."""
        self.barriers += blocks

    def operation(self, kind: str, operand: Value, active: Bools | None, shape: tuple[int, int]) -> None:
        """Adds an arithmetic operation of the active threads."""
        threads = shape[0] * shape[1] if active is None else int(np.broadcast_to(active, shape).sum())
        self.operations[kind] = self.operations.get(kind, 0) + threads * value_type(operand).lanes

    def row(self, name: str, shape: tuple[int, ...], groups: int) -> None:
        """Adds an instruction row that so many groups of lanes executed; (m, n, k) if it multiplies."""
        self.rows[name] = self.rows.get(name, 0) + groups
        if shape:
            kind = "multiply-add"
            self.operations[kind] = self.operations.get(kind, 0) + groups * prod(shape)

    def access(
        self,
        path: str,
        buffer: Buffer,
        first: Ints,
        nbytes: int,
        taken: Bools | None,
        shape: tuple[int, int],
        written: bool,
    ) -> None:
        """Adds an access: byte address per thread (threads, blocks), bytes of one thread's access."""
        site = self._site(path, buffer, written)
        alike = first.shape[1] == 1 and (taken is None or taken.shape[1] == 1)
        columns = 1 if alike else shape[1]
        factor = shape[1] if alike else 1
        addresses = self._by_subgroup(np.broadcast_to(first, (shape[0], columns)), -1)
        active = np.True_ if taken is None else np.broadcast_to(taken, (shape[0], columns))
        present = self._by_subgroup(np.broadcast_to(active, (shape[0], columns)), 0).astype(np.bool_)
        site.requests += factor * int(present.any(axis=1).sum())
        site.accesses += factor * int(present.sum())
        site.moved_bytes += factor * int(present.sum()) * nbytes
        cost = wavefronts if buffer.scope is Scope.SHARED else sectors
        units, ideal = cost(addresses, present, nbytes, self.geometry)
        site.units += factor * units
        site.ideal += factor * ideal

    def bulk(self, path: str, buffer: Buffer, first: Ints, nbytes: int, written: bool) -> None:
        """Adds a bulk copy's side: byte address of each piece of so many bytes that it moves. One request.

        The copy engine is taken to move shared memory in whole lines of all banks.
        """
        site, geometry = self._site(path, buffer, written), self.geometry
        site.requests += 1
        site.accesses += 1
        site.moved_bytes += first.size * nbytes
        if buffer.scope is Scope.SHARED:
            units = ideal = -(-first.size * nbytes // (geometry.banks * geometry.word_bytes))
        else:
            units, ideal = sectors(first.reshape(1, -1), np.ones((1, first.size), np.bool_), nbytes, geometry)
        site.units += units
        site.ideal += ideal

    def _site(self, path: str, buffer: Buffer, written: bool) -> Site:
        site = self.sites.get((path, buffer.name))
        if site is None:
            site = self.sites[path, buffer.name] = Site(path, buffer.name, buffer.scope, written)
        return site

    def _by_subgroup(self, values: Ints | Bools, filler: int) -> Ints:
        """Shape (subgroups of all blocks, threads of a subgroup)."""
        size = self.geometry.subgroup
        rows = values.T.astype(np.int64)
        missing = -rows.shape[1] % size
        if missing:
            rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=filler)
        return rows.reshape(-1, size)

    # --- sums -------------------------------------------------------------------------------------------------------

    def of_scope(self, scope: Scope) -> tuple[Site, ...]:
        """The sites of one memory."""
        return tuple(site for site in self.sites.values() if site.scope is scope)

    def sector_bytes(self) -> int:
        """Bytes of all sectors moved between global memory and the processors (caches are not modelled)."""
        return self.geometry.sector_bytes * sum(site.units for site in self.of_scope(Scope.GLOBAL))

    def moved_bytes(self, scope: Scope, *, written: bool) -> int:
        """Bytes that threads asked one memory to give or take."""
        return sum(site.moved_bytes for site in self.of_scope(scope) if site.written is written)
