"""The application: every command under one name."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from convloom.cli import bench, cache, calibration, check, devices, emit, explain, fuzz, model, run
from convloom.cli.console import ProblemCommand, ReportingGroup

app = typer.Typer(
    cls=ReportingGroup,
    help="Generates, runs, checks and explains convolution and GEMM kernels.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cache.app, name="cache")
app.command("devices")(devices.devices)
app.command("run", cls=ProblemCommand)(run.run)
app.command("check")(check.check)
app.command("bench")(bench.bench)
app.command("calibration")(calibration.calibration)
app.command("fuzz")(fuzz.fuzz)
app.command("explain", cls=ProblemCommand)(explain.explain)
app.command("emit", cls=ProblemCommand)(emit.emit)
app.command("key", cls=ProblemCommand)(explain.key)
app.command("model")(model.model)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"convloom {version('convloom')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Generates, runs, checks and explains convolution and GEMM kernels."""
