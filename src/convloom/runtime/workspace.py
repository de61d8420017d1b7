"""Scratch memory of a device, lent to one call at a time on each stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any, Protocol


class Memory(Protocol):
    """Memory of a device: what launches take for it, and its size."""

    @property
    def handle(self) -> Any:
        """See `interface.BufferHandle`."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size."""
        ...


class WorkspacePool:
    """Memory that calls on one stream take in turn.

    A stream runs launches in order, so memory on which one call has enqueued its launches may be lent to the next call
    on the same stream at once, never to another stream. Calls of several threads at the same time get memory of their
    own. Nothing is given back while the device lives, as a captured graph may use it; sizes are powers of two, so that
    all of a stream's memory is less than twice its largest piece.
    """

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self._allocate = allocate
        self._lock = threading.Lock()
        self._free: dict[Hashable, list[Memory]] = {}

    @contextmanager
    def lend(self, nbytes: int, most: int | None, stream: Hashable) -> Generator[Any]:
        """The handle of `nbytes` or more (at most `most`), undefined, for what the block enqueues on the stream."""
        memory = self._take(nbytes, most, stream)
        try:
            yield memory.handle
        finally:
            with self._lock:
                self._free.setdefault(stream, []).append(memory)

    def _take(self, nbytes: int, most: int | None, stream: Hashable) -> Memory:
        with self._lock:
            kept = self._free.get(stream, [])
            for place, memory in enumerate(kept):
                if nbytes <= memory.nbytes and (most is None or memory.nbytes <= most):
                    return kept.pop(place)
        rounded = 1 << max(nbytes - 1, 0).bit_length()
        return self._allocate(rounded if most is None else max(nbytes, min(rounded, most)))
