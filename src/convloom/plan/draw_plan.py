"""Random legal plans, also of kinds that the planner never tries: for fuzzing."""

from __future__ import annotations

import random
from itertools import islice

from convloom.expr import free_symbols
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.flat_axis import MASKED_IN_FACTORS
from convloom.plan.legality import check_plan, store_width
from convloom.plan.policy import ANYTHING
from convloom.plan.split import NO_SPLIT, Reduction, Split
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target

_ATTEMPTS = 60
_SAMPLE = 400  # candidates looked at
_MOST_UNROLLED = 256  # products in straight code: more make a C compiler slow


def draw_plan(random: random.Random, contraction: Contraction, target: Target) -> TiledPlan | None:
    """A legal plan: one of the planner's candidates, or any; None if none was found (the planner then chooses)."""
    if random.random() < 0.5:
        found = _candidate(random, contraction, target)
        if found is not None:
            return found
    for _ in range(_ATTEMPTS):
        plan = _any_plan(random, contraction, target)
        if check_plan(plan, contraction, target) is None:
            return plan
    return None


def _candidate(random: random.Random, contraction: Contraction, target: Target) -> TiledPlan | None:
    among = list(arrangements(contraction, target))
    every = random.randint(1, 17)
    chosen = (random.choice(among),) if among else ()
    bits = random.choice((32, 32, 64))
    options = candidates(
        contraction, target, chosen, index_bits=bits, vectors=random.random() < 0.8, every=every, splits=ANYTHING
    )
    plans = [plan for plan, _ in islice(options, _SAMPLE)]
    random.shuffle(plans)
    return next((plan for plan in plans if check_plan(plan, contraction, target) is None), None)


def _shuffled(random: random.Random, contraction: Contraction, kind: AxisKind) -> tuple[str, ...]:
    names = [axis.name for axis in contraction.of_kind(kind)]
    random.shuffle(names)
    return tuple(names)


def _k_axes(random: random.Random, contraction: Contraction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(serial, merged): axes whose extent differs between phases are serial."""
    parameters = frozenset(parameter.symbol for parameter in contraction.phases)
    varying = {axis.name for axis in contraction.axes if free_symbols(axis.extent) & parameters}
    names = _shuffled(random, contraction, AxisKind.K)
    merged = tuple(name for name in names if name not in varying and random.random() < 0.6)
    return tuple(name for name in names if name not in merged), merged


def _any_plan(random: random.Random, contraction: Contraction, target: Target) -> TiledPlan:
    swap = random.random() < 0.5
    oriented = exchange(contraction) if swap else contraction
    g, m, n = (_shuffled(random, oriented, kind) for kind in (AxisKind.G, AxisKind.M, AxisKind.N))
    serial, merged = _k_axes(random, oriented)
    lanes = random.choice([1, *(2**i for i in range(5) if 2**i <= target.math_lanes(contraction.acc))])
    chunk_m, chunk_n = random.choice((1, 2, 4)), lanes * random.choice((1, 1, 2, 4))
    thread_m, thread_n = chunk_m * random.choice((1, 2)), chunk_n * random.choice((1, 1, 2))
    block_m, block_n = thread_m * random.choice((1, 2, 4, 8)), thread_n * random.choice((1, 2, 3, 4, 16))
    block_k = random.choice((1, 2, 3, 4, 8, 16))
    flat = flat_axes(oriented, m, n, merged, g)

    def transfer(operand: Operand, row: str, rows: int, chunk: int) -> Transfer:
        along = random.choice(tuple(Along))
        axis, length = (row, rows) if along is Along.ROW else ("K", block_k)
        widest = flat_width(operand, flat, serial, axis, target.access_bits, MASKED_IN_FACTORS)
        allowed = _divisors(widest, length)
        vector = random.choice((max(allowed), random.choice(allowed)))
        return Transfer(along, vector, random.choice((0, 0, 1, chunk, chunk * vector)))

    a, b = transfer(oriented.a, "M", block_m, chunk_m), transfer(oriented.b, "N", block_n, chunk_n)
    stores = _divisors(store_width(oriented, flat, target), chunk_n)
    store = random.choice([width for width in stores if lanes == 1 or width in (1, lanes)])
    unroll = block_k * thread_m * thread_n <= _MOST_UNROLLED * lanes and random.random() < 0.3
    k_groups = random.choice([1, 1, *(count for count in (2, 3, 4) if block_k % count == 0)])
    how = random.choice((Reduction.PASSES, Reduction.ATOMIC))
    split = Split(how, random.choice((2, 3, 5, 16))) if random.random() < 0.5 else NO_SPLIT
    walk = random.choice((1, 1, 2, 3, 8))
    sizes = (block_m, block_n, block_k, thread_m, thread_n, chunk_m, chunk_n, lanes, unroll)
    axes, bits = (g, m, n, serial, merged), random.choice((32, 64))
    return TiledPlan(*sizes, *axes, a, b, store, bits, swap, k_groups=k_groups, split=split, walk=walk)


def _divisors(widest: int, length: int) -> list[int]:
    return [width for width in (1, 2, 4, 8, 16) if widest % width == 0 and length % width == 0]
