"""The families of plans: which record a text names, and the text of a record."""

from __future__ import annotations

from convloom.plan import tiled
from convloom.plan.hopper import FAMILY, HopperPlan, hopper_text, parse_hopper
from convloom.plan.tiled import TiledPlan

Plan = TiledPlan | HopperPlan


def plan_text(plan: Plan) -> str:
    """One line that begins with the plan's family; `parse_plan` reads it back to an equal plan."""
    return hopper_text(plan) if isinstance(plan, HopperPlan) else tiled.plan_text(plan)


def parse_plan(text: str) -> Plan:
    """The plan of a text of any family; Infeasible names what is wrong with it."""
    return parse_hopper(text) if text.split()[:1] == [FAMILY] else tiled.parse_plan(text)
