"""Candidates that divide the sum over K: over the grid where tiles are few, inside a block where threads are few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convloom.plan.estimate import Workload, resident_blocks, step_count
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction, Split
from convloom.plan.tiled import TiledPlan
from convloom.target.arch import Target

_GROUPS = (2, 4)
_GROUPED_THREADS = 128  # blocks with this many threads need no K groups
_ROUNDS = (1, 2, 4)  # blocks per multiprocessor that a split may aim at
_LEAST_STEPS = 2  # K tiles of a part
_MOST_PARTS = 512
_MOST_WORKSPACE = 2**28  # bytes; more is never faster


def grouped_sums(plan: TiledPlan, work: Workload, target: Target) -> Iterator[TiledPlan]:
    """The plan with other numbers of K groups, where its blocks have few threads and do not fill the machine."""
    if _tiles(plan, work) * plan.group_threads > target.processors * target.resident_threads:
        return
    for k_groups in _groups(plan, target):
        yield replace(plan, k_groups=k_groups)


def split_sums(plan: TiledPlan, work: Workload, target: Target, policy: Policy) -> Iterator[TiledPlan]:
    """The plan with other numbers of parts, as far as the sizes make them worth looking at; resources stay the same."""
    for split in _splits(plan, work, target, policy):
        yield replace(plan, split=split, collect=0)


def _tiles(plan: TiledPlan, work: Workload) -> int:
    return -(-work.m // plan.block_m) * -(-work.n // plan.block_n) * work.g * work.phases


def _groups(plan: TiledPlan, target: Target) -> tuple[int, ...]:
    """Numbers of K groups: only for machines whose threads run side by side."""
    if target.vector_bits > 32 or plan.group_threads >= _GROUPED_THREADS:
        return ()
    depth = 1 if plan.instruction is None else plan.instruction.shape[2]
    return tuple(count for count in _GROUPS if plan.block_k % (count * depth) == 0)


def _splits(plan: TiledPlan, work: Workload, target: Target, policy: Policy) -> Iterator[Split]:
    tiles = _tiles(plan, work)
    steps = step_count(plan, work)
    most = min(steps // _LEAST_STEPS, _MOST_PARTS)
    if tiles < 1 or most < 2 or tiles > target.processors * _ROUNDS[-1] // 2:
        return
    resident = resident_blocks(plan, work, target)
    wanted = {min(target.processors * rounds // tiles, most) for rounds in _ROUNDS if rounds == 1 or rounds <= resident}
    most_bytes = _MOST_WORKSPACE if policy.max_workspace is None else policy.max_workspace
    one = tiles * plan.block_m * plan.block_n * work.acc_bytes
    for parts in sorted(parts for parts in wanted if parts > 1):
        if parts * one <= most_bytes:
            yield Split(Reduction.PASSES, parts)
        elif _may_add(one, work, target, policy) <= most_bytes:
            yield Split(Reduction.ATOMIC, parts)


def _may_add(one: int, work: Workload, target: Target, policy: Policy) -> int:
    """Bytes of workspace of atomic sums; more than anybody allows where they are not allowed themselves.

    Looked at only where partial sums do not fit: they take more launches, and every part passes the cache twice.
    """
    if (policy.deterministic and work.acc_is_float) or work.acc_bytes * 8 not in target.atomic_bits:
        return 1 << 62
    return 0 if work.adds_to_result else one
