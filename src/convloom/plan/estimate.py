"""The analytic cost model: waves of blocks, cycles of arithmetic, accesses and loops, bytes through device memory."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import dtype_named
from convloom.plan.grid_plan import GridPlan
from convloom.plan.shared_layout import shared_bytes, stored_type
from convloom.plan.split import Reduction
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


# Cycles of a vector machine per event; fitted by hand on one processor.
_ACCESS_CYCLES = 3.0  # one masked global access with its index math
_SCATTER_CYCLES = 1.0  # one number stored to shared memory across rows
_STEP_CYCLES = 12.0  # loop overhead of one K tile, per thread
_BLOCK_CYCLES = 300.0  # decoding, clearing, epilogue set-up of one block
_STORE_CYCLES = 2.0


@dataclass(frozen=True, slots=True)
class _Events:
    """Cycles of a multiprocessor per event, for one way to multiply.

    access, scatter, store: one of a warp. block: decoding, clearing, launch of one block. exposed: of one K tile, what
    one block waits for barriers and memory; other blocks on the multiprocessor hide it by the power `sharing` of their
    number. pipelined, carried: the same where copies run ahead, and where fragments are carried over K tiles too.
    """

    access: float
    scatter: float
    store: float
    block: float
    exposed: float
    pipelined: float
    carried: float
    sharing: float


# Fitted to 1051 plans of 42 layers, directions and types on one H200 (tests/device/sweep_plans.py, 2026-12-01): the
# model takes plans that are 1.02 times as slow as the best of a layer, on the average, for both ways.
_EVENTS = {
    True: _Events(3.2, 0.9, 11.0, 2200.0, 2100.0, 690.0, 200.0, 1.26),  # matrix instructions
    False: _Events(5.1, 1.0, 30.0, 1500.0, 13800.0, 13800.0, 13800.0, 3.5),  # multiply-adds of single threads
}
_LATENCY_CYCLES = 1430.0  # from asking device memory to having the data in shared memory, others asking too
_MOST_EXPOSED = 1500.0  # cycles of one K tile: nobody waits longer than for memory and two barriers
_BLEND = 4.0  # exponent: arithmetic and memory hide each other, but where they are nearly equal not wholly
_LAUNCH_SECONDS = {True: 2e-6, False: 1.5e-6}  # of a further launch of a call: a GPU's is queued behind the first
_NEAR_CACHE = {True: 2.0, False: 0.67}  # speed at which partial sums come back, by that of device memory
_BANKS = 32
_BANK_BYTES = 128.0  # that shared memory serves in a cycle
_REGISTER_FILE = 65536  # 32-bit registers of a multiprocessor


def estimate(plan: TiledPlan, work: Workload, target: Target) -> Cost:
    """Predicted time of one call; only differences between plans of one workload matter."""
    vector_machine = target.vector_bits > 32
    tiles = -(-work.m // plan.block_m) * -(-work.n // plan.block_n)
    blocks = max(tiles * work.g * work.phases * plan.split.parts, 1)
    steps = step_count(plan, work)
    resident = 1 if vector_machine else resident_blocks(plan, work, target)
    if vector_machine:
        cycles = -(-blocks // target.processors) * _vector_block(plan, work, target, steps)
    else:
        cycles = _multiprocessor(plan, work, target, steps, -(-blocks // target.processors), resident)
    compute = cycles / (target.clock_ghz * 1e9)
    memory = _traffic(plan, work, target, resident) / (target.bandwidth_gbs * 1e9)
    both = max(compute, memory) if vector_machine else (compute**_BLEND + memory**_BLEND) ** (1 / _BLEND)
    return Cost(both + second_pass(plan, work, target, blocks), compute, memory, blocks)


def _multiprocessor(plan: TiledPlan, work: Workload, target: Target, steps: int, blocks: int, resident: int) -> float:
    """Cycles of a multiprocessor for its blocks, as many at a time as it holds; the last ones may be fewer."""
    together = min(resident, blocks)
    rounds, rest = divmod(blocks, together)
    cycles = rounds * _thread_block(plan, work, target, steps, together)
    return cycles + (_thread_block(plan, work, target, steps, rest) if rest else 0.0)


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
    vector_machine = target.vector_bits > 32
    moved = passes.visits * partial / (target.bandwidth_gbs * 1e9 * _NEAR_CACHE[vector_machine])
    return passes.launches * _LAUNCH_SECONDS[vector_machine] + moved


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
    copies = 2.0 * plan.thread_m * vectors + _STEP_CYCLES
    accesses, scattered = tile_accesses(plan)
    split = (work.a_split_cost + work.b_split_cost) / 2
    step = (
        plan.threads * (arithmetic * spill + copies) + accesses * _ACCESS_CYCLES * split + scattered * _SCATTER_CYCLES
    )
    stores = plan.block_m * plan.block_n / plan.store * _STORE_CYCLES
    return steps * step + stores + _BLOCK_CYCLES


def _thread_block(plan: TiledPlan, work: Workload, target: Target, steps: int, together: int) -> float:
    """Cycles of so many blocks that share a multiprocessor."""
    numbers = plan.block_m * plan.block_n * plan.block_k
    row = plan.instruction
    matrix = row is not None and row.lanes > 1
    events = _EVENTS[matrix]
    if row is None or not matrix:
        deep = 1 if row is None else row.shape[2]
        arithmetic = numbers / (dict(target.multiply_adds)[work.acc_name] if row is None else target.row_rate(row))
        fragments = plan.thread_m / plan.chunk_m + plan.thread_n / plan.chunk_n
        read = plan.group_threads * fragments * plan.block_k / deep * 16.0
        nbytes = work.acc_bytes
    else:
        arithmetic = numbers / target.row_rate(row)
        nbytes = stored_type(row, "a").nbytes
        read = plan.units_m * plan.units_n * (plan.thread_m + plan.thread_n) * plan.block_k * nbytes
    shared = (read + plan.block_k * (plan.block_m + plan.block_n) * nbytes) / _BANK_BYTES
    accesses, scattered = tile_accesses(plan)
    split = (work.a_split_cost + work.b_split_cost) / 2
    loads = (accesses * events.access * split + scattered * events.scatter) / 32.0
    busy = together * (max(arithmetic, shared) * max(1.0, 128.0 / (plan.threads * together)) + loads)
    ahead = plan.stages - 1
    step = max(busy, _LATENCY_CYCLES / ahead) if ahead else busy
    step += min(_exposed(plan, events) / together**events.sharing, _MOST_EXPOSED)
    stores = together * plan.block_m * plan.block_n / (plan.collect or plan.store) * events.store / 32.0
    handed = 2.0 * (plan.k_groups - 1) * plan.block_m * plan.block_n * work.acc_bytes / _BANK_BYTES * together
    return steps * step + handed + stores + events.block


def _exposed(plan: TiledPlan, events: _Events) -> float:
    if plan.stages == 1:
        return events.exposed
    return events.carried if plan.carries else events.pipelined


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
