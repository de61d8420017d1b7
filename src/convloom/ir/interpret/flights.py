"""Records of the asynchronous copies that a chunk has under way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from convloom.ir.interpret.memory import Array, Bools, Ints
from convloom.ir.ops import Buffer


@dataclass(slots=True)
class Copy:
    """One copy statement of many threads: what goes where; `group` and `taken` per thread."""

    buffer: Buffer
    places: Ints
    values: Array
    taken: Bools
    group: Ints
    landed: bool


@dataclass(slots=True)
class Copies:
    """The copies in flight, and how many groups each thread has committed, of shape (threads, blocks)."""

    committed: Ints
    random: np.random.Generator
    flying: list[Copy] = field(default_factory=list[Copy])
