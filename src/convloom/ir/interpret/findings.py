"""What the interpreter reports: one record per place and kind of fault, with threads and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

_KEPT = 4  # examples of threads and addresses kept in a finding


class FindingKind(Enum):
    """Kinds of faults."""

    OUT_OF_BOUNDS = "access out of bounds"
    UNINITIALISED = "read of memory that nobody wrote"
    RACE = "data race"
    DIVERGENT_BARRIER = "barrier not reached by all threads"
    OVERFLOW = "overflow of 32-bit index math"
    DIVISION = "division by zero in index math"
    MISALIGNED = "misaligned vector access"
    BROKEN_RULE = "instruction whose rule is broken"
    PARTIAL_GROUP = "instruction not executed by all lanes of its group"
    DEADLOCK = "threads wait for what nobody will do"
    UNFENCED = "fence missing between ordinary and asynchronous access"
    UNFINISHED = "asynchronous operation that nobody waited for"
    BROKEN_FACT = "value outside the facts of its name"


@dataclass(frozen=True, slots=True)
class Place:
    """A statement: its path in the kernel (numbers of the enclosing bodies' statements) and its text."""

    path: str
    statement: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: kind, place, what was accessed, examples (block, thread, index), and how often it happened."""

    kind: FindingKind
    place: Place
    subject: str
    examples: tuple[tuple[int, int, int], ...]
    count: int

    def __str__(self) -> str:
        shown = ", ".join(f"block {block} thread {thread} index {index}" for block, thread, index in self.examples)
        place = f"{self.place.path}: {self.place.statement}"
        return f"{self.kind.value}: {self.subject} at {place} ({self.count} times: {shown})"


@dataclass(slots=True)
class Findings:
    """Collects findings, one per (kind, path, subject); later ones of the same place only count."""

    _by_place: dict[tuple[FindingKind, str, str], Finding] = field(
        default_factory=dict[tuple[FindingKind, str, str], Finding]
    )

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    def kinds(self) -> frozenset[FindingKind]:
        """The kinds of faults found."""
        return frozenset(finding.kind for finding in self)

    def add(
        self,
        kind: FindingKind,
        place: Place,
        subject: str,
        blocks: NDArray[np.int64],
        threads: NDArray[np.int64],
        indices: NDArray[np.int64],
    ) -> None:
        """Records the events of three arrays of equal length."""
        if not blocks.size:
            return
        known = self._by_place.get((kind, place.path, subject))
        if known is None:
            kept = zip(blocks[:_KEPT].tolist(), threads[:_KEPT].tolist(), indices[:_KEPT].tolist(), strict=True)
            found = Finding(kind, place, subject, tuple(kept), int(blocks.size))
        else:
            found = Finding(kind, place, subject, known.examples, known.count + int(blocks.size))
        self._by_place[kind, place.path, subject] = found
