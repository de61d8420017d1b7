"""Small plans that multiply by a given row: every orientation of the operands, shapes with tails."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.plan.candidates import Arrangement, TileShape, arrangements, build_plan
from convloom.plan.check_plan import check_plan
from convloom.plan.legality import multiplying_rows
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction
from convloom.target.arch import Target
from convloom.target.instruction import Instruction


def multiplying(target: Target) -> tuple[Instruction, ...]:
    """Every row that plans may multiply by."""
    return multiplying_rows(target)


def shape_of(row: Instruction, stages: int, fragments: int) -> TileShape:
    """Two by two fragments a unit, two units a block, two depths of k a tile."""
    m, n, k = row.shape
    if row.lanes == 1:
        return TileShape(4 * 4, 4 * 8, 2 * k, 4, 4, 4, 4, 1, row.name, stages, fragments)
    return TileShape(2 * 2 * m, 2 * n, 2 * k, 2 * m, 2 * n, m, n, 1, row.name, stages, fragments)


def plans(
    row: Instruction, contraction: Contraction, target: Target, stages: int = 1, fragments: int = 1
) -> Iterator[tuple[TiledPlan, Arrangement]]:
    """Legal plans of one shape, one for each arrangement of axes."""
    shape = shape_of(row, stages, fragments)
    for arrangement in arrangements(contraction, target):
        plan = build_plan(shape, arrangement, 32, True)
        if check_plan(plan, contraction, target) is None:
            yield plan, arrangement
