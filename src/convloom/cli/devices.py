"""`convloom devices`: what can run kernels here, and what would add the rest."""

from __future__ import annotations

from rich.text import Text

from convloom.cli.console import output
from convloom.runtime.device import describe_devices
from convloom.runtime.interface import Description


def devices() -> None:
    """List the devices: what is found, what is missing, and the command that would add it."""
    console = output()
    for description in describe_devices():
        console.print(_lines(description))


def _lines(description: Description) -> Text:
    mark = ("found  ", "green") if description.found else ("missing", "yellow")
    text = Text.assemble(mark, "  ", (description.name, "bold"), f"  {description.summary}")
    for detail in description.details:
        text.append(f"\n         {detail}")
    if description.remedy:
        text.append(f"\n         to add it: {description.remedy}")
    return text
