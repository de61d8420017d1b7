"""Looks for a plan whose kernel the device's compiler made as it was meant: no spills, multiplies that overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from convloom.errors import InternalError
from convloom.frontend.variant import Variant
from convloom.plan.families import Plan


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was built and not taken."""

    plan: Plan
    reason: str


def first_without_spills(
    plans: Iterable[Plan], build: Callable[[Plan], Variant]
) -> tuple[Variant, tuple[Rejected, ...]]:
    """The first plan's variant whose compiler reports nothing wrong (or nothing), and what was rejected before it.

    If there is none, the variant that spills the fewest bytes. requires: at least one plan.
    """
    least: tuple[tuple[bool, int], Variant] | None = None
    rejected: list[Rejected] = []
    for plan in plans:
        variant = build(plan)
        words = compiler_complaint(variant)
        if not words:
            return variant, tuple(rejected)
        rejected.append(Rejected(plan, words))
        if least is None or _faults(variant) < least[0]:
            least = _faults(variant), variant
    if least is None:
        raise InternalError("a choice needs plans to choose from; got none; report this")
    kept = least[1]
    return kept, tuple(item for item in rejected if item.plan != kept.plan)


def compiler_complaint(variant: Variant) -> str:
    """What the device's compiler reports to have made otherwise than meant; empty if nothing."""
    serialised, spilled = _faults(variant)
    if not serialised and not spilled:
        return ""
    return f"the compiler {'serialises the multiplies' if serialised else f'spills {spilled} bytes of registers'}"


def _faults(variant: Variant) -> tuple[bool, int]:
    """Whether multiplies wait for each other, bytes spilled; nothing where the compiler makes no report."""
    reports = [launch.built.resources for launch in variant.launches]
    serialised = any(report.serialised for report in reports if report is not None)
    return serialised, sum(report.spill_bytes or 0 for report in reports if report is not None)
