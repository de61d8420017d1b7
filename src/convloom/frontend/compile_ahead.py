"""Compiles the kernels of a list of problems a little ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from convloom.frontend.compile import compile
from convloom.frontend.kernel import Kernel
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.reference import Problem
from convloom.runtime.interface import Device

Item = TypeVar("Item")

BUILDERS = 2  # compilations under way while a kernel runs
AHEAD = 4


def compile_ahead(
    items: Iterable[tuple[Item, Problem]], device: Device, policy: Policy = ANYTHING
) -> Iterator[tuple[Item, Future[Kernel]]]:
    """Each item, in order, with its kernel under construction; `result()` waits, and raises what `compile` raises."""
    waiting: deque[tuple[Item, Future[Kernel]]] = deque()
    pool = ThreadPoolExecutor(BUILDERS)
    try:
        for item, problem in items:
            waiting.append((item, pool.submit(_compiled, problem, device, policy)))
            if len(waiting) > AHEAD:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compiled(problem: Problem, device: Device, policy: Policy) -> Kernel:
    return compile(problem, device, deterministic=policy.deterministic, max_workspace=policy.max_workspace)
