"""A benchmark in words, as JSON and as a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from convloom.errors import IllegalProblem
from convloom.frontend.bench import BenchRow, BenchVerdict
from convloom.frontend.race import Tried
from convloom.report.calibration import calibration_lines, calibrations
from convloom.report.layers import new_figure
from convloom.report.problem_text import problem_text
from convloom.runtime.timing import Timing

HEADER = (
    f"{'problem':<24} {'dir':<5} {'ours us':>10} {'spread':>8} {'theirs us':>10} {'spread':>8} {'ratio':>7} "
    f"{'GFLOP/s':>9} {'roofline':>8} {'theirs':>7} {'of bound':>8} {'A/A':>6} {'compile s':>9}"
)
_BAR_INCHES = 0.22
_FASTER, _SLOWER = "#2f855a", "#2b6cb0"


def row_text(row: BenchRow) -> str:
    """One line under HEADER; of a row without times, why it has none."""
    start = f"{label(row):<24} {row.direction:<5}"
    pair = row.pair
    if pair is None:
        return f"{start} {row.verdict.value}: {row.reason}"
    ours, theirs = pair.ours, pair.theirs
    return (
        f"{start} {_micro(ours.median)} {ours.spread * 1e6:>8.1f} {_micro(theirs.median)} {theirs.spread * 1e6:>8.1f} "
        f"{pair.ratio:>7.3f} {row.ops / ours.median * 1e-9:>9.1f} {row.roofline_share(ours):>8.0%} "
        f"{row.roofline_share(theirs):>7.0%} {row.bound_ratio:>8.3f} {pair.same:>6.3f} {row.compile_seconds:>9.2f}"
    )


def label(row: BenchRow) -> str:
    """The problem's own name, else its sizes."""
    problem = row.line.problem
    return problem.name.strip('"') or problem_text(problem)


def summary_lines(rows: Sequence[BenchRow]) -> Iterator[str]:
    """Geometric mean per file and direction, the A/A pairs, peaks, time spent on compiling and searching, counts."""
    for (file, direction), ratios in ratios_by_file(rows).items():
        yield (
            f"{file:<24} {direction:<5} geometric mean of the ratios {geometric_mean(ratios):.3f} "
            f"({len(ratios)} problems, {min(ratios):.3f} to {max(ratios):.3f})"
        )
    same = [row.pair.same for row in rows if row.pair is not None]
    if same:
        mean = geometric_mean(same)
        yield f"A/A: our call against itself {min(same):.3f} to {max(same):.3f}, geometric mean {mean:.3f}"
    for peaks in {row.peaks.dtype: row.peaks for row in rows if row.peaks is not None}.values():
        rates = f"{peaks.ops * 1e-9:.1f} GFLOP/s in {peaks.dtype}, {peaks.bytes * 1e-9:.0f} GB/s"
        yield f"roofline: {rates}, measured in this run"
    clocks = [row.clock_mhz for row in rows if row.clock_mhz is not None]
    if clocks:
        yield f"clock of the multiprocessors after each problem: {min(clocks)} to {max(clocks)} MHz"
    for row in rows:
        if row.anchor_kernels:
            yield f"{label(row)} {row.direction}: ours {', '.join(row.kernels)}; theirs {', '.join(row.anchor_kernels)}"
    compiled, searched = sum(row.compile_seconds for row in rows), sum(row.anchor_seconds for row in rows)
    tuned = sum(row.tuning_seconds for row in rows)
    yield (
        f"not in the times: planning and compiling {compiled:.1f} s, tuning {tuned:.1f} s, "
        f"the anchor's first calls {searched:.1f} s"
    )
    found = calibrations([_row_record(row) for row in rows])
    yield from calibration_lines(found) if found else ()
    known = sum(row.known for row in rows)
    if known:
        yield f"{known} plans were known to the tuning database"
    for row in rows:
        for item in row.wrong:
            yield f"{label(row)} {row.direction}: a candidate is wrong: {item.reason}; in the plan {item.plan!r}"
    yield closing_line(rows)


def closing_line(rows: Sequence[BenchRow]) -> str:
    """`N measured, N failed, N skipped`."""
    return ", ".join(f"{sum(row.verdict is verdict for row in rows)} {verdict.value}" for verdict in BenchVerdict)


def ratios_by_file(rows: Sequence[BenchRow]) -> dict[tuple[str, str], list[float]]:
    """The ratios of each file and direction, in the order of first mention."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.pair is not None:
            found.setdefault((row.line.path.name, row.direction), []).append(row.pair.ratio)
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(fmean(map(math.log, values)))


def bench_json(rows: Sequence[BenchRow], environment: Mapping[str, str]) -> str:
    """Everything that was measured, repetitions included; seconds, operations and bytes."""
    means = [
        {"file": file, "direction": direction, "geometric_mean": geometric_mean(ratios), "problems": len(ratios)}
        for (file, direction), ratios in ratios_by_file(rows).items()
    ]
    content = {"environment": dict(environment), "files": means, "rows": [_row_record(row) for row in rows]}
    return json.dumps(content, indent=1) + "\n"


def draw_bench(rows: Sequence[BenchRow], path: Path) -> None:
    """A bar per measured problem: the ratio on a logarithmic axis, a line at 1, geometric means in the title.

    Raises UnsupportedTarget where matplotlib is missing, IllegalProblem where the file cannot be written.
    """
    measured = [(row, row.pair) for row in rows if row.pair is not None]
    figure = new_figure(height=1.5 + _BAR_INCHES * max(len(measured), 1))
    axes = figure.add_subplot()
    ratios = [pair.ratio for _, pair in measured]
    axes.barh(range(len(ratios)), ratios, color=[_FASTER if ratio >= 1 else _SLOWER for ratio in ratios])
    axes.set_yticks(range(len(ratios)), [f"{label(row)}  {row.direction}" for row, _ in measured], fontsize=6)
    axes.invert_yaxis()
    if ratios:
        axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("their time / ours (above 1: convloom is faster)")
    means = (f"{file} {direction} {geometric_mean(v):.3f}" for (file, direction), v in ratios_by_file(rows).items())
    axes.set_title("\n".join(means), fontsize=8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise IllegalProblem(f"a chart must be a file that can be written; {path} gave {error}; correct it") from error


def _row_record(row: BenchRow) -> dict[str, Any]:
    record: dict[str, Any] = {
        "file": row.line.path.name,
        "line": row.line.number,
        "problem": row.line.text,
        "name": label(row),
        "direction": row.direction,
        "verdict": row.verdict.value,
        "reason": row.reason,
        "plan": row.plan,
        "compile_seconds": row.compile_seconds,
        "tuning_seconds": row.tuning_seconds,
        "known": row.known,
        "kernels": list(row.kernels),
        "anchor_kernels": list(row.anchor_kernels),
        "clock_mhz": row.clock_mhz,
        "candidates": [_candidate_record(item) for item in row.tried],
        "anchor_first_seconds": row.anchor_seconds,
        "bound_ratio": row.bound_ratio,
    }
    pair, peaks = row.pair, row.peaks
    if pair is not None and peaks is not None:
        record |= {
            "ratio": pair.ratio,
            "same": pair.same,
            **{name: _timing_record(getattr(pair, name)) for name in ("ours", "again", "theirs")},
            "ops": row.ops,
            "bytes": row.nbytes,
            "peak_ops": peaks.ops,
            "peak_bytes": peaks.bytes,
            "roofline_share": row.roofline_share(pair.ours),
            "their_roofline_share": row.roofline_share(pair.theirs),
        }
    return record


def _candidate_record(item: Tried) -> dict[str, Any]:
    return {
        "plan": item.plan,
        "predicted": item.predicted,
        "outcome": item.outcome.value,
        "reason": item.reason,
        "seconds": item.seconds,
        "spread": item.spread,
    }


def _timing_record(timing: Timing) -> dict[str, Any]:
    return {"median": timing.median, "spread": timing.spread, "seconds": list(timing.seconds)}


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:>10.1f}"
