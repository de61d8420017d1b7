"""A table whose values are made once each, however many threads ask at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BuildOnce(Generic[Key, Value]):
    """Maps keys to values made on demand. A failed making is reported to all who waited for it, then forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[Key, Future[Value]] = {}

    def get(self, key: Key, make: Callable[[Key], Value]) -> Value:
        """The value of the key: made by `make(key)` unless somebody did or is at it. Raises what `make` raised."""
        found = self._futures.get(key)
        if found is None:
            fresh: Future[Value] = Future()
            with self._lock:
                found = self._futures.setdefault(key, fresh)
            if found is fresh:
                self._fill(key, make, fresh)
        return found.result()

    def _fill(self, key: Key, make: Callable[[Key], Value], future: Future[Value]) -> None:
        try:
            value = make(key)
        except BaseException as error:
            with self._lock:
                del self._futures[key]
            future.set_exception(error)
            raise
        future.set_result(value)

    def clear(self) -> None:
        """Forgets every value; those in use stay alive with their users."""
        with self._lock:
            self._futures = {key: future for key, future in self._futures.items() if not future.done()}
