"""How an operand tile of rows x k lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import DType
from convloom.expr import Expr


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """`rows` x `depth` numbers in lines of the fastest direction, `pad` unused numbers behind each line."""

    dtype: DType
    rows: int
    depth: int
    k_fastest: bool
    pad: int

    @property
    def line(self) -> int:
        """Numbers from one line to the next."""
        return (self.depth if self.k_fastest else self.rows) + self.pad

    @property
    def size(self) -> int:
        """Numbers of the whole tile."""
        return self.line * (self.rows if self.k_fastest else self.depth)

    def index(self, row: Expr, k: Expr) -> Expr:
        """Place of a number in the tile."""
        return row * self.line + k if self.k_fastest else k * self.line + row
