"""Where the command line prints, and how it ends on an error."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from convloom.errors import ConvloomError

MISMATCH = 1
REFUSED = 2
PLAIN_WIDTH = 180


def output() -> Console:
    """Standard output; made anew so that redirection (also a test's) is followed. Files and pipes get wide lines."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class ReportingGroup(TyperGroup):
    """A group of commands that turns convloom's own exceptions into one message and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the chosen command."""
        try:
            return super().invoke(ctx)
        except ConvloomError as error:
            errors().print(Text.assemble((type(error).__name__, "bold red"), ": ", str(error)))
            raise typer.Exit(REFUSED) from error
