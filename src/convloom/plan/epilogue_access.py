"""How the epilogue reads its operands: one number, a vector, or number by number, beside each run of columns of C."""

from __future__ import annotations

from enum import Enum

from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.grid_plan import GridPlan
from convloom.problem.contraction import AxisKind, Contraction, Operand

_WIDEST_BITS = 1024  # longer runs than any store


class ExtraAccess(Enum):
    """What goes along with a run of `store` columns."""

    SAME = "same"  # one number for all of them
    VECTOR = "vector"  # as many consecutive numbers
    GATHER = "gather"  # one read for each


def extra_access(operand: Operand, contraction: Contraction, plan: GridPlan) -> ExtraAccess:
    """The cheapest access that the operand's view allows."""
    if plan.store == 1 or not varies_along_n(operand, contraction):
        return ExtraAccess.SAME
    merged = flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g, (plan.block_m, plan.block_n, plan.block_k))
    widest = flat_width(operand, merged, (), "N", _WIDEST_BITS)
    return ExtraAccess.VECTOR if widest % plan.store == 0 else ExtraAccess.GATHER


def varies_along_n(operand: Operand, contraction: Contraction) -> bool:
    """Whether the columns of C have numbers of their own."""
    names = {axis.name for axis in operand.view.axes}
    return any(axis.name in names for axis in contraction.of_kind(AxisKind.N))
