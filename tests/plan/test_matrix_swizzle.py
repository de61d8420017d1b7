"""Tiles for matrix loads: swizzled lines hold every number once, meet no bank twice, and start where banks start."""

import numpy as np
import pytest

from convloom.expr import evaluate, sym
from convloom.plan.shared_layout import SharedLayout, matrix_swizzle, tile_layouts
from convloom.plan.tiled import Along, Transfer, parse_plan
from convloom.target.catalogue import row_named

F16_ROW, S8_ROW = "mma.m16n8k16.f32.f16.f16", "mma.m16n8k32.s32.s8.s8"
PLAN = (
    "tiled block={block} thread=16x8 chunk=16x8 lanes=1 unroll=0 g=- m=m0 n=n0 serial=- k=k0 a={a} b={b} store=1"
    " index=32 swap=0 row={row} stages=1 groups=1 split=none walk=1"
)
ROWS, DEPTH = sym("row", lo=0, hi=1023), sym("k", lo=0, hi=1023)


def layout_of(row: str, along: Along, rows: int, depth: int) -> SharedLayout:
    instruction = row_named(row)
    vector = 16 // instruction.fragment("a").dtype.nbytes
    swizzle = matrix_swizzle(instruction, "a", Transfer(along, vector, 0), rows, depth)
    a = Transfer(along, vector, 0, swizzle)
    text = PLAN.format(block=f"{rows}x8x{depth}", a=a, b=Transfer(Along.K, vector, 0), row=row)
    return tile_layouts(parse_plan(text), instruction.fragment("d").dtype)[0]


def places(layout: SharedLayout, rows, depth):
    """Byte addresses of a grid of numbers."""
    index = layout.index(ROWS, DEPTH)
    grid = np.meshgrid(rows, depth, indexing="ij")
    return evaluate(index, {"row": grid[0], "k": grid[1]}) * layout.dtype.nbytes


@pytest.mark.parametrize("row", [F16_ROW, S8_ROW])
@pytest.mark.parametrize(("rows", "depth"), [(16, 32), (32, 64), (64, 64), (128, 128), (256, 64)])
@pytest.mark.parametrize("along", list(Along))
def test_swizzled_lines(row, rows, depth, along):
    layout = layout_of(row, along, rows, depth)
    if layout.swizzle == 1:
        assert row == S8_ROW or layout.line_bytes == 16  # bytes along rows are read word by word
        return
    assert layout.pad == 0
    nbytes = layout.dtype.nbytes
    whole = np.sort(places(layout, np.arange(rows), np.arange(depth)).reshape(-1))
    assert (whole == np.arange(rows * depth) * nbytes).all()
    lines, along_line = (rows, depth) if layout.k_fastest else (depth, rows)
    for first in range(0, lines, 8):
        for piece in range(0, along_line * nbytes, 16):
            line, at = np.arange(first, first + 8), np.array([piece // nbytes])
            starts = places(layout, line, at) if layout.k_fastest else places(layout, at, line)
            assert len(set((starts.reshape(-1) % 128 // 16).tolist())) == 8


@pytest.mark.parametrize(("rows", "depth", "vector"), [(16, 24, 8), (16, 48, 8), (48, 48, 8), (64, 64, 4)])
def test_other_lines_are_padded(rows, depth, vector):
    """Lines that no power of two divides, and copies of less than a piece."""
    assert matrix_swizzle(row_named(F16_ROW), "a", Transfer(Along.K, vector, 0), rows, depth) == 1
