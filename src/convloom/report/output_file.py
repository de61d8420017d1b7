"""Files that a command was asked to write."""

from __future__ import annotations

from pathlib import Path

from convloom.errors import IllegalProblem


def write_output(path: Path, content: str | bytes) -> None:
    """Writes a file, folders included; IllegalProblem where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        rule = "an output must be a file that can be written"
        raise IllegalProblem(f"{rule}; {path} gave {error}; correct it") from error
