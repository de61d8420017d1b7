"""`convloom bench`: every problem of some files, timed beside another library in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from convloom.artifact import Language
from convloom.cli.console import MISMATCH, errors, output
from convloom.cli.problem_options import (
    UNTAGGED,
    DeviceName,
    ResultTag,
    SourceTag,
    TypeNames,
    WeightsTag,
    defaults_of,
)
from convloom.dtypes import dtype_named
from convloom.frontend.anchor import Anchor
from convloom.frontend.bench import BenchRow, BenchVerdict, Choose, bench_line
from convloom.frontend.choose_anchor import AnchorName, anchor_named
from convloom.frontend.pick_plan import Pending, Picker, begin_ahead
from convloom.frontend.race import RACE_EFFORT
from convloom.problem.conv import Conv
from convloom.problem.notation import BatchLine, read_batch
from convloom.report.bench_table import HEADER, bench_json, draw_bench, row_text, summary_lines
from convloom.report.layers import check_chart_path
from convloom.report.output_file import write_output
from convloom.runtime.device import device_named
from convloom.runtime.pair_timing import Effort
from convloom.settings import current
from convloom.tune.build_pool import BuildPool
from convloom.tune.pick import parse_pick

_AHEAD = 16
"""Problems whose candidates are compiled while one is measured; none on the processor, which they would slow down."""
_FREE = 2
"""Processors that build processes leave to this one while it measures on a GPU."""
_STYLES = {BenchVerdict.MEASURED: "", BenchVerdict.FAILED: "bold red", BenchVerdict.SKIPPED: "yellow"}


def bench(
    batch: Annotated[list[Path], typer.Option("--batch", help="A file with one problem a line; may be repeated.")],
    direction: Annotated[
        list[str] | None, typer.Option("--dir", help="fwd (default), bwd_d or bwd_w; may be repeated.")
    ] = None,
    dtypes: TypeNames = "f32",
    stag: SourceTag = UNTAGGED,
    wtag: WeightsTag = UNTAGGED,
    dtag: ResultTag = UNTAGGED,
    device: DeviceName = "cpu",
    against: Annotated[
        AnchorName | None,
        typer.Option("--against", help="What to measure against; by default numpy on cpu, else torch."),
    ] = None,
    anchor_dt: Annotated[
        str | None, typer.Option("--anchor-dt", help="Element type in which PyTorch computes instead, such as f16.")
    ] = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="PyTorch may compute f32 in TF32.")] = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="Leave the caches warm; else they are cooled by reading.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Most rounds of interleaved calls per problem.")] = 15,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="After so many seconds a problem begins no further round.")
    ] = 3.0,
    pick: Annotated[
        str, typer.Option("--pick", help="model, or measured:K: the fastest of the model's first K (8) candidates.")
    ] = "model",
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Name the kernels of both; the anchor's by PyTorch's profiler, on a GPU.")
    ] = False,
    json: Annotated[Path | None, typer.Option("--json", help="Write everything measured to this file.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the ratios to this .png, .svg or .pdf.")] = None,
) -> None:
    """Time every problem of the files beside another library: ratio = their time / ours, geometric mean per file.

    Results are verified before they are timed. Exit status 1 if one is wrong or cannot be computed, or after Ctrl-C.
    """
    way = parse_pick(pick)
    if plot is not None:
        check_chart_path(plot)
    lines: list[BatchLine] = []
    for number, name in enumerate(direction or ["fwd"]):
        found = read_batch(batch, defaults_of(name, dtypes, stag, wtag, dtag))
        lines += [line for line in found if number == 0 or isinstance(line.problem, Conv)]  # products have no direction
    chosen = device_named(device)
    wanted = against or (AnchorName.NUMPY if device == "cpu" else AnchorName.TORCH)
    anchor = anchor_named(wanted, device, None if anchor_dt is None else dtype_named(anchor_dt), tf32=tf32)
    environment = {**anchor.environment(), "caches": "warm" if warm else "cooled before each call"}
    environment["pick"] = str(way)
    if anchor.clocks is not None:
        environment["clock"] = f"multiprocessors at most {anchor.clocks.most} MHz"
    console = output()
    for name, words in environment.items():
        console.print(f"{name:<8} {words}")
    effort = Effort(least=min(5, rounds), most=rounds, budget=seconds, warm=warm)
    with BuildPool(None if chosen.language is Language.C else max(current().threads - _FREE, 1)) as pool:
        picker = Picker(chosen, way, pool=pool, effort=replace(RACE_EFFORT, warm=warm))
        rows, complete = _bench_all(lines, picker, anchor, effort, console, name_kernels=kernels)
    _report(rows, environment, json, plot, console)
    if not complete or any(row.verdict is BenchVerdict.FAILED or row.wrong for row in rows):
        raise typer.Exit(MISMATCH)


def _bench_all(
    lines: list[BatchLine],
    picker: Picker,
    anchor: Anchor,
    effort: Effort,
    console: Console,
    *,
    name_kernels: bool,
) -> tuple[list[BenchRow], bool]:
    """The rows, and whether all lines were reached; Ctrl-C keeps what is measured."""
    rows: list[BenchRow] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console.print(HEADER)
    with Progress(*columns, console=errors(), transient=True) as progress:
        task = progress.add_task("", total=len(lines))
        try:
            wanted = [(line, line.problem) for line in lines if not anchor.refusal(line.problem)]
            begun = begin_ahead(wanted, picker, 0 if picker.device.language is Language.C else _AHEAD)
            for line in lines:
                progress.update(task, description=line.text)
                choose = _choice(begun, picker) if not anchor.refusal(line.problem) else None
                rows.append(bench_line(line, picker.device, anchor, effort, choose, name_kernels=name_kernels))
                console.print(Text(row_text(rows[-1]), _STYLES[rows[-1].verdict]))
                progress.advance(task)
        except KeyboardInterrupt:
            errors().print(f"interrupted after {len(rows)} of {len(lines)} problems; what follows is of these")
            return rows, False
    return rows, True


def _choice(begun: Iterator[tuple[BatchLine, Pending]], picker: Picker) -> Choose:
    """The pick of the next problem; others are compiled meanwhile."""
    _, pending = next(begun)
    return lambda stand: picker.finish(pending, stand)


def _report(
    rows: list[BenchRow], environment: dict[str, str], json: Path | None, plot: Path | None, console: Console
) -> None:
    if json is not None:
        write_output(json, bench_json(rows, environment))
    if plot is not None:
        draw_bench(rows, plot)
    for text in summary_lines(rows) if rows else ():
        console.print(text)
