"""Random legal plans, of every kind that the legality rules allow, not only those that the planner tries."""

from __future__ import annotations

import random

from convloom.expr import free_symbols
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.check_plan import check_plan
from convloom.plan.legality import store_width
from convloom.plan.split import NO_SPLIT, Reduction, Split
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target


def draw_plan(rng: random.Random, contraction: Contraction, target: Target) -> TiledPlan:
    """A legal plan; drawn again until the rules allow it."""
    for _ in range(400):
        plan = _plan(rng, contraction, target)
        if check_plan(plan, contraction, target) is None:
            return plan
    raise AssertionError("no legal plan was drawn")


def _shuffled(rng: random.Random, contraction: Contraction, kind: AxisKind) -> tuple[str, ...]:
    names = [axis.name for axis in contraction.of_kind(kind)]
    rng.shuffle(names)
    return tuple(names)


def _k_axes(rng: random.Random, contraction: Contraction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(serial, merged): axes whose extent differs between phases are serial."""
    parameters = {parameter.symbol for parameter in contraction.phases}
    varying = {axis.name for axis in contraction.axes if free_symbols(axis.extent) & parameters}
    names = _shuffled(rng, contraction, AxisKind.K)
    merged = tuple(name for name in names if name not in varying and rng.random() < 0.6)
    return tuple(name for name in names if name not in merged), merged


def _plan(rng: random.Random, contraction: Contraction, target: Target) -> TiledPlan:
    swap = rng.random() < 0.5
    oriented = exchange(contraction) if swap else contraction
    g, m, n = (_shuffled(rng, oriented, kind) for kind in (AxisKind.G, AxisKind.M, AxisKind.N))
    serial, merged = _k_axes(rng, oriented)
    lanes = rng.choice([1, 1, *(2**i for i in range(5) if 2**i <= target.math_lanes(contraction.acc))])
    chunk_m, chunk_n = rng.choice((1, 2, 4)), lanes * rng.choice((1, 1, 2, 4))
    thread_m, thread_n = chunk_m * rng.choice((1, 2)), chunk_n * rng.choice((1, 1, 2))
    block_m, block_n = thread_m * rng.choice((1, 2, 4, 8)), thread_n * rng.choice((1, 2, 3, 4))
    block_k = rng.choice((1, 2, 3, 4, 8, 16))
    flat = flat_axes(oriented, m, n, merged, g)

    def transfer(operand: Operand, row: str, rows: int, chunk: int) -> Transfer:
        along = rng.choice(tuple(Along))
        axis, length = (row, rows) if along is Along.ROW else ("K", block_k)
        widest = flat_width(operand, flat, serial, axis, target.access_bits, "K")
        allowed = [width for width in (1, 2, 4, 8, 16) if widest % width == 0 and length % width == 0]
        vector = rng.choice((max(allowed), rng.choice(allowed)))
        return Transfer(along, vector, rng.choice((0, 0, 1, chunk, chunk * vector)))

    a, b = transfer(oriented.a, "M", block_m, chunk_m), transfer(oriented.b, "N", block_n, chunk_n)
    widest = store_width(oriented, flat, target)
    stores = [width for width in (1, 2, 4, 8, 16) if widest % width == 0 and chunk_n % width == 0]
    store = rng.choice([width for width in stores if lanes == 1 or width in (1, lanes)])
    k_groups = rng.choice([1, 1, *(count for count in (2, 3, 4) if block_k % count == 0)])
    how = rng.choice((Reduction.PASSES, Reduction.ATOMIC))
    split = Split(how, rng.choice((2, 3, 5, 16))) if rng.random() < 0.5 else NO_SPLIT
    walk = rng.choice((1, 1, 2, 3, 8))
    sizes = (block_m, block_n, block_k, thread_m, thread_n, chunk_m, chunk_n, lanes, rng.random() < 0.3)
    axes, bits = (g, m, n, serial, merged), rng.choice((32, 64))
    return TiledPlan(*sizes, *axes, a, b, store, bits, swap, k_groups=k_groups, split=split, walk=walk)
