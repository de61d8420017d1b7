"""The layers of a network as a table and as a picture."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.frontend.layer_result import LayerResult, Verdict

_STYLES = {Verdict.PASSED: "green", Verdict.MISMATCH: "bold red", Verdict.SKIPPED: "yellow"}
_NUMERIC_COLUMNS = ("ms", "ORT ms", "error", "of bound")
CHART_SUFFIXES = (".png", ".svg", ".pdf")
_BAR_INCHES = 0.16
_OURS, _THEIRS, _WRONG = "#2b6cb0", "#cbd5e0", "#c53030"


def layer_table(results: Sequence[LayerResult]) -> Table:
    """One row per layer: node, problem, milliseconds of kernel and ONNX Runtime, largest error, share of the bound."""
    table = Table(title=None)
    table.add_column("node", no_wrap=True)
    table.add_column("problem", overflow="fold")
    for name in _NUMERIC_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result))
    return table


def closing_line(results: Sequence[LayerResult]) -> str:
    """`N passed, N failed, N skipped`."""
    count = {verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    return f"{count[Verdict.PASSED]} passed, {count[Verdict.MISMATCH]} failed, {count[Verdict.SKIPPED]} skipped"


def summary(results: Sequence[LayerResult]) -> str:
    """Total times and the worst layer, in one line; empty where nothing ran."""
    ran = [result for result in results if result.seconds is not None]
    if not ran:
        return ""
    text = f"{len(ran)} layers in {_sum(result.seconds for result in ran) * 1e3:.1f} ms"
    both = [result for result in ran if result.reference_seconds is not None]
    if both:
        text += f" (ONNX Runtime, node by node: {_sum(result.reference_seconds for result in both) * 1e3:.1f} ms)"
    judged = [result for result in ran if result.bound_ratio is not None]
    if judged:
        worst = max(judged, key=lambda result: result.bound_ratio or 0.0)
        text += f"; worst error {_ratio(worst.bound_ratio)} of its bound, in {worst.node}"
    return text


def draw_layers(results: Sequence[LayerResult], path: Path) -> None:
    """Writes a bar chart of the kernels' times and ONNX Runtime's, mismatches in red; format by the file's suffix.

    Raises UnsupportedTarget where matplotlib is missing, IllegalProblem where the file cannot be written.
    """
    ran = [result for result in results if result.seconds is not None]
    figure = new_figure(height=1.5 + _BAR_INCHES * 2 * max(len(ran), 1))
    axes = figure.add_subplot()
    places = range(len(ran))
    colours = [_WRONG if result.verdict is Verdict.MISMATCH else _OURS for result in ran]
    ours = axes.barh([place - 0.2 for place in places], [_milliseconds(r.seconds) for r in ran], 0.4, color=colours)
    theirs = axes.barh([p + 0.2 for p in places], [_milliseconds(r.reference_seconds) for r in ran], 0.4, color=_THEIRS)
    axes.set_yticks(list(places), [f"{result.node}  {result.problem}" for result in ran], fontsize=6)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    if ran:
        axes.set_xscale("log")
    axes.set_xlabel("milliseconds")
    axes.set_title(f"{closing_line(results)}", fontsize=9)
    axes.legend([ours, theirs], ["convloom (red: mismatch)", "ONNX Runtime"], fontsize=8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise IllegalProblem(f"a chart must be a file that can be written; {path} gave {error}; correct it") from error


def check_chart_path(path: Path) -> None:
    """IllegalProblem unless the suffix names a format."""
    if path.suffix.lower() not in CHART_SUFFIXES:
        allowed = ", ".join(CHART_SUFFIXES)
        raise IllegalProblem(f"a chart's file must end with one of {allowed}; got {str(path)!r}; change its name")


def new_figure(height: float) -> Any:
    """A figure for `savefig`, of so many inches; UnsupportedTarget where matplotlib is missing."""
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UnsupportedTarget(
            f"the chart needs matplotlib; it cannot be imported ({error}); run: pip install 'convloom[onnx]'"
        ) from error
    return figures.Figure(figsize=(11, height), layout="constrained")


def _cells(result: LayerResult) -> tuple[str | Text, ...]:
    verdict = Text(result.verdict.value, _STYLES[result.verdict])
    if result.reason:
        verdict.append(f": {result.reason}")
    return (
        result.node,
        result.problem,
        "" if result.seconds is None else f"{result.seconds * 1e3:.3f}",
        "" if result.reference_seconds is None else f"{result.reference_seconds * 1e3:.3f}",
        "" if result.error is None else f"{result.error:.1e}",
        "" if result.bound_ratio is None else _ratio(result.bound_ratio),
        verdict,
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _milliseconds(seconds: float | None) -> float:
    return (seconds or 0.0) * 1e3


def _sum(values: Iterable[float | None]) -> float:
    return sum(value or 0.0 for value in values)
