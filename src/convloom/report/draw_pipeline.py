"""The timeline of a block's first K tiles: when each is copied, waits in its slot, and is multiplied."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.plan.tiled import TiledPlan
from convloom.report.svg import INK, box, colour, picture, stroke, words

_STEP = 84.0
_ROW = 26.0
_LEFT = 110.0
_SHOWN = 8
_COPY, _MULTIPLY = "hsl(210 60% 70%)", "hsl(30 80% 68%)"


def draw_pipeline(plan: TiledPlan) -> str:
    """A row per K tile, time to the right in units of one step; not to scale."""
    rows = min(_SHOWN, plan.stages + 4)
    staged = plan.stages > 1
    columns = rows + plan.stages - 1 if staged else 2 * rows
    shapes = [*(_staged(rows, plan.stages) if staged else _alone(rows)), *_legend(rows, staged)]
    return picture(_LEFT + columns * _STEP + 10, (rows + 2.2) * _ROW, shapes, "timeline of the pipeline")


def _staged(rows: int, stages: int) -> Iterator[str]:
    """Tile t is asked for while tile t - stages + 1 is multiplied; a barrier in front of each multiplication."""
    ahead = stages - 1
    for tile in range(rows):
        y, slot = tile * _ROW, tile % stages
        begin = _LEFT + tile * _STEP
        yield words(0, y + 17, f"K tile {tile}")
        yield box(_LEFT - 44, y + 3, 38, _ROW - 6, colour(slot, stages), note=f"slot {slot}", stroke=INK)
        yield words(_LEFT - 25, y + 17, f"slot {slot}", size=10, anchor="middle", fill="black")
        yield box(begin, y + 3, ahead * _STEP, _ROW - 6, _COPY, note=f"tile {tile} in flight", stroke=INK)
        yield box(begin + ahead * _STEP, y + 3, _STEP, _ROW - 6, _MULTIPLY, note=f"tile {tile} multiplied", stroke=INK)
        yield stroke([(begin + ahead * _STEP, y), (begin + ahead * _STEP, y + _ROW)], width=3)


def _alone(rows: int) -> Iterator[str]:
    """One slot: load, barrier, multiply, barrier."""
    for tile in range(rows):
        y, begin = tile * _ROW, _LEFT + 2 * tile * _STEP
        yield words(0, y + 17, f"K tile {tile}")
        yield box(begin, y + 3, _STEP, _ROW - 6, _COPY, note=f"tile {tile} loaded", stroke=INK)
        yield box(begin + _STEP, y + 3, _STEP, _ROW - 6, _MULTIPLY, note=f"tile {tile} multiplied", stroke=INK)
        for x in (begin + _STEP, begin + 2 * _STEP):
            yield stroke([(x, y), (x, y + _ROW)], width=3)


def _legend(rows: int, staged: bool) -> Iterator[str]:
    y = (rows + 0.6) * _ROW
    yield box(0, y, 18, 14, _COPY, stroke=INK)
    yield words(24, y + 12, "copies in flight" if staged else "load to shared memory")
    yield box(190, y, 18, 14, _MULTIPLY, stroke=INK)
    yield words(214, y + 12, "multiplication")
    yield stroke([(340, y - 2), (340, y + 16)], width=3)
    yield words(350, y + 12, "barrier of the block")
