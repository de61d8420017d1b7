"""A block's accumulators outside of registers: vectors, those of neighbouring threads behind each other."""

from __future__ import annotations

from convloom.expr import Expr
from convloom.ir.ops import Buffer, Read
from convloom.lower.frame import GridFrame


class SumVectors:
    """The tile of C of one K group as it lies in a workspace or in shared memory, in the accumulator's type.

    The v-th vector of all threads lies together, so that every access of a subgroup is contiguous; which row and column
    a number belongs to only the multiplier knows.
    """

    def __init__(self, frame: GridFrame, accumulators: Buffer) -> None:
        self._frame, self._accumulators = frame, accumulators
        self.width = frame.plan.sum_width(frame.contraction.acc.nbytes)
        self.count = accumulators.size // self.width
        self.tile_numbers = accumulators.size * frame.plan.group_threads

    def place(self, vector: Expr) -> Expr:
        """Where this thread's v-th vector begins in its tile."""
        return (vector * self._frame.plan.group_threads + self._frame.member) * self.width

    def of_thread(self, vector: Expr) -> Read:
        """The v-th vector of the thread's accumulators."""
        return Read(self._accumulators, vector * self.width, self.width)
