"""The cost model against measured times: how it orders candidates, and what its first choice costs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError, correlation, median
from typing import Any

from convloom.errors import IllegalProblem
from convloom.frontend.race import Outcome

_FIELD = "row="
_SHAPE = re.compile(r"\.m\d+n\d+k\d+")


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate's predicted and measured seconds, and its kind: plan family and multiplying row."""

    kind: str
    predicted: float
    measured: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Every measured candidate of one problem, the model's first choice first."""

    name: str
    points: tuple[Point, ...]

    @property
    def regret(self) -> float:
        """Time of the model's first choice divided by that of the fastest; 1 if it chose right."""
        first = min(self.points, key=lambda point: point.predicted)
        return first.measured / min(point.measured for point in self.points)

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's coefficient of predicted and measured times; None where it is undefined."""
        return rank_correlation([(point.predicted, point.measured) for point in self.points])


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's coefficient: 1 where both order alike; None for fewer than two pairs, or equal values on one side."""
    try:
        return correlation(*(_ranks([pair[side] for pair in pairs]) for side in (0, 1)))
    except StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each in their order; equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def read_calibrations(path: Path) -> tuple[Calibration, ...]:
    """The problems with measured candidates in a file of `bench --json`; IllegalProblem for any other file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return calibrations(content["rows"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        rule = "calibration reads what `convloom bench --json` wrote"
        raise IllegalProblem(f"{rule}; {path} gave {type(error).__name__}: {error}; name such a file") from error


def calibrations(rows: Sequence[Mapping[str, Any]]) -> tuple[Calibration, ...]:
    """The problems of a benchmark's records that have measured candidates."""
    found = ((f"{row['name']} {row['direction']}", _points(row.get("candidates", ()))) for row in rows)
    return tuple(Calibration(name, points) for name, points in found if points)


def calibration_lines(found: Sequence[Calibration]) -> Iterator[str]:
    """Regret of the model's first choice, then per plan family and row: predicted / measured and orders."""
    if not found:
        yield "no candidates were measured; measure some with `bench --pick measured --json`"
        return
    regrets = [item.regret for item in found]
    worst = max(found, key=lambda item: item.regret)
    counts = [len(item.points) for item in found]
    yield (
        f"the model's first choice against the best of those measured: {_mean(regrets):.3f} times as long "
        f"(geometric mean of {len(found)} problems, {min(counts)} to {max(counts)} candidates each), at worst "
        f"{worst.regret:.3f} ({worst.name}); right in {sum(regret == 1.0 for regret in regrets)}"
    )
    orders = [order for item in found if (order := item.rank_correlation) is not None]
    if orders:
        yield f"rank correlation within a problem: median {median(orders):.2f}, least {min(orders):.2f}"
    for kind in sorted({point.kind for item in found for point in item.points}):
        yield _kind_line(kind, [point for item in found for point in item.points if point.kind == kind])


def _kind_line(kind: str, points: list[Point]) -> str:
    shares = [point.predicted / point.measured for point in points]
    order = rank_correlation([(point.predicted, point.measured) for point in points])
    words = "" if order is None else f", rank correlation over all {order:.2f}"
    return (
        f"{kind}: predicted / measured {_mean(shares):.3f} (geometric mean of {len(points)} plans, "
        f"{min(shares):.3f} to {max(shares):.3f}){words}"
    )


def _points(candidates: Sequence[Mapping[str, Any]]) -> tuple[Point, ...]:
    return tuple(
        Point(plan_kind(item["plan"]), float(item["predicted"]), float(item["seconds"]))
        for item in candidates
        if item["outcome"] == Outcome.MEASURED.value
    )


def plan_kind(plan: str) -> str:
    """Family and multiplying row of a plan's text, without the row's shape: `hopper wgmma.f32.f16.f16.ss`."""
    family, *fields = plan.split()
    rows = (_SHAPE.sub("", field.removeprefix(_FIELD)) for field in fields if field.startswith(_FIELD))
    return " ".join([family, *rows])


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
