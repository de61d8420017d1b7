"""Who accessed each piece of a memory last, as epochs of vector clocks, and whether a new access comes after them.

An epoch is a column of the clocks and a number: the access is known to whoever has seen that number in that column.
Threads have a column each; so have barriers (for the copies that count on them) and groups of asynchronous operations.
Between two plain writes every read is kept, unless a later one is ordered behind it: whoever comes after the later one
comes after both. So no pair without order is missed.
Method: Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", 2009.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from convloom.ir.interpret.memory import NOBODY, Array, Bools

FLYING = 1 << 30
"""From this number on, an epoch stands for an asynchronous operation that has not landed: nobody has seen it."""


@dataclass(frozen=True, slots=True)
class View:
    """What the accessing threads have seen: `seen` and `fenced` have a row each, `rows` says whose of each access."""

    seen: Array
    fenced: Array
    rows: Array
    asynchronous: bool

    def take(self, kept: Bools) -> View:
        """The view of some of the accesses."""
        return View(self.seen, self.fenced, self.rows[kept], self.asynchronous)

    def ordered(self, columns: Array, clocks: Array) -> Bools:
        """Whether epochs come before the accesses; those of NOBODY do."""
        return (columns < 0) | (self.seen[self.rows, np.maximum(columns, 0)] >= clocks)

    def published(self, columns: Array, clocks: Array) -> Bools:
        """Whether a proxy fence lies between epochs and the accesses."""
        return (columns < 0) | (self.fenced[self.rows, np.maximum(columns, 0)] >= clocks)


@dataclass(frozen=True, slots=True)
class Access:
    """Accesses to `places`, each of which leaves an epoch."""

    places: Array
    columns: Array
    clocks: Array
    view: View

    def take(self, kept: Bools) -> Access:
        """Some of them."""
        return Access(self.places[kept], self.columns[kept], self.clocks[kept], self.view.take(kept))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Per access: no order with an earlier one (and its column), or no fence between two proxies."""

    unordered: Bools
    unfenced: Bools
    other: Array


@dataclass(slots=True)
class _Epochs:
    """Any number of epochs per place, in layers."""

    size: int
    columns: list[Array] = field(default_factory=list[Array])
    clocks: list[Array] = field(default_factory=list[Array])

    def note(self, access: Access) -> None:
        """Adds epochs; one that came before the new access at its place gives way."""
        layer = 0
        while access.places.size:
            if layer == len(self.columns):
                self.columns.append(np.full(self.size, NOBODY, np.int32))
                self.clocks.append(np.zeros(self.size, np.int32))
            columns, clocks = self.columns[layer], self.clocks[layer]
            held = columns[access.places]
            free = (held == access.columns) | access.view.ordered(held, clocks[access.places])
            target = access.places[free]
            columns[target], clocks[target] = access.columns[free], access.clocks[free]
            access = access.take(columns[access.places] != access.columns)
            layer += 1

    def unordered(self, access: Access) -> tuple[Bools, Array]:
        """(whether some epoch at the place does not come before the access, the column of one)."""
        wrong = np.zeros(access.places.shape, np.bool_)
        other = np.full(access.places.shape, NOBODY, np.int64)
        for columns, clocks in zip(self.columns, self.clocks, strict=True):
            held = columns[access.places]
            late = ~access.view.ordered(held, clocks[access.places])
            other[late], wrong = held[late], wrong | late
        return wrong, other

    def land(self, places: Array, flying: int, clock: int) -> None:
        """Epochs in flight at these places become known ones."""
        for clocks in self.clocks:
            own = places[clocks[places] == flying]
            clocks[own] = clock

    def clear(self, places: Array) -> None:
        for columns in self.columns:
            columns[places] = NOBODY


class Shadow:
    """The last accesses to `size` pieces of a memory."""

    def __init__(self, size: int) -> None:
        self.columns = np.full(size, NOBODY, np.int32)
        self.clocks = np.zeros(size, np.int32)
        self.asynchronous = np.zeros(size, np.bool_)
        self._readers = _Epochs(size)
        self._updaters = _Epochs(size)

    def read(self, access: Access) -> Verdict:
        """Notes reads."""
        found = self._after_write(access, self._updaters)
        self._readers.note(access)
        return found

    def write(self, access: Access) -> Verdict:
        """Notes writes; two of one statement at one place are unordered too."""
        found = self._after_write(access, self._readers, self._updaters)
        self.columns[access.places], self.clocks[access.places] = access.columns, access.clocks
        self.asynchronous[access.places] = access.view.asynchronous
        self._readers.clear(access.places)
        self._updaters.clear(access.places)
        lost = self.columns[access.places] != access.columns
        found.other[lost] = self.columns[access.places][lost]
        return Verdict(found.unordered | lost, found.unfenced, found.other)

    def update(self, access: Access) -> Verdict:
        """Notes indivisible accesses, which do not conflict with each other."""
        found = self._after_write(access, self._readers)
        self._updaters.note(access)
        return found

    def _after_write(self, access: Access, *others: _Epochs) -> Verdict:
        columns, clocks = self.columns[access.places], self.clocks[access.places]
        unordered = ~access.view.ordered(columns, clocks)
        other = np.where(unordered, columns, NOBODY).astype(np.int64)
        unfenced = np.zeros_like(unordered)
        if access.view.asynchronous:
            plain = ~self.asynchronous[access.places] & ~unordered
            unfenced = plain & ~access.view.published(columns, clocks)
        for epochs in others:
            late, whose = epochs.unordered(access)
            other[late], unordered = whose[late], unordered | late
        return Verdict(unordered, unfenced, other)

    def land(self, places: Array, flying: int, clock: int) -> None:
        """Writes of an operation in flight become ones of a known epoch, unless others came over them."""
        own = places[self.clocks[places] == flying]
        self.clocks[own] = clock

    def land_reads(self, places: Array, flying: int, clock: int) -> None:
        """The same for reads."""
        self._readers.land(places, flying, clock)
