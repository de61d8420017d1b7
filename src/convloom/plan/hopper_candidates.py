"""Candidate Hopper plans of a contraction: arrangements whose operands have tensor copies, times shapes of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from convloom.plan.bulk_copy import SPAN, BulkCopy, bulk_copy
from convloom.plan.candidates import Arrangement, arrangements
from convloom.plan.estimate import step_count
from convloom.plan.flat_axis import merged_axis
from convloom.plan.hopper import HopperPlan, Output, row_for
from convloom.plan.hopper_legality import broken_rule, chunks_of, resources, shared_bytes
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction, Split
from convloom.problem.contraction import Contraction, exchange
from convloom.target.arch import Target
from convloom.target.group_multiply import Major
from convloom.target.nvidia_wgmma import M

_WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
_CONSUMERS = (2, 3, 1)  # of equal plans the first counts
_MULTIPLIES = (1, 2)
_MOST_STAGES = 8
_ROUNDS = (1, 2)  # tiles per multiprocessor that a split may aim at
_LEAST_STEPS = 4  # K tiles of a part
_MOST_WORKSPACE = 2**28  # bytes; more is never faster


@dataclass(frozen=True, slots=True)
class HopperArrangement:
    """An arrangement with the copies of its operands, for tiles of one span of rows."""

    arrangement: Arrangement
    a: BulkCopy
    b: BulkCopy


def fitting(contraction: Contraction, target: Target) -> tuple[HopperArrangement, ...]:
    """The arrangements that tensor copies can fetch; none where the target does not multiply by warpgroups."""
    if contraction.a.dtype.name not in dict(target.group_multiply_adds) or isinstance(row_for(contraction, 64), str):
        return ()
    found: list[HopperArrangement] = []
    for arrangement in arrangements(contraction, target):
        oriented = exchange(contraction) if arrangement.swap else contraction
        span = SPAN // oriented.a.dtype.nbytes
        k = merged_axis(oriented, "K", arrangement.k.merged, span)
        sides = ((oriented.a, "M", arrangement.m), (oriented.b, "N", arrangement.n))
        a, b = (bulk_copy(oriented, side, merged_axis(oriented, name, axes, span), k) for side, name, axes in sides)
        if isinstance(a, BulkCopy) and isinstance(b, BulkCopy):
            found.append(HopperArrangement(arrangement, a, b))
    return tuple(found)


def hopper_candidates(
    contraction: Contraction, target: Target, policy: Policy
) -> Iterator[tuple[HopperPlan, Arrangement]]:
    """Every legal combination; K is also divided where the tiles of C are fewer than the multiprocessors."""
    for item in fitting(contraction, target):
        oriented = exchange(contraction) if item.arrangement.swap else contraction
        for shape in _shapes(item, oriented):
            plan = _plan(item, oriented, *shape)
            if plan is None or broken_rule(plan, oriented, target) is not None:
                continue
            for option in _options(plan, item.arrangement, oriented, target, policy):
                yield option, item.arrangement


def _shapes(item: HopperArrangement, oriented: Contraction) -> Iterator[tuple[int, int, int]]:
    """(consumers, rows, columns) of tiles that the problem fills by half or more."""
    work = item.arrangement.work
    step = SPAN // oriented.a.dtype.nbytes if item.b.major is Major.OUTER else 1
    for consumers, multiplies, n in product(_CONSUMERS, _MULTIPLIES, _WIDTHS):
        block_m = M * consumers * multiplies
        wasteful = (block_m > M and block_m >= 2 * work.m) or (n > _WIDTHS[0] and n >= 2 * work.n)
        if not wasteful and n % step == 0:
            yield consumers, block_m, n


def _plan(item: HopperArrangement, oriented: Contraction, consumers: int, block_m: int, n: int) -> HopperPlan | None:
    """The plan of one shape with the fewest stages, its results stored by threads."""
    arrangement, row = item.arrangement, row_for(oriented, n)
    if isinstance(row, str):
        return None
    return HopperPlan(
        block_m,
        n,
        SPAN // oriented.a.dtype.nbytes,
        consumers,
        2,
        arrangement.g,
        arrangement.m,
        arrangement.n,
        arrangement.k.serial,
        arrangement.k.merged,
        item.a.kind,
        item.b.kind,
        row.name,
        min(arrangement.store, 2),
        Output.REGISTERS,
        arrangement.swap,
    )


def _options(
    plan: HopperPlan, arrangement: Arrangement, oriented: Contraction, target: Target, policy: Policy
) -> Iterator[HopperPlan]:
    """With results through shared memory where C allows it, and with K divided."""
    nbytes = oriented.a.dtype.nbytes
    outputs = (Output.SHARED, Output.PIECES) if plan.store == 2 else (Output.TURNED,)
    through = (replace(plan, output=output, store=2) for output in outputs)
    best = next((option for option in through if not isinstance(chunks_of(oriented, option), str)), plan)
    if resources(best, nbytes, target) is None:
        yield _deepest(best, nbytes, target)
    for split in _splits(plan, arrangement, target, policy):
        yield _deepest(replace(plan, split=split), nbytes, target)


def _deepest(plan: HopperPlan, nbytes: int, target: Target) -> HopperPlan:
    """The plan with as many stages as shared memory holds; it holds two."""
    options = (replace(plan, stages=stages) for stages in range(_MOST_STAGES, 1, -1))
    return next(option for option in options if shared_bytes(option, nbytes) <= target.max_shared_bytes)


def _splits(plan: HopperPlan, arrangement: Arrangement, target: Target, policy: Policy) -> Iterator[Split]:
    work = arrangement.work
    tiles = -(-work.m // plan.block_m) * -(-work.n // plan.block_n) * work.g * work.phases
    most = step_count(plan, work) // _LEAST_STEPS
    if tiles < 1 or tiles > target.processors // 2:
        return
    one = tiles * plan.block_m * plan.block_n * work.acc_bytes
    most_bytes = _MOST_WORKSPACE if policy.max_workspace is None else policy.max_workspace
    for parts in sorted({min(target.processors * rounds // tiles, most) for rounds in _ROUNDS}):
        if parts > 1 and parts * one <= most_bytes:
            yield Split(Reduction.PASSES, parts)
