"""The passes between a built kernel and its printer: one flat list, a reason for each line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convloom.artifact import Language
from convloom.expr import Expr
from convloom.ir.ops import Kernel
from convloom.lower.hoist_launch_arguments import hoist_launch_arguments
from convloom.lower.lower_division import lower_division
from convloom.lower.serialize_work_items import serialize_work_items
from convloom.target.arch import Target


@dataclass(frozen=True, slots=True)
class Pass:
    """One step: its name, why it exists, what it does (problem symbols given), and the targets it is for."""

    name: str
    reason: str
    run: Callable[[Kernel, frozenset[Expr]], Kernel]
    applies: Callable[[Target], bool]
    removes_sizes: bool = False  # whether the body mentions no problem symbol from here on


def _everywhere(target: Target) -> bool:
    return True


def _on_cpu(target: Target) -> bool:
    return target.language is Language.C


PASSES: tuple[Pass, ...] = (
    Pass(
        "lower_division",
        "integer division by a size costs tens of cycles, a multiplication few",
        lower_division,
        _everywhere,
    ),
    Pass(
        "hoist_launch_arguments",
        "what depends on sizes alone is computed once a launch, on the host",
        hoist_launch_arguments,
        _everywhere,
        removes_sizes=True,
    ),
    Pass(
        "serialize_work_items",
        "a CPU runs the threads of a block as loops between barriers",
        lambda kernel, _: serialize_work_items(kernel),
        _on_cpu,
    ),
)

Observer = Callable[[str, Kernel, frozenset[Expr]], None]
"""Sees the name of the pass, the kernel after it, and the problem symbols that its body may still mention."""


def run_passes(kernel: Kernel, problem_symbols: frozenset[Expr], target: Target, observe: Observer) -> Kernel:
    """Runs every pass that the target needs; `observe` sees the kernel after each (verifying, dumping, timing)."""
    sizes = problem_symbols
    observe("build", kernel, sizes)
    for step in PASSES:
        if step.applies(target):
            kernel = step.run(kernel, problem_symbols)
            sizes = frozenset[Expr]() if step.removes_sizes else sizes
            observe(step.name, kernel, sizes)
    return kernel
