"""From the number of a block to its tile of C, its part of K and its phase."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Read, Scope
from convloom.ir.symbols import BLOCK_ID
from convloom.lower.frame import GridFrame
from convloom.lower.walk_tiles import walk_tiles

_PARTS = "part"
_SLICES = "slice"
_TILES = "tile"
_PHASES = "phase"


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """`corner`: coordinates of the tile by flat axis; `tile`: its number among all tiles of all phases.

    `part` of K, and `slice` of the tile's numbers, where blocks share a tile.
    """

    corner: dict[str, Expr]
    tile: Expr
    part: Expr
    slice: Expr


def block_count(frame: GridFrame, parts: int, slices: int = 1) -> Expr:
    """Number of blocks of a launch that `decode_block` unpacks."""
    tiles = frame.g.extent * frame.m.tiles * frame.n.tiles * frame.contraction.phase_count
    return simplify(tiles * (parts * slices))


def decode_block(
    builder: IrBuilder, frame: GridFrame, parts: int, slices: int = 1, number: Expr = BLOCK_ID
) -> BlockPlace:
    """Unpacks the number of a block: slices fastest, then tiles as the plan walks over them, parts, g and phases.

    Blocks of one part and group follow each other, as they share operands. Symbols of a family get their values from
    tables here.
    """
    rows, columns = simplify(frame.m.tiles), simplify(frame.n.tiles)
    walked = frame.plan.walk > 1 and rows is not const(1) and columns is not const(1)
    digits = [
        (_SLICES, const(slices)),
        *([(_TILES, simplify(rows * columns))] if walked else [("n", columns), ("m", rows)]),
        (_PARTS, const(parts)),
        ("g", simplify(frame.g.tiles)),
        (_PHASES, const(frame.contraction.phase_count)),
    ]
    found = _unpack(builder, number, digits)
    if walked:
        found["m"], found["n"] = walk_tiles(builder, found[_TILES], (rows, columns), frame.plan.walk)
    for parameter in frame.contraction.phases:
        values = parameter.values
        table = Buffer(f"{parameter.symbol.name}_table", None, Scope.CONSTANT, len(values), values=values)
        builder.bind(parameter.symbol, Read(table, found[_PHASES]))
    tile = found[_PHASES]
    for name, count in (("g", simplify(frame.g.tiles)), ("m", rows), ("n", columns)):
        tile = tile * count + found[name]
    corner = {flat.name: found[flat.name.lower()] * flat.multiple for flat in (frame.n, frame.m, frame.g)}
    return BlockPlace(corner, tile, found[_PARTS], found[_SLICES])


def _unpack(builder: IrBuilder, rest: Expr, digits: list[tuple[str, Expr]]) -> dict[str, Expr]:
    """The digits of a number, fastest first, by name; the last one that is not 1 takes what is left."""
    found: dict[str, Expr] = {}
    for place, (name, count) in enumerate(digits):
        last = all(other is const(1) for _, other in digits[place + 1 :])
        if name == _PHASES:
            found[name] = builder.let(name, rest, count)
            continue
        if count is const(1) and name in (_SLICES, _PARTS):
            found[name] = const(0)
            continue
        found[name] = builder.let(f"tile_{name}" if len(name) == 1 else name, rest if last else rest % count, count)
        rest = const(0) if last else builder.let(f"after_{name}", rest // count)
    return found
