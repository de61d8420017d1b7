"""`convloom check`: every problem of some files, run and compared with the reference."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from convloom.cli.console import MISMATCH, errors, output
from convloom.cli.problem_options import (
    Data,
    Deterministic,
    DeviceName,
    DirectionName,
    MaxWorkspace,
    PostOps,
    Scales,
    TypeNames,
    ZeroPoints,
    defaults_of,
    not_negative,
)
from convloom.errors import ConvloomError
from convloom.frontend.compile_ahead import compile_ahead
from convloom.frontend.kernel import Kernel
from convloom.frontend.problem_check import check_problem
from convloom.plan.policy import Policy
from convloom.problem.data import DataKind
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation import BatchLine, read_batch
from convloom.runtime.device import device_named
from convloom.runtime.interface import Device


@dataclass(slots=True)
class Tally:
    """Counts of a check so far."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def closing_line(self) -> str:
        """`N passed, N failed, N skipped`."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def check(
    batch: Annotated[list[Path], typer.Option("--batch", help="A file with one problem a line; may be repeated.")],
    direction: DirectionName = "fwd",
    dtypes: TypeNames = "f32",
    device: DeviceName = "cpu",
    data: Data = DataKind.INT,
    max_mops: Annotated[
        float | None,
        typer.Option(
            "--max-mops",
            callback=not_negative,
            help="Skip (and list) problems of more than this many million operations.",
        ),
    ] = None,
    post_ops: PostOps = "",
    scales: Scales = "",
    zero_points: ZeroPoints = "",
    deterministic: Deterministic = False,
    max_workspace: MaxWorkspace = None,
) -> None:
    """Run every problem of the files and compare it with the reference; exit status 1 if one fails, or none ran.

    Attributes of a line itself win over the options. The last line is `N passed, N failed, N skipped`.
    """
    lines = read_batch(batch, defaults_of(direction, dtypes, attributes=AttributeTexts(post_ops, scales, zero_points)))
    tally, console, chosen = Tally(), output(), device_named(device)
    fitting = [line for line in lines if not _skip(line, max_mops, tally, console)]
    complete = _check_all(fitting, chosen, data, Policy(deterministic, max_workspace), tally, console)
    if not fitting:
        errors().print(f"nothing was checked: --max-mops {max_mops:g} skips every problem; give a larger limit")
    console.print(tally.closing_line)
    if tally.failed or not complete or not fitting:
        raise typer.Exit(MISMATCH)


def _skip(line: BatchLine, max_mops: float | None, tally: Tally, console: Console) -> bool:
    mops = line.problem.ops * 1e-6
    if max_mops is None or mops <= max_mops:
        return False
    tally.skipped += 1
    console.print(Text.assemble(("skipped", "yellow"), f" {_place(line)} ({mops:.0f} Mop)"))
    return True


def _check_all(
    lines: list[BatchLine], device: Device, data: DataKind, policy: Policy, tally: Tally, console: Console
) -> bool:
    """Checks the lines in order; False if Ctrl-C ended it early."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=errors(), transient=True) as progress:
        task = progress.add_task("", total=len(lines))
        try:
            for line, building in compile_ahead([(line, line.problem) for line in lines], device, policy):
                reason = _check_line(building, data)
                tally.passed += not reason
                tally.failed += bool(reason)
                if reason:
                    console.print(Text.assemble(("failed", "bold red"), f" {_place(line)}: {reason}"))
                progress.update(task, advance=1, description=tally.closing_line)
        except KeyboardInterrupt:
            done = tally.passed + tally.failed
            errors().print(f"interrupted after {done} of {len(lines)} problems; the counts are of these")
            return False
    return True


def _check_line(building: Future[Kernel], data: DataKind) -> str:
    """What is wrong with a line's result; empty if nothing is."""
    try:
        return check_problem(building.result(), data).reason
    except ConvloomError as error:
        return f"{type(error).__name__}: {error}"


def _place(line: BatchLine) -> str:
    return f"{line.path.name}:{line.number} {line.text}"
