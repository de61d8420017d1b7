"""Files of problems: one a line; empty lines and lines that begin with # are comments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from convloom.errors import ConvloomError, IllegalProblem
from convloom.problem.conv import Conv
from convloom.problem.gemm import Gemm
from convloom.problem.notation.choose import parse_line
from convloom.problem.notation.defaults import Defaults


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A problem with the place and the text that it was read from."""

    path: Path
    number: int
    text: str
    problem: Conv | Gemm


def read_batch(paths: Sequence[Path | str], defaults: Defaults | None = None) -> list[BatchLine]:
    """All problems of some files, in order.

    IllegalProblem names file and line of the first that is wrong, and a file that is no text or holds no problem.
    """
    chosen = Defaults() if defaults is None else defaults
    return [line for path in map(Path, paths) for line in _read_file(path, chosen)]


def _read_file(path: Path, defaults: Defaults) -> list[BatchLine]:
    found = [BatchLine(path, number, text, _parse(path, number, text, defaults)) for number, text in _lines(path)]
    if not found:
        raise IllegalProblem(
            f"a batch file must hold at least one problem; {path} has no line but blanks and comments; add one"
        )
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise IllegalProblem(f"a batch file must be readable; got {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise IllegalProblem(f"a batch file must be text in UTF-8; got {path}: {error}; check the path") from error
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


def _parse(path: Path, number: int, text: str, defaults: Defaults) -> Conv | Gemm:
    try:
        return parse_line(text, defaults)
    except ConvloomError as error:
        raise type(error)(f"{path}:{number}: {error}") from error
