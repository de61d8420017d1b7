"""The families of plans: which record a text names, the text of a record, versions, and what tells plans apart."""

from __future__ import annotations

from collections.abc import Hashable
from math import log2

from convloom.plan import tiled
from convloom.plan.hopper import FAMILY, HopperPlan, hopper_text, parse_hopper
from convloom.plan.tiled import TiledPlan

Plan = TiledPlan | HopperPlan

VERSIONS = {"tiled": 1, FAMILY: 1}
"""Of each family a number that is raised when a plan's text changes its meaning, or its kernels change their speed.

Times that were measured under other numbers no longer count (`tune.database`).
"""


def plan_text(plan: Plan) -> str:
    """One line that begins with the plan's family; `parse_plan` reads it back to an equal plan."""
    return hopper_text(plan) if isinstance(plan, HopperPlan) else tiled.plan_text(plan)


def parse_plan(text: str) -> Plan:
    """The plan of a text of any family; Infeasible names what is wrong with it."""
    return parse_hopper(text) if text.split()[:1] == [FAMILY] else tiled.parse_plan(text)


def generator_text() -> str:
    """The versions of all families in words, `hopper=1 tiled=1`: which of them won depends on every one."""
    return " ".join(f"{family}={VERSIONS[family]}" for family in sorted(VERSIONS))


def plan_outline(plan: Plan) -> Hashable:
    """What decides most of a kernel's time; plans that have it in common differ in detail.

    That is the kind of what multiplies, the orientation, how C is tiled among blocks and within one, how K is divided;
    sizes are told apart in steps of about 1.4. The rest (depth and number of stages, order of axes, swizzles, how
    results leave) is left to the cost model.
    """
    tile = _size_class(plan.block_m), _size_class(plan.block_n)
    shared = (plan.swap, *tile, plan.split.how)
    if isinstance(plan, HopperPlan):
        return (FAMILY, *shared, plan.consumers)
    return ("tiled", plan.row, *shared, plan.thread_m, plan.thread_n, plan.k_groups)


def _size_class(size: int) -> int:
    """Equal for sizes that differ by less than a step: 192, 208; 64; 80, 96."""
    return round(2 * log2(size))
