"""`convloom fuzz`: random problems and plans against the exact reference, for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from convloom.cli.console import MISMATCH, errors, output
from convloom.cli.problem_options import DeviceName, not_negative
from convloom.frontend.device_target import target_for
from convloom.frontend.fuzz_case import FuzzCase
from convloom.frontend.fuzz_draw import draw_case
from convloom.frontend.fuzz_run import Fault, run_case, shrink
from convloom.runtime.device import device_named
from convloom.runtime.interface import Device

_MOST_WORDS = 2000  # characters of a message
_PROGRESS_SECONDS = 10.0  # between two lines of progress


@dataclass(slots=True)
class Session:
    """One fuzz run: cases of consecutive seeds, and the faults found so far by kind, name and first words."""

    device: Device
    seed: int
    cases: int = 0
    faults: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def draw(self) -> Iterator[FuzzCase]:
        """Endless cases; the case of a seed does not depend on those before it."""
        target = target_for(self.device)
        while True:
            yield draw_case(Random(self.seed + self.cases), target)
            self.cases += 1


def fuzz(
    seconds: Annotated[float, typer.Option(callback=not_negative, help="How long to go on.")] = 60.0,
    device: DeviceName = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of the first case; the others follow.")] = 0,
    cases: Annotated[int | None, typer.Option(min=1, help="Stop after that many cases.")] = None,
) -> None:
    """Run random problems, layouts, types, epilogues, sizes and plans; integers must come out exactly.

    A failing case is made smaller and printed as one command line. Exit status 1 if any fails.
    """
    session, console = Session(device_named(device), seed), output()
    complete = _run_cases(session, seconds, cases, device, console)
    console.print(f"{session.cases} cases from seed {seed} on {device}, {len(session.faults)} faults")
    if session.faults or not complete:
        raise typer.Exit(MISMATCH)


def _run_cases(session: Session, seconds: float, cases: int | None, device: str, console: Console) -> bool:
    """Runs cases until time or number is reached; False if Ctrl-C ended it early."""
    deadline, shown = time.monotonic() + seconds, time.monotonic()
    try:
        for case in session.draw():
            if time.monotonic() >= deadline or session.cases == cases:
                break
            fault = run_case(case, session.device)
            if fault is not None:
                _report(session, case, fault, device, console)
            if time.monotonic() - shown > _PROGRESS_SECONDS:
                shown = time.monotonic()
                errors().print(f"{session.cases + 1} cases, {len(session.faults)} faults")
    except KeyboardInterrupt:
        errors().print(f"interrupted in case {session.cases + 1}; the count is of those before")
        return False
    return True


def _report(session: Session, case: FuzzCase, fault: Fault, device: str, console: Console) -> None:
    """Shrinks and prints a fault; one that looks like an earlier one only counts once."""
    smaller, same = shrink(case, fault, session.device)
    key = (same.kind.value, same.name, " ".join(same.message.split()[:6]))
    if key in session.faults:
        return
    session.faults[key] = smaller.command(device)
    head = f" seed {session.seed + session.cases}: {same.kind.value} {same.name}: "
    console.print(Text.assemble(("fault", "bold red"), head, same.message[:_MOST_WORDS]))
    console.print(Text(f"  {session.faults[key]}"))
