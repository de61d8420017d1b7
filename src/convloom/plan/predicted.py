"""What the cost model takes a plan to do, as numbers that can be counted when a kernel is interpreted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convloom.plan.candidates import Arrangement, arrangements
from convloom.plan.estimate import estimate, step_count, tile_accesses, traffic
from convloom.plan.families import Plan
from convloom.plan.hopper import HopperPlan
from convloom.plan.hopper_estimate import estimate_hopper
from convloom.plan.shared_layout import stored_type
from convloom.plan.split import Reduction
from convloom.plan.tile_requests import tile_requests
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, exchange
from convloom.target.arch import Target
from convloom.target.memory_requests import Geometry

LINE_BYTES = Geometry().banks * Geometry().word_bytes
"""What all banks of shared memory serve in one wavefront; fragments are taken to be loaded without bank conflicts."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Sums over the launch that multiplies, at typical sizes. Padding of tiles counts as work, as on the device.

    `load_accesses`: accesses of threads to global operands; `store_accesses`: to the result; `global_bytes`: through
    device memory, so below what the processors ask for; `load_sectors`: of A and B, as asked for; `barriers`: of
    blocks. `multiplies`: executions of the plan's instruction (0: single threads multiply). Of shared memory: bytes and
    wavefronts of the stores of tiles, and of the loads of fragments; `handed_bytes`: what K groups store and load
    beside.
    """

    blocks: int
    multiply_adds: int
    load_accesses: int
    store_accesses: int
    barriers: int
    global_bytes: int
    load_sectors: int
    multiplies: int
    written_bytes: int
    written_wavefronts: int
    read_bytes: int
    read_wavefronts: int
    handed_bytes: int


def predicted(plan: Plan, contraction: Contraction, target: Target) -> Predicted | None:
    """The numbers behind `estimate` for one tiled plan; None for one whose axes the cost model never considers."""
    arrangement = _arrangement(plan, contraction, target)
    if arrangement is None or not isinstance(plan, TiledPlan):
        return None
    work = arrangement.work
    blocks = estimate(plan, work, target).blocks
    tiles = blocks * step_count(plan, work)
    accesses, _ = tile_accesses(plan)
    direct = plan.split.how is Reduction.NONE or (plan.split.how is Reduction.ATOMIC and work.adds_to_result)
    width = (plan.collect or plan.store) if direct else plan.sum_width(work.acc_bytes)
    collected = blocks * plan.block_m * plan.block_n * work.c_bytes if plan.collect else 0
    requests = tile_requests(plan, exchange(contraction) if plan.swap else contraction)
    products = plan.block_m * plan.block_n * plan.block_k
    row = plan.instruction
    read = tiles * _fragment_bytes(plan, contraction)
    return Predicted(
        blocks,
        tiles * products,
        round(tiles * accesses),
        blocks * plan.block_m * plan.block_n // width,
        _barriers(plan, blocks, tiles),
        round(traffic(plan, work, target)),
        tiles * requests.sectors,
        0 if row is None else tiles * products // prod(row.shape),
        tiles * requests.written_bytes + collected,
        tiles * requests.wavefronts + collected // LINE_BYTES,
        read + collected,
        (read + collected) // LINE_BYTES,
        blocks * (plan.k_groups - 1) * plan.block_m * plan.block_n * work.acc_bytes,
    )


def _barriers(plan: TiledPlan, blocks: int, tiles: int) -> int:
    """One in front and one behind each K tile; a pipeline needs one of them. K groups hand over once.

    A collected tile of C is parted from what was there before, and from its stores.

    Where fragments are carried from tile to tile, one more stands in front of the first.
    """
    ahead = blocks if plan.carries else 0
    once = int(plan.k_groups > 1) + (2 if plan.collect else 0)
    return tiles * (2 if plan.stages == 1 else 1) + ahead + blocks * once


def _fragment_bytes(plan: TiledPlan, contraction: Contraction) -> int:
    """Bytes that the threads of a block load from the tiles of one K step."""
    row = plan.instruction
    units = plan.units_m * plan.units_n
    sizes = [contraction.acc.nbytes] * 2 if row is None else [stored_type(row, name).nbytes for name in "ab"]
    return units * plan.block_k * (plan.thread_m * sizes[0] + plan.thread_n * sizes[1])


def predicted_seconds(plan: Plan, contraction: Contraction, target: Target) -> float | None:
    """What the cost model expects of a call at typical sizes; None for axes that it never considers."""
    arrangement = _arrangement(plan, contraction, target)
    if arrangement is None:
        return None
    if isinstance(plan, HopperPlan):
        return estimate_hopper(plan, arrangement.work, target, contraction.a.dtype.name).seconds
    return estimate(plan, arrangement.work, target).seconds


def _arrangement(plan: Plan, contraction: Contraction, target: Target) -> Arrangement | None:
    """The arrangement with the plan's axes; their order within a kind does not matter to the numbers."""
    for item in arrangements(contraction, target):
        if item.swap == plan.swap and sorted(item.k.merged) == sorted(plan.merged):
            return item
    return None
