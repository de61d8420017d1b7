"""Who holds what of a block's tile of C: the tile by subgroups, and a corner of it by threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from convloom.expr import evaluate, local_sym
from convloom.lower.build_tiled import multiplier_for
from convloom.lower.frame import make_frame
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, exchange
from convloom.report.svg import INK, box, colour, picture, words

SUBGROUP = 32
CORNER = 16
_WIDTH = 360.0
_CELL = 26.0


def owners(contraction: Contraction, plan: TiledPlan) -> NDArray[np.int64]:
    """The thread that holds each element of the block's tile, (block_m, block_n); of the first K group."""
    frame = make_frame(exchange(contraction) if plan.swap else contraction, plan)
    multiplier = multiplier_for(frame)
    count = multiplier.accumulators.size
    row, column = multiplier.place(local_sym("number", lo=0, hi=count - 1))
    threads = np.arange(plan.group_threads)
    values = {"tid": threads[:, None], "number": np.arange(count)[None, :]}
    rows, columns = (np.broadcast_to(evaluate(place, values), (threads.size, count)) for place in (row, column))
    found = np.full((plan.block_m, plan.block_n), -1, np.int64)
    found[rows, columns] = np.broadcast_to(threads[:, None], rows.shape)
    return found


def draw_tile(contraction: Contraction, plan: TiledPlan) -> str:
    """The tile coloured by subgroup at the left, its upper left corner with numbers of threads at the right."""
    held = owners(contraction, plan)
    scale = min(_WIDTH / plan.block_n, _WIDTH / plan.block_m)
    corner = held[:CORNER, :CORNER]
    left = max(plan.block_n * scale, _WIDTH) + 40
    shapes = [
        words(0, 14, f"{plan.block_m} x {plan.block_n} of C by one block: a colour for each {SUBGROUP} threads"),
        *_areas(held // SUBGROUP, scale, int(held.max()) // SUBGROUP + 1),
        words(
            left, 14, f"rows 0 to {corner.shape[0] - 1}, columns 0 to {corner.shape[1] - 1}: the thread that holds it"
        ),
        *_cells(corner, left, int(held.max()) + 1),
    ]
    height = 24 + max(plan.block_m * scale, corner.shape[0] * _CELL)
    return picture(left + max(corner.shape[1] * _CELL, 400), height + 8, shapes, "tile mapping")


def _areas(groups: NDArray[np.int64], scale: float, count: int) -> Iterator[str]:
    """Rectangles of equal numbers: runs along rows, equal neighbouring rows taken together."""
    changes = np.flatnonzero((groups[1:] != groups[:-1]).any(axis=1)) + 1
    tops = [0, *changes.tolist(), len(groups)]
    for top, bottom in itertools.pairwise(tops):
        line = groups[top]
        ends = [0, *(np.flatnonzero(line[1:] != line[:-1]) + 1).tolist(), len(line)]
        for begin, end in itertools.pairwise(ends):
            place = (begin * scale, 24 + top * scale, (end - begin) * scale, (bottom - top) * scale)
            note = f"subgroup {line[begin]}: rows {top} to {bottom - 1}, columns {begin} to {end - 1}"
            yield box(*place, colour(int(line[begin]), count), note=note)


def _cells(corner: NDArray[np.int64], left: float, count: int) -> Iterator[str]:
    for (row, column), thread in np.ndenumerate(corner):
        x, y = left + column * _CELL, 24 + row * _CELL
        yield box(x, y, _CELL, _CELL, colour(int(thread), min(count, SUBGROUP)), stroke=INK)
        yield words(x + _CELL / 2, y + _CELL * 0.68, str(thread), size=10, anchor="middle", fill="black")
