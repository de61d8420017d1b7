"""Random legal plans, also of kinds that the planner never tries: for fuzzing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from convloom.expr import free_symbols
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.check_plan import check_plan
from convloom.plan.flat_axis import MASKED_IN_FACTORS, Merged
from convloom.plan.legality import collected_width, multiplying_rows, row_multiplies, store_width
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.products import products_of
from convloom.plan.shared_layout import conflict_free_pad, lines_along_k, matrix_swizzle
from convloom.plan.split import NO_SPLIT, Reduction, Split
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.problem.contraction import AxisKind, Contraction, exchange
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.fragment_access import columns_together
from convloom.target.instruction import Family

_ATTEMPTS = 60
_SAMPLE = 400  # candidates looked at
Pads: TypeAlias = Callable[[Along, int], tuple[int, ...]]
"""Paddings to choose from, by direction and vector of a transfer."""

_SWIZZLES = (1, 1, 1, 2, 4, 8)
_MOST_UNROLLED = 256  # products in straight code: more make a C compiler slow


def draw_plan(
    random: random.Random, contraction: Contraction, target: Target, policy: Policy = ANYTHING
) -> TiledPlan | None:
    """A plan that is legal and allowed: one of the planner's candidates, or any; None if none was found."""
    draw = random.choice((_candidate, _candidate, _any_plan, _row_plan))
    for _ in range(_ATTEMPTS):
        plan = draw(random, contraction, target)
        if plan is None:
            draw = _any_plan
            continue
        if check_plan(plan, contraction, target, policy) is None:
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


@dataclass(frozen=True, slots=True)
class _Axes:
    """A random orientation and order of axes, and what the views allow in it."""

    swap: bool
    oriented: Contraction
    g: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    serial: tuple[str, ...]
    merged: tuple[str, ...]
    target: Target

    @property
    def flat(self) -> tuple[Merged, ...]:
        """The flat axes."""
        return flat_axes(self.oriented, self.m, self.n, self.merged, self.g)

    def transfer(self, random: random.Random, name: str, rows: int, depth: int, pads: Pads) -> Transfer:
        """A transfer of a tile of rows x depth, of any width that the view allows."""
        along = random.choice(tuple(Along))
        operand, row = (self.oriented.a, "M") if name == "a" else (self.oriented.b, "N")
        axis, length = (row, rows) if along is Along.ROW else ("K", depth)
        widest = flat_width(operand, self.flat, self.serial, axis, self.target.access_bits, MASKED_IN_FACTORS)
        allowed = _divisors(widest, length)
        vector = random.choice((max(allowed), random.choice(allowed)))
        return Transfer(along, vector, random.choice(pads(along, vector)))

    def collect(self, random: random.Random, block_n: int) -> int:
        """Numbers per store of a collected tile, or 0."""
        widest = collected_width(self.oriented, self.flat, self.target)
        return random.choice((0, *_divisors(widest, block_n)))

    def store(self, random: random.Random, most: int, allowed: Callable[[int], bool]) -> int:
        """Numbers per store, at most so many."""
        widths = _divisors(store_width(self.oriented, self.flat, self.target), most)
        return random.choice([width for width in widths if allowed(width)])


def _axes(random: random.Random, contraction: Contraction, target: Target) -> _Axes:
    swap = random.random() < 0.5
    oriented = exchange(contraction) if swap else contraction
    g, m, n = (_shuffled(random, oriented, kind) for kind in (AxisKind.G, AxisKind.M, AxisKind.N))
    return _Axes(swap, oriented, g, m, n, *_k_axes(random, oriented), target)


def _stages(random: random.Random, target: Target) -> int:
    return random.choice((1, 1, 2, 3, 4)) if rows_for(target.arch, Family.ASYNC_COPY) else 1


def _any_plan(random: random.Random, contraction: Contraction, target: Target) -> TiledPlan:
    """Multiply-adds of single threads."""
    axes = _axes(random, contraction, target)
    lanes = random.choice([1, *(2**i for i in range(5) if 2**i <= target.math_lanes(contraction.acc))])
    chunk_m, chunk_n = random.choice((1, 2, 4)), lanes * random.choice((1, 1, 2, 4))
    thread_m, thread_n = chunk_m * random.choice((1, 2)), chunk_n * random.choice((1, 1, 2))
    block_m, block_n = thread_m * random.choice((1, 2, 4, 8)), thread_n * random.choice((1, 2, 3, 4, 16))
    block_k = random.choice((1, 2, 3, 4, 8, 16))

    def pads(chunk: int) -> Pads:
        return lambda along, vector: (0, 0, 1, chunk, chunk * vector)

    a = axes.transfer(random, "a", block_m, block_k, pads(chunk_m))
    b = axes.transfer(random, "b", block_n, block_k, pads(chunk_n))
    store = axes.store(random, chunk_n, lambda width: lanes == 1 or width in (1, lanes))
    unroll = block_k * thread_m * thread_n <= _MOST_UNROLLED * lanes and random.random() < 0.3
    fragments = random.choice((1, 2)) if unroll else 1
    sizes = (block_m, block_n, block_k, thread_m, thread_n, chunk_m, chunk_n, lanes, unroll)
    names = (axes.g, axes.m, axes.n, axes.serial, axes.merged)
    bits, stages = random.choice((32, 64)), _stages(random, target)
    plan = TiledPlan(*sizes, *names, a, b, store, bits, axes.swap, stages=stages, fragments=fragments)
    return _divided(random, plan, 1)


def _divided(random: random.Random, plan: TiledPlan, depth: int) -> TiledPlan:
    """The plan with any way to divide the sums and to walk the tiles; `depth`: k of one multiplication."""
    steps = plan.block_k // depth
    row = plan.instruction
    if row is None or row.lanes == 1:
        a, b = (replace(transfer, swizzle=random.choice(_SWIZZLES)) for transfer in (plan.a, plan.b))
        plan = replace(plan, a=a, b=b)
    how = random.choice((Reduction.PASSES, Reduction.ATOMIC))
    return replace(
        plan,
        k_groups=random.choice([1, 1, *(count for count in (2, 3, 4) if steps % count == 0)]),
        split=Split(how, random.choice((2, 3, 5, 16))) if random.random() < 0.5 else NO_SPLIT,
        walk=random.choice((1, 1, 2, 3, 8)),
    )


def _row_plan(random: random.Random, contraction: Contraction, target: Target) -> TiledPlan | None:
    """Multiplication by any instruction that the types allow; None: there is none."""
    axes = _axes(random, contraction, target)
    fitting = [row for row in multiplying_rows(target) if row_multiplies(row, products_of(axes.oriented))]
    if not fitting:
        return None
    row = random.choice(fitting)
    m, n, k = row.shape
    chunk_m, chunk_n = (m, n) if row.lanes > 1 else (random.choice((1, 2, 4)), random.choice((1, 2, 4)))
    thread_m, thread_n = chunk_m * random.choice((1, 1, 2, 3)), chunk_n * random.choice((1, 2, 3, 4))
    block_m, block_n = thread_m * random.choice((1, 1, 2, 4)), thread_n * random.choice((1, 2, 4))
    block_k = k * random.choice((1, 2, 3, 4))

    def pads(name: str, rows: int) -> Pads:
        def found(along: Along, vector: int) -> tuple[int, ...]:
            length = block_k if lines_along_k(row, along) else rows
            return 0, conflict_free_pad(row, name, along, length), 16 * vector

        return found

    def transfer(name: str, rows: int) -> Transfer:
        found = axes.transfer(random, name, rows, block_k, pads(name, rows))
        swizzle = matrix_swizzle(row, name, found, rows, block_k) if found.pad == 0 and row.lanes > 1 else 1
        return replace(found, swizzle=random.choice((1, swizzle)))

    a, b = transfer("a", block_m), transfer("b", block_n)
    store = axes.store(random, chunk_n if row.lanes == 1 else columns_together(row), lambda width: True)
    sizes = (block_m, block_n, block_k, thread_m, thread_n, chunk_m, chunk_n, 1, True)
    names = (axes.g, axes.m, axes.n, axes.serial, axes.merged)
    bits, stages, fragments = random.choice((32, 64)), _stages(random, target), random.choice((1, 2))
    collect = axes.collect(random, block_n) if row.lanes > 1 else 0
    plan = TiledPlan(
        *sizes, *names, a, b, store, bits, axes.swap, row.name, stages, collect=collect, fragments=fragments
    )
    divided = _divided(random, plan, k)
    return divided if divided.split == NO_SPLIT else replace(divided, collect=0)


def _divisors(widest: int, length: int) -> list[int]:
    return [width for width in (1, 2, 4, 8, 16) if widest % width == 0 and length % width == 0]
