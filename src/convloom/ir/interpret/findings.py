"""What the interpreter reports: one record per place and kind of fault, with threads and addresses."""

from __future__ import annotations

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
    MISALIGNED = "misaligned vector access"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: kind, the statement's path in the kernel and its text, the buffer, and examples (block, thread, index)."""

    kind: FindingKind
    path: str
    statement: str
    subject: str
    examples: tuple[tuple[int, int, int], ...]
    count: int

    def __str__(self) -> str:
        shown = ", ".join(f"block {block} thread {thread} index {index}" for block, thread, index in self.examples)
        return f"{self.kind.value}: {self.subject} at {self.path}: {self.statement} ({self.count} times: {shown})"


@dataclass(slots=True)
class Findings:
    """Collects findings, one per (kind, path, subject); later ones of the same place only count."""

    _by_place: dict[tuple[FindingKind, str, str], Finding] = field(
        default_factory=dict[tuple[FindingKind, str, str], Finding]
    )

    def __iter__(self):  # noqa: ANN204 - the element type is plain from the next line
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    def add(
        self,
        kind: FindingKind,
        place: tuple[str, str],
        subject: str,
        blocks: NDArray[np.int64],
        threads: NDArray[np.int64],
        indices: NDArray[np.int64],
    ) -> None:
        """Records the events of equal-length arrays; `place` is (path, statement text)."""
        if not blocks.size:
            return
        path, statement = place
        known = self._by_place.get((kind, path, subject))
        before = 0 if known is None else known.count
        examples = tuple(
            (int(block), int(thread), int(index))
            for block, thread, index in zip(blocks[:_KEPT], threads[:_KEPT], indices[:_KEPT], strict=True)
        )
        kept = examples if known is None else known.examples
        self._by_place[kind, path, subject] = Finding(kind, path, statement, subject, kept, before + int(blocks.size))
