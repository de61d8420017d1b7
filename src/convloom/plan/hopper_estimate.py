"""The cost model of Hopper plans: turns of persistent blocks, cycles of a K tile, bytes on their way."""

from __future__ import annotations

from convloom.plan.estimate import Cost, Workload, second_pass, step_count, traffic
from convloom.plan.hopper import HopperPlan, Output
from convloom.plan.split import Reduction
from convloom.target.arch import Target

# Cycles and bytes per cycle of one multiprocessor, fitted to some 120 plans on an H200; to be replaced by calibration.
_CACHE_BYTES = 46.0  # that reach a multiprocessor from the cache in front of device memory, all of them reading
_SHARED_BYTES = 128.0  # that a multiply reads from shared memory
_CLOCK = 1.257  # of a multiply that reads nothing, against the sustained rate
_READ_SHARE = 0.4  # of the cycles of these reads that show: they take power, which sets the clock
_READ_OVER = 0.2  # of them beside tiles on their way
_LATENCY = 1750.0  # from asking for a tile to having it
_SKEW = 0.01  # of a step, for each further consumer
_START = 2500.0  # of a block: barriers, maps, the first tiles
_TURN = 600.0  # of a tile: decoding, the last multiply's depth, the epilogue's set-up
_STORE = 17.0  # of 64 pairs of numbers that threads store themselves
_CHUNK = {
    Output.SHARED: 350.0,
    Output.TURNED: 360.0,
    Output.PIECES: 500.0,
}  # of 64 x 64 numbers of a consumer


def estimate_hopper(plan: HopperPlan, work: Workload, target: Target, operand: str) -> Cost:
    """Predicted time of one call, beside those of tiled plans; `operand`: the name of the type that is multiplied."""
    tiles = -(-work.m // plan.block_m) * -(-work.n // plan.block_n) * work.g * work.phases
    blocks = max(tiles * plan.split.parts, 1)
    turns = -(-blocks // target.processors)
    steps = step_count(plan, work)
    tile = steps * _step(plan, work, target, operand) + _epilogue(plan) + _TURN
    compute = (turns * tile + _START) / (target.clock_ghz * 1e9)
    memory = traffic(plan, work, target) / (target.bandwidth_gbs * 1e9)
    return Cost(max(compute, memory) + second_pass(plan, work, target, blocks), compute, memory, blocks)


def _step(plan: HopperPlan, work: Workload, target: Target, operand: str) -> float:
    """Cycles of a K tile: of multiplies, of their reads, of the way of tiles, and of waiting for them."""
    rate = dict(target.group_multiply_adds)[operand]
    m, n, _ = plan.instruction.shape
    nbytes = max(work.a_bytes, work.b_bytes)
    reads = plan.block_m // m * (m + n) * plan.block_k * nbytes / _SHARED_BYTES
    multiplies = plan.block_m * plan.block_n * plan.block_k / (rate * _CLOCK) + _READ_SHARE * reads
    moved = (plan.block_m + plan.block_n) * plan.block_k * nbytes / _CACHE_BYTES + _READ_OVER * reads
    ahead = max(plan.stages - 2, 0.5)  # one is multiplied, one not given back yet
    return max(multiplies, reads, moved, _LATENCY / ahead) * (1 + _SKEW * (plan.consumers - 1))


def _epilogue(plan: HopperPlan) -> float:
    """Cycles in which the consumers of a tile do not multiply."""
    if plan.output is not Output.REGISTERS:
        return plan.multiplies * plan.block_n / 64 * _CHUNK[plan.output]
    return plan.block_m * plan.block_n / 64 * _STORE * (1.0 if plan.split.how is not Reduction.NONE else 2 / plan.store)
