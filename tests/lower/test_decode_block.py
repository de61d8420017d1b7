"""Blocks of a grid: every tile and part once, in the order that the plan says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import F32
from convloom.expr import const, evaluate, sym
from convloom.ir.build import IrBuilder
from convloom.lower.decode_block import block_count, decode_block
from convloom.lower.frame import make_frame
from convloom.lower.partial_sums import steps_of_part
from convloom.lower.walk_tiles import walk_tiles
from convloom.plan.split import Reduction, Split
from convloom.problem.conv import TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.target.arch import SM_90A
from tests.plan.dividing import contraction_of, undivided


def values(builder, known):
    """What the bound names are worth, for arrays of what is known."""
    for statement in builder.body:
        if hasattr(statement, "variable"):
            known = {**known, statement.variable.name: evaluate(statement.value, known)}
    return known


@given(rows=st.integers(1, 20), columns=st.integers(1, 20), walk=st.integers(2, 12))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_a_walk_meets_every_tile_once(rows, columns, walk):
    builder, number = IrBuilder(), sym("number", lo=0)
    grid = sym("rows", lo=1), sym("columns", lo=1)
    row, column = walk_tiles(builder, number, grid, walk)
    known = values(builder, {"number": np.arange(rows * columns), "rows": rows, "columns": columns})
    found = list(zip(evaluate(row, known).tolist(), evaluate(column, known).tolist(), strict=True))
    assert sorted(found) == [(row, column) for row in range(rows) for column in range(columns)]
    for place, (row, column) in enumerate(found):
        band = row // walk
        height = min(walk, rows - band * walk)
        assert place == band * walk * columns + column * height + row % walk


def test_a_walk_reads_fewer_strips():
    """64 blocks at a time on a grid of 64 x 64 tiles: 16 strips of operands instead of 65."""
    builder, number = IrBuilder(), sym("number", lo=0)
    row, column = walk_tiles(builder, number, (const(64), const(64)), 8)
    known = values(builder, {"number": np.arange(4096)})
    rows, columns = (evaluate(item, known).reshape(64, 64) for item in (row, column))
    strips = [len(set(r.tolist())) + len(set(c.tolist())) for r, c in zip(rows, columns, strict=True)]
    assert set(strips) == {16}


@pytest.mark.parametrize("walk", [1, 2, 3, 8])
@pytest.mark.parametrize(("parts", "slices"), [(1, 1), (3, 1), (1, 2), (4, 5)])
def test_blocks_are_tiles_times_parts(walk, parts, slices):
    specs = [TensorSpec(F32, dense(shape)) for shape in ((2, 300, 40), (2, 40, 200), (2, 300, 200))]
    contraction = contraction_of(Gemm((2,), 300, 200, 40, *specs))
    plan = replace(undivided(contraction, SM_90A), walk=walk)
    frame = make_frame(contraction, plan)
    builder = IrBuilder()
    place = decode_block(builder, frame, parts, slices)
    blocks = block_count(frame, parts, slices).value
    known = values(builder, {"bid": np.arange(blocks)})

    def each(expression):
        return np.broadcast_to(evaluate(expression, known), blocks).tolist()

    corners = list(zip(*[each(item) for item in place.corner.values()], strict=True))
    tiles = each(place.tile)
    assert len(set(zip(corners, each(place.part), each(place.slice), strict=True))) == blocks
    assert np.bincount(tiles).tolist() == [parts * slices] * (blocks // (parts * slices))
    assert len(set(zip(tiles, corners, strict=True))) == len(set(tiles)) == len(set(corners))


@given(steps=st.integers(0, 200), parts=st.integers(2, 40), symbolic=st.booleans())
@settings(derandomize=True, max_examples=200, deadline=None)
def test_parts_cover_all_of_k_once(steps, parts, symbolic):
    specs = [TensorSpec(F32, dense(shape)) for shape in ((64, 64), (64, 64), (64, 64))]
    contraction = contraction_of(Gemm((), 64, 64, 64, *specs))
    plan = replace(undivided(contraction, SM_90A), split=Split(Reduction.PASSES, parts))
    builder, part = IrBuilder(), sym("part", lo=0, hi=parts - 1)
    given_steps = sym("steps", lo=0) if symbolic else const(steps)
    found = steps_of_part(builder, make_frame(contraction, plan), part, given_steps)
    known = values(builder, {"part": np.arange(parts), "steps": steps})
    first, count = (np.broadcast_to(evaluate(item, known), parts).tolist() for item in (found.first, found.count))
    covered = [step for begin, many in zip(first, count, strict=True) for step in range(begin, begin + many)]
    assert covered == list(range(steps))
    assert len({many for many in count[:-1] if many} | {max(count)}) <= 2
    assert count == sorted(count, reverse=True)
