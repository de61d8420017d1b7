"""How the sum over K is divided among blocks: the record of a plan, and the workspace that partial sums take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from convloom.errors import Infeasible


class Reduction(Enum):
    """How the parts of one sum, computed by different blocks, come together."""

    NONE = "none"  # one block sums all of K
    PASSES = "passes"  # each part stores its sums to a workspace, a second launch adds them in order
    ATOMIC = "atomic"  # all parts add to the same numbers, of the result or of a workspace, cleared by a launch before


@dataclass(frozen=True, slots=True)
class Split:
    """`parts` ranges of K, of nearly equal numbers of K tiles; those beyond the last tile are empty."""

    how: Reduction
    parts: int

    def __str__(self) -> str:
        return self.how.value if self.how is Reduction.NONE else f"{self.how.value}*{self.parts}"


LOADS_AHEAD = 16
"""Parts whose partial sums one thread loads before it adds the first of them."""

NO_SPLIT = Split(Reduction.NONE, 1)
_TEXT = re.compile(rf"({'|'.join(item.value for item in Reduction if item is not Reduction.NONE)})\*(\d+)")


def parse_split(text: str) -> Split:
    """The split that `str` printed; Infeasible for another text."""
    match = _TEXT.fullmatch(text)
    if match is not None and int(match[2]) > 1:
        return Split(Reduction(match[1]), int(match[2]))
    if text == str(NO_SPLIT):
        return NO_SPLIT
    raise Infeasible(f"plan field split must look like none or passes*8, 2 parts or more; got {text!r}; correct it")
