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
        reports = [launch.built.resources for launch in variant.launches]
        spilled = sum(report.spill_bytes or 0 for report in reports if report is not None)
        serialised = any(report.serialised for report in reports if report is not None)
        if not spilled and not serialised:
            return variant, tuple(rejected)
        words = "serialises the multiplies" if serialised else f"spills {spilled} bytes of registers"
        rejected.append(Rejected(plan, f"the compiler {words}"))
        if least is None or (serialised, spilled) < least[0]:
            least = (serialised, spilled), variant
    if least is None:
        raise InternalError("a choice needs plans to choose from; got none; report this")
    kept = least[1]
    return kept, tuple(item for item in rejected if item.plan != kept.plan)
