"""Lane maps against the formulas of NVIDIA's PTX ISA document, typed in here one by one."""

import numpy as np
import pytest

from convloom.dtypes import F16, F32, S8
from convloom.errors import InternalError
from convloom.target.catalogue import all_rows, row_named
from convloom.target.instruction import Fragment
from convloom.target.lane_map import holder_table, index_table, lane_map, to_lanes, to_matrix


def c_16x8(g, t, i):
    return g + (8 if i >= 2 else 0), t * 2 + (i & 1)


def a_f16_k16(g, t, i):
    row = g if i < 2 or 4 <= i < 6 else g + 8
    return row, t * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_f16_k16(g, t, i):
    return t * 2 + (i & 1) + (8 if i >= 2 else 0), g


def a_f16_k8(g, t, i):
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def b_f16_k8(g, t, i):
    return t * 2 + i, g


def a_tf32_k8(g, t, i):
    return (g if i in (0, 2) else g + 8), (t if i < 2 else t + 4)


def b_tf32_k8(g, t, i):
    return (t if i == 0 else t + 4), g


def a_tf32_k4(g, t, i):
    return (g if i == 0 else g + 8), t


def b_tf32_k4(g, t, i):
    return t, g


def a_s8_k32(g, t, i):
    row = g if 0 <= i < 4 or 8 <= i < 12 else g + 8
    return row, t * 4 + (i & 3) + (0 if i < 8 else 16)


def b_s8_k32(g, t, i):
    return t * 4 + (i & 3) + (0 if i < 4 else 16), g


def a_s8_k16(g, t, i):
    return (g if i < 4 else g + 8), t * 4 + (i & 3)


def b_s8_k16(g, t, i):
    return t * 4 + i, g


def a_f64_k4(g, t, i):
    return g, t


def b_f64_k4(g, t, i):
    return t, g


def c_8x8(g, t, i):
    return g, t * 2 + i


def a_f64_k16(g, t, i):
    return (g if i % 2 == 0 else g + 8), (i // 2) * 4 + t


def b_f64_k16(g, t, i):
    return i * 4 + t, g


FORMULAS = {
    "mma.m16n8k16.f32.f16.f16": (a_f16_k16, b_f16_k16, c_16x8),
    "mma.m16n8k16.f32.bf16.bf16": (a_f16_k16, b_f16_k16, c_16x8),
    "mma.m16n8k8.f32.f16.f16": (a_f16_k8, b_f16_k8, c_16x8),
    "mma.m16n8k8.f32.bf16.bf16": (a_f16_k8, b_f16_k8, c_16x8),
    "mma.m16n8k8.f32.tf32.tf32": (a_tf32_k8, b_tf32_k8, c_16x8),
    "mma.m16n8k4.f32.tf32.tf32": (a_tf32_k4, b_tf32_k4, c_16x8),
    "mma.m8n8k4.f64.f64.f64": (a_f64_k4, b_f64_k4, c_8x8),
    "mma.m16n8k4.f64.f64.f64": (a_tf32_k4, b_tf32_k4, c_16x8),
    "mma.m16n8k8.f64.f64.f64": (a_tf32_k8, b_tf32_k8, c_16x8),
    "mma.m16n8k16.f64.f64.f64": (a_f64_k16, b_f64_k16, c_16x8),
    **{f"mma.m16n8k32.s32.{a}.{b}": (a_s8_k32, b_s8_k32, c_16x8) for a in ("s8", "u8") for b in ("s8", "u8")},
    **{f"mma.m16n8k16.s32.{a}.{b}": (a_s8_k16, b_s8_k16, c_16x8) for a in ("s8", "u8") for b in ("s8", "u8")},
    **{f"mma.m16n8k32.f32.{a}.{b}": (a_s8_k32, b_s8_k32, c_16x8) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
}


def by_formula(fragment, formula):
    table = np.empty((32, fragment.elements), np.int64)
    for lane in range(32):
        for i in range(fragment.elements):
            row, column = formula(lane >> 2, lane % 4, i)
            table[lane, i] = row * fragment.shape[1] + column
    return table


@pytest.mark.parametrize("name", FORMULAS)
def test_mma_fragments_follow_the_document(name):
    row = row_named(name)
    for operand, formula in zip("abd", FORMULAS[name], strict=True):
        fragment = row.fragment(operand)
        assert np.array_equal(index_table(fragment.layout), by_formula(fragment, formula)), operand
    assert row.fragment("c") == row.fragment("d")


def test_every_mma_row_has_a_formula_here():
    assert {name for name in all_rows() if name.startswith("mma.")} == set(FORMULAS)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_moves_follow_the_document(count):
    # Register j of a lane holds, of matrix j, row lane // 4 and columns 2 * (lane % 4) and one more; .trans swaps.
    for kind in ("ldmatrix", "stmatrix"):
        for suffix in ("", ".trans"):
            row = row_named(f"{kind}.x{count}{suffix}")
            fragment = row.fragment("d" if kind == "ldmatrix" else "a")
            table = index_table(fragment.layout)
            for lane in range(32):
                for i in range(2 * count):
                    one, two = lane // 4, 2 * (lane % 4) + i % 2
                    matrix_row, column = (two, one) if suffix else (one, two)
                    assert table[lane, i] == (i // 2) * 64 + matrix_row * 8 + column


def fragments():
    for row in all_rows().values():
        for operand in row.operands:
            if operand.fragment is not None:
                yield pytest.param(operand.fragment, row, id=f"{row.name}:{operand.name}")


@pytest.mark.parametrize(("fragment", "row"), list(fragments()))
def test_each_entry_is_held_once(fragment, row):
    rows, columns = fragment.shape
    table = index_table(fragment.layout)
    assert table.shape[0] == row.lanes
    assert np.array_equal(np.sort(table, axis=None), np.arange(rows * columns))
    matrix = np.arange(rows * columns).reshape(rows, columns)
    assert np.array_equal(to_matrix(to_lanes(matrix, fragment.layout), fragment.layout, fragment.shape), matrix)


def test_a_map_with_holes_is_refused():
    with pytest.raises(InternalError, match="each of 64 entries"):
        holder_table(lane_map([(32, 1)], [(1, 0)]), 64)


def test_other_vendors_fragments_fit_the_record():
    # AMD v_mfma_f32_32x32x8_f16: 64 lanes; A: row lane % 32, k 4 * (lane // 32) + i; D: 4 blocks of 4 rows.
    a = Fragment(F16, (32, 8), lane_map([(2, 4), (32, 8)], [(4, 1)]))
    d = Fragment(F32, (32, 32), lane_map([(2, 4 * 32), (32, 1)], [(4, 8 * 32), (4, 32)]))
    assert (a.lanes, a.elements, d.lanes, d.elements) == (64, 4, 64, 16)
    assert index_table(a.layout)[37, 2] == 5 * 8 + 6
    assert index_table(d.layout)[37, 6] == (1 * 8 + 4 + 2) * 32 + 5
    # Intel dpas, 16 lanes, s8: B is k x 16 with 4 consecutive k in each register.
    b = Fragment(S8, (32, 16), lane_map([(16, 1)], [(8, 4 * 16), (4, 16)]))
    assert (b.lanes, b.elements) == (16, 32)
    # AMD RDNA3 wmma: both halves of 32 lanes hold the same A; the map repeats itself, the matrix is still well defined.
    wmma = lane_map([(2, 0), (16, 16)], [(16, 1)])
    matrix = np.arange(256).reshape(16, 16)
    held = to_lanes(matrix, wmma)
    assert np.array_equal(held[3], held[19])
    assert np.array_equal(to_matrix(held, wmma, (16, 16)), matrix)
