"""What the cost model takes a plan to do, as numbers that can be counted when a kernel is interpreted."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.plan.candidates import Arrangement, arrangements
from convloom.plan.estimate import estimate, step_count, tile_accesses, traffic
from convloom.plan.split import Reduction
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction
from convloom.target.arch import Target


@dataclass(frozen=True, slots=True)
class Predicted:
    """Sums over the launch that multiplies, at typical sizes. Padding of tiles counts as work, as on the device.

    `load_accesses`: accesses of threads to global operands; `store_accesses`: to the result; `global_bytes`: through
    device memory, so below what the processors ask for; `barriers`: of blocks.
    """

    blocks: int
    multiply_adds: int
    load_accesses: int
    store_accesses: int
    barriers: int
    global_bytes: int


def predicted(plan: TiledPlan, contraction: Contraction, target: Target) -> Predicted | None:
    """The numbers behind `estimate` for one plan; None for a plan whose axes the cost model never considers."""
    arrangement = _arrangement(plan, contraction, target)
    if arrangement is None:
        return None
    work = arrangement.work
    blocks = estimate(plan, work, target).blocks
    tiles = blocks * step_count(plan, work)
    accesses, _ = tile_accesses(plan)
    direct = plan.split.how is Reduction.NONE or (plan.split.how is Reduction.ATOMIC and work.adds_to_result)
    width = plan.store if direct else plan.sum_width(work.acc_bytes)
    return Predicted(
        blocks,
        tiles * plan.block_m * plan.block_n * plan.block_k,
        round(tiles * accesses),
        blocks * plan.block_m * plan.block_n // width,
        tiles * (2 if plan.stages == 1 else 1) + (blocks if plan.k_groups > 1 else 0),
        round(traffic(plan, work, target)),
    )


def predicted_seconds(plan: TiledPlan, contraction: Contraction, target: Target) -> float | None:
    """What the cost model expects of a call at typical sizes; None as for `predicted`."""
    arrangement = _arrangement(plan, contraction, target)
    return None if arrangement is None else estimate(plan, arrangement.work, target).seconds


def _arrangement(plan: TiledPlan, contraction: Contraction, target: Target) -> Arrangement | None:
    """The arrangement with the plan's axes; their order within a kind does not matter to the numbers."""
    for item in arrangements(contraction, target):
        if item.swap == plan.swap and sorted(item.k.merged) == sorted(plan.merged):
            return item
    return None
