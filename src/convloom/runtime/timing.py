"""Times a launch on any device: warm-up, repetitions, median."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from convloom.runtime.interface import Device


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call over several repetitions."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Difference of the upper and lower quartile, in seconds; 0 for fewer than two repetitions."""
        if len(self.seconds) < 2:
            return 0.0
        lower, _, upper = quantiles(self.seconds, n=4, method="inclusive")
        return upper - lower


def measure(
    device: Device,
    call: Callable[[], None],
    *,
    warm_up: int = 2,
    most: int = 50,
    least: int = 3,
    budget: float = 0.5,
    stream: Any = None,
) -> Timing:
    """Times of `call` on the device: at least `least` and at most `most`, stopping when `budget` seconds are spent."""
    for _ in range(warm_up):
        call()
    device.synchronize(stream)
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < least or (len(seconds) < most and time.perf_counter() - start < budget):
        seconds.append(device.time_once(call, stream))
    return Timing(tuple(seconds))
