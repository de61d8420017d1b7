"""The order in which consecutive blocks take the tiles of C, so that those that run together share operands."""

from __future__ import annotations

from convloom.expr import Expr, local_sym, minimum, simplify
from convloom.ir.build import IrBuilder


def walk_tiles(builder: IrBuilder, number: Expr, grid: tuple[Expr, Expr], walk: int) -> tuple[Expr, Expr]:
    """Row and column of the number-th tile of a grid of (rows, columns): bands of `walk` rows, column after column.

    As many blocks as `walk` squared cover a square of tiles and read 2 * walk strips of operands, where row by row they
    read 1 + walk * walk. The last band has the rows that are left; every tile is met once.
    """
    rows, columns = grid
    bands = simplify((rows + (walk - 1)) // walk)
    first = builder.let("band", number // (columns * walk), bands) * walk
    height = local_sym(builder.unique("band_rows"), lo=1, hi=walk)
    builder.bind(height, simplify(minimum(rows - first, walk)))
    within = builder.let("in_band", number % (columns * walk), columns * walk)
    column = builder.let("tile_n", within // height, columns)
    row = builder.let("tile_m", first + within % height, rows)
    return row, column
