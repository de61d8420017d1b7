"""The analytic cost model: waves of blocks, cycles of arithmetic, accesses and loops, bytes through device memory."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import dtype_named
from convloom.plan.grid_plan import GridPlan
from convloom.plan.shared_layout import shared_bytes, stored_type
from convloom.plan.split import LOADS_AHEAD, Reduction
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.target.arch import Target
from convloom.target.fragment_access import packing


@dataclass(frozen=True, slots=True)
class Workload:
    """A contraction at typical sizes with one order of its axes: what the cost model needs and nothing else."""

    m: int
    n: int
    g: int
    serial: int  # iterations of the serial K loops, summed over phases and divided by their number
    k: int  # extent of the flat K index
    phases: int
    acc_name: str
    acc_bytes: int
    acc_is_float: bool
    adds_to_result: bool  # atomic sums need no workspace
    a_bytes: int  # bytes of one number
    b_bytes: int
    c_bytes: int
    a_footprint: int  # bytes of the whole tensors
    b_footprint: int
    c_footprint: int
    a_split_cost: float  # relative cost of index math of the flat K index
    b_split_cost: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted seconds and their parts."""

    seconds: float
    compute: float
    memory: float
    blocks: int


# Cycles per thread-level event; fitted by hand on one machine of each kind, to be replaced by calibration.
_ACCESS_CYCLES = {True: 3.0, False: 8.0}  # one masked global access with its index math: vector machine, thread machine
_SCATTER_CYCLES = 1.0  # one number stored to shared memory across rows
_STEP_CYCLES = {True: 12.0, False: 40.0}  # loop and barrier overhead of one K tile, per thread or per block
_BLOCK_CYCLES = {True: 300.0, False: 1500.0}  # decoding, clearing, epilogue set-up of one block
_STORE_CYCLES = {True: 2.0, False: 8.0}
_LATENCY_CYCLES = 700.0  # from asking device memory to having the data in shared memory
_LAUNCH_SECONDS = {True: 2e-6, False: 3e-6}  # of a further launch of the same call
_NEAR_CACHE = 2.0  # how much faster than device memory partial sums come back: most are still in the cache
_BANKS = 32
_REGISTER_FILE = 65536  # 32-bit registers of a multiprocessor


def estimate(plan: TiledPlan, work: Workload, target: Target) -> Cost:
    """Predicted time of one call; only differences between plans of one workload matter."""
    vector_machine = target.vector_bits > 32
    tiles = -(-work.m // plan.block_m) * -(-work.n // plan.block_n)
    blocks = max(tiles * work.g * work.phases * plan.split.parts, 1)
    steps = step_count(plan, work)
    resident = 1 if vector_machine else resident_blocks(plan, work, target)
    if vector_machine:
        waves, per_block = -(-blocks // target.processors), _vector_block(plan, work, target, steps)
    else:
        busy = min(resident, max(1, -(-blocks // target.processors)))
        waves = max(1.0, blocks / (target.processors * busy)) * busy
        per_block = _thread_block(plan, work, target, steps, busy)
    compute = waves * per_block / (target.clock_ghz * 1e9)
    memory = _traffic(plan, work, target, resident) / (target.bandwidth_gbs * 1e9)
    return Cost(max(compute, memory) + second_pass(plan, work, target, blocks), compute, memory, blocks)


@dataclass(frozen=True, slots=True)
class _Passes:
    """What a split adds to a call: launches, and how often its partial sums pass the cache (additions count twice)."""

    launches: int
    visits: float


_PASSES = {Reduction.PASSES: _Passes(1, 2.0), Reduction.ATOMIC: _Passes(2, 3.0)}


def second_pass(plan: GridPlan, work: Workload, target: Target, blocks: int) -> float:
    """Seconds for partial sums on their way between blocks, and for the launches that this takes."""
    if plan.split.how is Reduction.NONE:
        return 0.0
    partial = blocks * plan.block_m * plan.block_n * work.acc_bytes
    passes = _PASSES[plan.split.how]
    waits = -(-plan.split.parts // LOADS_AHEAD) if plan.split.how is Reduction.PASSES else 1
    waited = 0.0 if target.vector_bits > 32 else waits * _LATENCY_CYCLES / (target.clock_ghz * 1e9)
    moved = passes.visits * partial / (target.bandwidth_gbs * 1e9 * _NEAR_CACHE)
    return passes.launches * _LAUNCH_SECONDS[target.vector_bits > 32] + waited + moved


def step_count(plan: GridPlan, work: Workload) -> int:
    """K tiles of one block."""
    return -(-work.serial * -(-work.k // plan.block_k) // plan.split.parts)


def resident_blocks(plan: GridPlan, work: Workload, target: Target) -> int:
    """Blocks that one multiprocessor holds at a time."""
    if not isinstance(plan, TiledPlan):
        return 1  # persistent blocks fill it
    shared = shared_bytes(plan, dtype_named(work.acc_name))
    return max(
        1,
        min(
            target.resident_threads // plan.threads,
            target.max_shared_bytes // max(shared, 1),
            _REGISTER_FILE // (plan.threads * plan.registers()),
        ),
    )


def tile_accesses(plan: TiledPlan) -> tuple[float, float]:
    """(global accesses, turns of shared memory for numbers scattered to it, per thread) of one K tile of a block."""
    accesses = scattered = 0.0
    for name, transfer, rows in (("a", plan.a, plan.block_m), ("b", plan.b, plan.block_n)):
        accesses += rows * plan.block_k / transfer.vector
        scattered += rows * plan.block_k * _bank_turns(plan, name, transfer)
    return accesses, scattered


def _bank_turns(plan: TiledPlan, name: str, transfer: Transfer) -> float:
    """Turns of shared memory, by numbers, for the stores of an access whose numbers do not lie together."""
    row = plan.instruction
    if plan.lanes > 1:
        return 1.0 if transfer.vector > 1 and transfer.along is Along.K else 0.0
    if transfer.along is Along.ROW:
        scattered = row is not None and packing(row, name, False) > 1
        return float(transfer.vector) if scattered else 0.0
    if row is not None and row.lanes > 1:
        return 0.0
    depth = 1 if row is None else row.shape[2]
    lines = min(plan.block_k // max(transfer.vector, depth), _BANKS)
    return max(lines / transfer.swizzle, 1.0) / depth


def _vector_block(plan: TiledPlan, work: Workload, target: Target, steps: int) -> float:
    """Cycles of one block on one core, its threads one after the other."""
    rate = dict(target.multiply_adds)[work.acc_name] / max(target.vector_bits // (8 * work.acc_bytes), 1)
    vectors = plan.thread_n // plan.lanes
    arithmetic = max(plan.thread_m * vectors / rate, (plan.thread_m + vectors) / 2) * plan.block_k
    spill = 3.0 if plan.thread_m * vectors + vectors + 1 > target.max_registers else 1.0
    copies = 2.0 * plan.thread_m * vectors + _STEP_CYCLES[True]
    accesses, scattered = tile_accesses(plan)
    split = (work.a_split_cost + work.b_split_cost) / 2
    step = (
        plan.threads * (arithmetic * spill + copies)
        + accesses * _ACCESS_CYCLES[True] * split
        + scattered * _SCATTER_CYCLES
    )
    stores = plan.block_m * plan.block_n / plan.store * _STORE_CYCLES[True]
    return steps * step + stores + _BLOCK_CYCLES[True]


def _thread_block(plan: TiledPlan, work: Workload, target: Target, steps: int, resident: int) -> float:
    """Cycles of one block while `resident` blocks share a multiprocessor."""
    numbers = plan.block_m * plan.block_n * plan.block_k
    row = plan.instruction
    if row is None or row.lanes == 1:
        deep = 1 if row is None else row.shape[2]
        arithmetic = numbers / (dict(target.multiply_adds)[work.acc_name] if row is None else target.row_rate(row))
        fragments = plan.thread_m / plan.chunk_m + plan.thread_n / plan.chunk_n
        shared = plan.group_threads * fragments * plan.block_k / deep / 8.0
    else:
        arithmetic = numbers / target.row_rate(row)
        units = plan.units_m * plan.units_n
        shared = units * (plan.thread_m + plan.thread_n) * plan.block_k * stored_type(row, "a").nbytes / 128.0
    accesses, scattered = tile_accesses(plan)
    split = (work.a_split_cost + work.b_split_cost) / 2
    loads = (accesses * _ACCESS_CYCLES[False] * split + scattered * _SCATTER_CYCLES) / 32.0
    idle = max(1.0, 128.0 / (plan.threads * resident))
    work_cycles = (max(arithmetic, shared) + loads) * idle + _STEP_CYCLES[False]
    hidden = resident * max(plan.stages - 1, 1)
    stores = plan.block_m * plan.block_n / (plan.collect or plan.store) * _STORE_CYCLES[False] / 32.0
    handed = 2.0 * (plan.k_groups - 1) * plan.block_m * plan.block_n * work.acc_bytes / 128.0
    return steps * max(work_cycles, _LATENCY_CYCLES / hidden) + handed + stores + _BLOCK_CYCLES[False]


def traffic(plan: GridPlan, work: Workload, target: Target) -> float:
    """Bytes through device memory."""
    return _traffic(plan, work, target, resident_blocks(plan, work, target))


def _traffic(plan: GridPlan, work: Workload, target: Target, resident: int) -> float:
    if target.vector_bits > 32:  # every second re-read of an operand misses the cache
        again_a = max(1.0, -(-work.n // plan.block_n) / 16)
        again_b = max(1.0, -(-work.m // plan.block_m) / 16)
    else:
        again_a, again_b = _reads(plan, work, target, resident)
    return work.a_footprint * again_a + work.b_footprint * again_b + work.c_footprint


def _reads(plan: GridPlan, work: Workload, target: Target, resident: int) -> tuple[float, float]:
    """How often A and B come from device memory: once if they stay in the cache, else once per wave that needs them.

    A wave of blocks that run together needs the strips of the rows and columns of tiles that it covers: with a walk in
    bands, up to `walk` rows; row by row, as many rows as it fills.
    """
    rows, columns = -(-work.m // plan.block_m), -(-work.n // plan.block_n)
    wave = min(target.processors * resident, rows * columns)
    if plan.walk == 1:
        high, wide = -(-wave // columns), min(wave, columns)
    else:
        high = min(plan.walk, rows)
        wide = min(-(-wave // high), columns)
        high = max(high, -(-wave // columns))
    waves = rows * columns / wave
    fits = target.cache_bytes / 2
    a = 1.0 if work.a_footprint <= fits else max(1.0, waves * high / rows)
    b = 1.0 if work.b_footprint <= fits else max(1.0, waves * wide / columns)
    return a, b
