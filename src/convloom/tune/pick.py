"""How the plan of a kernel is picked: by the cost model, or by measuring its first candidates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from convloom.errors import IllegalProblem

DEFAULT_COUNT = 8
MOST_MEASURED = 256
_TEXT = re.compile(r"(model|measured)(?::(\d+))?")


class PickHow(Enum):
    """What decides."""

    MODEL = "model"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Pick:
    """`count`: how many candidates are measured, 1 to 256; 1 for the cost model's choice, where none is."""

    how: PickHow
    count: int = 1

    def __post_init__(self) -> None:
        most = 1 if self.how is PickHow.MODEL else MOST_MEASURED
        if not 1 <= self.count <= most:
            raise IllegalProblem(
                f"{self.how.value} picks among 1 to {most} plans; got {self.count}; correct the number"
            )

    def __str__(self) -> str:
        return self.how.value if self.how is PickHow.MODEL else f"{self.how.value}:{self.count}"


MODEL = Pick(PickHow.MODEL)
"""The candidate with the least predicted time."""


def parse_pick(text: str) -> Pick:
    """The pick that `model`, `measured` (of 8) or `measured:K` means; IllegalProblem for anything else."""
    match = _TEXT.fullmatch(text)
    if match is None or (match[1] == PickHow.MODEL.value and match[2]):
        raise IllegalProblem(f"pick must be model, measured or measured:K; got {text!r}; use one of these")
    how = PickHow(match[1])
    return MODEL if how is PickHow.MODEL else Pick(how, int(match[2] or DEFAULT_COUNT))
