"""Plans other than the one that the cost model prefers."""

from __future__ import annotations

from dataclasses import replace

from convloom import Conv, Gemm
from convloom.compiler import prepare
from convloom.frontend.device_target import target_for
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.tiled import TiledPlan, plan_text
from convloom.runtime.device import device_named

MOST_UNROLLED = 1024  # products; more make the compiler slow


def sampled_plans(problem: Conv | Gemm, count: int) -> list[str]:
    """Plans evenly from all candidates, of every orientation and order of axes; every other one with unrolled loops."""
    contraction, target = prepare(problem).contraction, target_for(device_named("cpu"))
    every = [plan for plan, _ in candidates(contraction, target, arrangements(contraction, target))]
    chosen = [every[place * (len(every) - 1) // (count - 1)] for place in range(count)]
    return [plan_text(_unrolled(plan, place % 2 == 1)) for place, plan in enumerate(chosen)]


def _unrolled(plan: TiledPlan, wanted: bool) -> TiledPlan:
    return replace(plan, unroll_k=wanted and plan.block_k * plan.thread_m * plan.thread_n <= MOST_UNROLLED)
