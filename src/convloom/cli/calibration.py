"""`convloom calibration`: the cost model against the times that benchmarks measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convloom.cli.console import output
from convloom.report.calibration import calibration_lines, read_calibrations


def calibration(
    files: Annotated[list[Path], typer.Argument(help="Files that `bench --pick measured --json` wrote.")],
) -> None:
    """Tell how the cost model orders measured candidates: regret of its choice, predicted / measured per family."""
    console = output()
    for line in calibration_lines([item for file in files for item in read_calibrations(file)]):
        console.print(line)
