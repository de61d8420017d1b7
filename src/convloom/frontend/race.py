"""Candidates of one problem against each other: built, verified, then timed in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from convloom.errors import ConvloomError
from convloom.frontend.device_stand import Stand
from convloom.frontend.kernel import Kernel
from convloom.frontend.reject_spills import compiler_complaint
from convloom.runtime.pair_timing import Effort, measure_together
from convloom.tune.build_jobs import Proposal

RACE_EFFORT = Effort(least=3, most=10, budget=1.0, warm_up=1)
"""Of a race, per candidate set: fewer rounds than a comparison with an anchor needs, as candidates differ by more."""


class Outcome(Enum):
    """What became of a candidate: only a verified one has a time."""

    MEASURED = "measured"
    REJECTED = "rejected"  # the compiler reports spills, or multiplies that wait for each other
    WRONG = "wrong"
    FAILED = "failed"  # to build, or to run


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate: its plan, predicted seconds, what became of it, and its median and spread in seconds."""

    plan: str
    predicted: float
    outcome: Outcome
    reason: str = ""
    seconds: float | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """All candidates in the order of their proposal, and the kernel of the fastest; None if none was right."""

    tried: tuple[Tried, ...]
    kernel: Kernel | None
    fastest: Tried | None


def race(proposals: Sequence[Proposal], make: Callable[[str], Kernel], stand: Stand, effort: Effort) -> Race:
    """Measures the candidates whose results are right. What goes wrong with one is in its record, not raised."""
    tried: list[Tried] = []
    runners: list[tuple[int, Kernel]] = []
    for place, proposal in enumerate(proposals):
        found, kernel = _verified(proposal, make, stand)
        tried.append(found)
        if kernel is not None:
            runners.append((place, kernel))
    if not runners:
        return Race(tuple(tried), None, None)
    timings = measure_together(stand.timer, [stand.call(kernel) for _, kernel in runners], effort)
    for (place, _), timing in zip(runners, timings, strict=True):
        tried[place] = replace(tried[place], seconds=timing.median, spread=timing.spread)
    best = min(range(len(runners)), key=lambda number: timings[number].median)
    return Race(tuple(tried), runners[best][1], tried[runners[best][0]])


def _verified(proposal: Proposal, make: Callable[[str], Kernel], stand: Stand) -> tuple[Tried, Kernel | None]:
    def ended(outcome: Outcome, reason: str) -> tuple[Tried, None]:
        return Tried(proposal.plan, proposal.predicted, outcome, reason), None

    try:
        kernel = make(proposal.plan)
        complaints = [words for variant in kernel.variants if (words := compiler_complaint(variant))]
        if complaints:
            return ended(Outcome.REJECTED, complaints[0])
        reason = stand.fault(kernel)
    except (ConvloomError, RuntimeError, MemoryError) as error:  # frameworks and drivers raise RuntimeError
        return ended(Outcome.FAILED, f"{type(error).__name__}: {error}")
    if reason:
        return ended(Outcome.WRONG, reason)
    return Tried(proposal.plan, proposal.predicted, Outcome.MEASURED), kernel
