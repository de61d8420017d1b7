"""Runs the blocks of a grid on persistent threads that share one queue."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from convloom import settings
from convloom.runtime.build_once import BuildOnce

CHUNKS_PER_THREAD = 8
"""Parts that a grid is cut into, per thread: enough to even out unequal blocks."""
_STACK_BYTES = 16 * 2**20  # tiles of a block live on the stack; some systems give threads only half a megabyte

Task = Callable[[int, int], object]


class _Job:
    """One grid being run. Helpers inside a chunk are counted, so that the caller can wait for exactly those."""

    __slots__ = (
        "_chunks",
        "_error",
        "_first",
        "_gate",
        "_helpers",
        "_last",
        "_lock",
        "_next",
        "_step",
        "_task",
        "_waiting",
    )

    def __init__(self, task: Task, first: int, last: int, chunks: int) -> None:
        self._task = task
        self._first = first
        self._last = last
        total = last - first
        self._step = -(-total // chunks)
        self._chunks = -(-total // self._step)
        self._next = 0
        self._helpers = 0
        self._waiting = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._gate.acquire()

    def help(self) -> None:
        """Runs chunks on a pool thread until none is left."""
        while (number := self._take(1)) is not None:
            try:
                self._run(number)
            except BaseException as error:  # noqa: BLE001 (raised again by the calling thread)
                self._error = error
                self._close()
            finally:
                self._leave()

    def lead(self) -> None:
        """Runs chunks on the calling thread, then waits for the helpers, even if interrupted: they use the buffers."""
        try:
            while (number := self._take(0)) is not None:
                self._run(number)
        finally:
            self._close()
            self._wait()
        if self._error is not None:
            raise self._error

    def _run(self, number: int) -> None:
        first = self._first + number * self._step
        self._task(first, min(first + self._step, self._last))

    def _take(self, helpers: int) -> int | None:
        with self._lock:
            if self._next >= self._chunks:
                return None
            self._helpers += helpers
            self._next += 1
            return self._next - 1

    def _leave(self) -> None:
        with self._lock:
            self._helpers -= 1
            if self._waiting and self._helpers == 0:
                self._waiting = False
                self._gate.release()

    def _close(self) -> None:
        with self._lock:
            self._next = self._chunks

    def _wait(self) -> None:
        with self._lock:
            self._waiting = self._helpers > 0
            if not self._waiting:
                return
        interrupted: BaseException | None = None
        while True:
            try:
                self._gate.acquire()
                break
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted


class ThreadPool:
    """Persistent worker threads. Any number of callers may run grids at once; the calling thread works too."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        usual = threading.stack_size(_STACK_BYTES)
        try:
            for number in range(threads - 1):
                threading.Thread(target=self._serve, name=f"convloom-cpu-{number}", daemon=True).start()
        finally:
            threading.stack_size(usual)

    def _serve(self) -> None:
        while True:
            self._queue.get().help()

    def run(self, task: Task, first: int, last: int) -> None:
        """Calls `task(a, b)` on ranges that cover range(first, last) once; returns when all are done."""
        total = last - first
        if total <= 0:
            return
        job = _Job(task, first, last, min(total, self.threads * CHUNKS_PER_THREAD))
        for _ in range(min(self.threads, total) - 1):
            self._queue.put(job)
        job.lead()


_pools: BuildOnce[tuple[int, int], ThreadPool] = BuildOnce()


def current_pool() -> ThreadPool:
    """The pool of this process (threads do not survive a fork) with the number of threads that the settings ask for."""
    return _pools.get((os.getpid(), settings.current().threads), lambda key: ThreadPool(key[1]))
