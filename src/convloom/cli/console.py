"""Where the command line prints, and how it ends on an error."""

from __future__ import annotations

import errno
import re
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from convloom.errors import ConvloomError, IllegalProblem

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
    """A group of commands that turns convloom's own exceptions, and refusals of the system, into one message and 2."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the chosen command."""
        try:
            return super().invoke(ctx)
        except ConvloomError as error:
            raise _refused(type(error).__name__, str(error)) from error
        except MemoryError as error:
            words = f"the command needs more memory than there is; {error or 'allocation failed'}; choose smaller sizes"
            raise _refused("OutOfMemory", words) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone (`| head`): typer ends the command without words
                raise
            words = f"the system must grant what a command asks for; got {error}; free or correct what it names"
            raise _refused(type(error).__name__, words) from error


def _refused(kind: str, message: str) -> typer.Exit:
    """Prints one message; the exception that ends the command."""
    errors().print(Text.assemble((kind, "bold red"), ": ", message))
    return typer.Exit(REFUSED)


class ProblemCommand(TyperCommand):
    """A command that takes PROBLEM, which may begin with - as the lines of rocMLIR and benchdnn do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options of a command hold no blanks but in --plan: what begins with - and has one is the problem."""
        if "--" in args:
            return super().parse_args(ctx, args)
        problems = [word for word in args if _is_dashed_problem(word)]
        others = [word for word in args if not _is_dashed_problem(word)]
        stray = next((word for word in others if _SHORT_FLAG.fullmatch(word)), None)
        if stray is not None:
            raise IllegalProblem(
                f"a problem must be one word of the command line; got its flag {stray} alone; put the line in quotes"
            )
        return super().parse_args(ctx, [*others, "--", *problems] if problems else args)


_SHORT_FLAG = re.compile(r"-(?!h$)[a-zA-Z_!@#$^]\w*")


def _is_dashed_problem(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--plan=") and len(word.split()) > 1
