"""Times of two calls, interleaved in one process, so that clocks and temperature act on both alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from convloom.runtime.timing import Timing

Call = Callable[[], object]


class Timer(Protocol):
    """How a device is timed."""

    def cool(self) -> None:
        """Replaces what caches hold by other, clean data; may return before it is done."""
        ...

    def seconds(self, call: Call) -> float:
        """Seconds that the device takes for what `call` starts; waits for it."""
        ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: rounds at least and at most, seconds after which no round begins, calls before the first.

    `warm`: each timed call follows another call of its kind; else the caches are cooled first.
    """

    least: int = 5
    most: int = 15
    budget: float = 3.0
    warm_up: int = 3
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Times of our call, of the same call once more, and of theirs."""

    ours: Timing
    again: Timing
    theirs: Timing

    @property
    def ratio(self) -> float:
        """Their median time divided by ours: above 1 we are faster."""
        return self.theirs.median / self.ours.median

    @property
    def same(self) -> float:
        """Our call against itself: how far from 1 a ratio may be for no reason."""
        return self.again.median / self.ours.median


def measure_pair(
    timer: Timer, ours: Call, theirs: Call, effort: Effort, clock: Callable[[], float] = time.perf_counter
) -> Pair:
    """Rounds of ours, theirs, ours again; the order turns by one from round to round."""
    first, other, again = measure_together(timer, (ours, theirs, ours), effort, clock)
    return Pair(first, again, other)


def measure_together(
    timer: Timer, calls: Sequence[Call], effort: Effort, clock: Callable[[], float] = time.perf_counter
) -> tuple[Timing, ...]:
    """Times of each call: rounds of all of them, in an order that turns by one from round to round."""
    for _ in range(effort.warm_up):
        for call in dict.fromkeys(calls):
            call()
    count = len(calls)
    seconds: list[list[float]] = [[] for _ in calls]
    begin = clock()
    for number in range(effort.most):
        if number >= effort.least and clock() - begin >= effort.budget:
            break
        for place in [(number + offset) % count for offset in range(count)]:
            timer.cool()
            if effort.warm:
                calls[place]()
            seconds[place].append(timer.seconds(calls[place]))
    return tuple(Timing(tuple(values)) for values in seconds)
