"""The roofline of a target with one problem on it: its least time, and what the cost model expects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from convloom.compiler import Generated
from convloom.plan.families import Plan
from convloom.plan.hopper import HopperPlan
from convloom.plan.predicted import predicted_seconds
from convloom.problem.contraction import Contraction
from convloom.problem.reached import touched_bytes
from convloom.problem.reference import Problem
from convloom.report.svg import picture, stroke, words
from convloom.target.arch import Target

_WIDTH, _HEIGHT, _LEFT = 520.0, 260.0, 70.0
_DECADES_X, _DECADES_Y = (-1.0, 4.0), 4.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """Operations a second and bytes a second of a target by its description; operations and bytes of a problem."""

    peak: float
    bandwidth: float
    ops: int
    nbytes: int
    predicted: float | None

    @property
    def least_seconds(self) -> float:
        """The time below which no kernel can be."""
        return max(self.ops / self.peak, self.nbytes / self.bandwidth)


def roofline(problem: Problem, generated: Generated, target: Target) -> Roofline:
    """The roofline for what the plan multiplies with. IllegalProblem for symbolic sizes."""
    plan, contraction = generated.plan, generated.contraction
    rate = _rate(plan, contraction, target)
    return Roofline(
        2 * rate * target.processors * target.clock_ghz * 1e9,
        target.bandwidth_gbs * 1e9,
        problem.ops,
        touched_bytes(problem),
        predicted_seconds(plan, contraction, target),
    )


def _rate(plan: Plan, contraction: Contraction, target: Target) -> float:
    """Multiply-adds per clock and multiprocessor of what the plan multiplies with."""
    if isinstance(plan, HopperPlan):
        return dict(target.group_multiply_adds)[contraction.a.dtype.name]
    row = plan.instruction
    return target.multiply_add_rate(contraction.acc) if row is None else target.row_rate(row)


def roofline_words(found: Roofline) -> str:
    """The numbers of the picture."""
    bound = "arithmetic" if found.ops / found.peak >= found.nbytes / found.bandwidth else "memory"
    text = (
        f"{found.ops * 1e-9:.3g} GFLOP on {found.nbytes / 1e6:.3g} MB that must be touched; peaks by the target's "
        f"description {found.peak * 1e-12:.3g} TFLOP/s and {found.bandwidth * 1e-9:.0f} GB/s; least time "
        f"{found.least_seconds * 1e6:.3g} us, bound by {bound}"
    )
    if found.predicted is None:
        return text
    share = found.least_seconds / found.predicted
    return f"{text}; the cost model expects {found.predicted * 1e6:.3g} us, {share:.0%} of the roofline"


def draw_roofline(found: Roofline) -> str:
    """Logarithmic axes: operations per byte, operations per second."""
    return picture(_LEFT + _WIDTH + 20, _HEIGHT + 40, _shapes(found), "roofline")


def _shapes(found: Roofline) -> Iterator[str]:
    top = math.ceil(math.log10(found.peak))

    def at(intensity: float, speed: float) -> tuple[float, float]:
        low, high = _DECADES_X
        x = (math.log10(intensity) - low) / (high - low)
        y = (top - math.log10(speed)) / _DECADES_Y
        return _LEFT + min(max(x, 0.0), 1.0) * _WIDTH, min(max(y, 0.0), 1.0) * _HEIGHT

    first, last = (10.0**decade for decade in _DECADES_X)
    ridge = min(max(found.peak / found.bandwidth, first), last)
    start = max(first, 10.0 ** (top - _DECADES_Y) / found.bandwidth)
    yield stroke([(_LEFT, 0), (_LEFT, _HEIGHT), (_LEFT + _WIDTH, _HEIGHT)], width=1)
    yield stroke([at(start, start * found.bandwidth), at(ridge, found.peak), at(last, found.peak)], width=2.5)
    for decade in range(int(_DECADES_X[0]), int(_DECADES_X[1]) + 1):
        x, _ = at(10.0**decade, found.peak)
        yield words(x, _HEIGHT + 16, f"{10.0**decade:g}", size=10, anchor="middle")
    for decade in range(int(_DECADES_Y) + 1):
        _, y = at(first, 10.0 ** (top - decade))
        yield words(_LEFT - 6, y + 10, f"{10.0 ** (top - decade - 9):g}", size=10, anchor="end")
    yield words(_LEFT + _WIDTH / 2, _HEIGHT + 34, "FLOP per byte (GFLOP/s upwards)", anchor="middle")
    if found.ops and found.nbytes:
        yield from _points(found, at)


def _points(found: Roofline, at: Callable[[float, float], tuple[float, float]]) -> Iterator[str]:
    intensity = found.ops / found.nbytes
    marks = [("this problem's roof", found.ops / found.least_seconds)]
    if found.predicted is not None:
        marks.append(("expected", found.ops / found.predicted))
    for name, speed in marks:
        x, y = at(intensity, speed)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="hsl(350 80% 55%)"/>'
        yield words(x + 8, y + 14, name, size=11)
