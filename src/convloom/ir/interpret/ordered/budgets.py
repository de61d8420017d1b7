"""Register budgets of warps: what a block holds when it begins, what warps give back and wait for.

Source: NVIDIA, PTX ISA, "setmaxnreg": a pool of the block, from which `inc` takes (it waits) and to which `dec` gives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.ordered.accesses import Actors
from convloom.ir.interpret.ordered.block import Block, Budgets
from convloom.ir.interpret.ordered.group import Group
from convloom.ir.interpret.ordered.roles import RAISE, WARP
from convloom.ir.interpret.ordered.world import World
from convloom.ir.ops import Instruct

_WARPS = 4  # of a warpgroup


def change_budget(group: Group, statement: Instruct, threads: Array) -> Iterator[Pause] | None:
    """Warps give registers back at once, or wait for more."""
    row, budgets = statement.row, group.block.budgets
    values = group.values(statement, group.memory(statement, Actors()))
    row.execute(values)
    wanted = int(values["registers"])
    warps = np.unique(threads // WARP)
    held = budgets.held[warps]
    raised = row.name == RAISE
    if (held > wanted).any() if raised else (held < wanted).any():
        group.report_all(FindingKind.BROKEN_RULE, f"{row.name} of {wanted} registers: warps hold {held[0]}", wanted)
        return None
    needed = int((wanted - held).sum()) * WARP
    if not raised or needed == 0:
        _take(group, budgets, warps, wanted, needed)
        return None
    return _wait(group, budgets, warps, wanted, needed)


def _wait(group: Group, budgets: Budgets, warps: Array, wanted: int, needed: int) -> Iterator[Pause]:
    def awaited() -> str:
        return f"{needed} registers for a budget of {wanted}; the block's pool has {budgets.pool}"

    yield Pause(lambda: budgets.pool >= needed, awaited)
    _take(group, budgets, warps, wanted, needed)


def _take(group: Group, budgets: Budgets, warps: Array, wanted: int, needed: int) -> None:
    budgets.pool -= needed
    budgets.held[warps] = wanted
    budgets.place = group.chunk.place


def check_budgets(world: World, block: Block) -> None:
    """At a block's end: the warps of a warpgroup changed their budgets alike."""
    budgets = block.budgets
    for first in range(0, len(budgets.held), _WARPS):
        part = budgets.held[first : first + _WARPS]
        if budgets.place is not None and (part != part[0]).any():
            numbers = ", ".join(str(int(number)) for number in part)
            subject = f"budgets of the warps of one warpgroup: {numbers}"
            world.report(FindingKind.BROKEN_RULE, budgets.place, subject, block.number, first * WARP)
