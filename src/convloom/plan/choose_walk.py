"""The order of tiles that moves the fewest bytes."""

from __future__ import annotations

from dataclasses import replace

from convloom.plan.estimate import Workload, traffic
from convloom.plan.families import Plan
from convloom.target.arch import Target

_WALKS = (2, 4, 8, 16, 32)
_GAIN = 0.95  # a walk costs a division more per block: it must be worth that


def choose_walk(plan: Plan, work: Workload, target: Target) -> Plan:
    """The plan with bands of as many rows as save the most bytes through device memory; row by row if none saves any.

    Near-square bundles of tiles read the fewest strips of operands: with n blocks at a time about 2 sqrt(n) of them.
    """
    best, least = plan, traffic(plan, work, target) * _GAIN
    for walk in _WALKS:
        walked = replace(plan, walk=walk)
        moved = traffic(walked, work, target)
        if moved < least:
            best, least = walked, moved
    return best
