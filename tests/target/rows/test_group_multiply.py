"""wgmma: its lane maps by the document's formulas, its shared layouts as tables, products against NumPy."""

import numpy as np
import pytest

from convloom.dtypes import BF16, E4M3, E5M2, F16, S8, U8
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.target.group_multiply import Major, MatrixDescriptor, element_addresses
from convloom.target.instruction import Completion, Ordering, Proxy
from convloom.target.lane_map import index_table
from convloom.target.memory import FlatMemory
from convloom.target.number_format import TF32, storage
from convloom.target.nvidia_wgmma import wgmma
from convloom.target.swizzle import Swizzle, swizzled
from tests.target.rows.packing import packed, random_numbers, unpacked

SPANS = {Swizzle.NONE: 16, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}


def document_accumulator(n, lane, i):
    """Row and column of d[i] in a lane of the warpgroup."""
    warp, group, place = lane // 32, lane % 32 // 4, lane % 4
    return 16 * warp + group + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * place + i % 2


@pytest.mark.parametrize("n", [8, 40, 256])
def test_accumulators_follow_the_document(n):
    table = index_table(wgmma(n, F16, F16).fragment("d").layout)
    for lane in range(128):
        for i in range(n // 2):
            row, column = document_accumulator(n, lane, i)
            assert table[lane, i] == row * n + column


def document_a(lane, i, run):
    """Row and column of A's element i: registers alternate row groups, then k; `run` elements share a register."""
    warp, group, place = lane // 32, lane % 32 // 4, lane % 4
    register = i // run
    return 16 * warp + group + 8 * (register % 2), 4 * run * (register // 2) + run * place + i % run


@pytest.mark.parametrize(("dtype", "k"), [(F16, 16), (BF16, 16), (TF32, 8), (E4M3, 32), (S8, 32)])
def test_register_operands_follow_the_document(dtype, k):
    fragment = wgmma(16, dtype, dtype, True).fragment("a")
    table = index_table(fragment.layout)
    assert table.shape == (128, k // 2)
    for lane in range(128):
        for i in range(k // 2):
            row, column = document_a(lane, i, 4 // dtype.nbytes)
            assert table[lane, i] == row * k + column


def test_swizzle_is_the_xor_of_row_and_chunk():
    for row in range(16):
        for chunk in range(8):
            assert swizzled(np.array(row * 128 + chunk * 16), Swizzle.B128) == row * 128 + (chunk ^ row % 8) * 16
    for row in range(16):
        for chunk in range(4):
            assert swizzled(np.array(row * 64 + chunk * 16), Swizzle.B64) == row * 64 + (chunk ^ row // 2 % 4) * 16
    for row in range(16):
        for chunk in range(2):
            assert swizzled(np.array(row * 32 + chunk * 16), Swizzle.B32) == row * 32 + (chunk ^ row // 4 % 2) * 16
    addresses = np.arange(4096)
    for swizzle in Swizzle:
        assert np.array_equal(swizzled(swizzled(addresses, swizzle), swizzle), addresses)


def lay_out(matrix, swizzle, major, leading, stride, start, nbytes):
    """The shared image of a (outer, k) matrix, element by element, from the layout's description in words."""
    image = np.zeros(nbytes, np.uint8)
    size, span = matrix.itemsize, SPANS[swizzle]
    for outer in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            if major is Major.K and swizzle is Swizzle.NONE:
                chunk, within = divmod(k * size, 16)
                place = outer // 8 * stride + outer % 8 * 16 + chunk * leading + within
            elif major is Major.K:
                place = outer // 8 * stride + outer % 8 * span + k * size
            elif swizzle is Swizzle.NONE:
                chunk, within = divmod(outer * size, 16)
                place = chunk * stride + k // 8 * leading + k % 8 * 16 + within
            else:
                block, within = divmod(outer * size, span)
                place = block * leading + k // 8 * stride + k % 8 * span + within
            place += start
            bits = {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 2, Swizzle.B128: 3}[swizzle]
            for bit in range(bits):
                place ^= (place >> 7 + bit & 1) << 4 + bit
            image[place : place + size] = np.frombuffer(matrix[outer, k].tobytes(), np.uint8)
    return image


def canonical_offsets(swizzle, major, k_bytes):
    """Leading and stride bytes of densely packed tiles with at most 64 outer indices per block."""
    span = SPANS[swizzle]
    if major is Major.K:
        return (128, 256) if swizzle is Swizzle.NONE else (16, 8 * span)
    return (2048, 256) if swizzle is Swizzle.NONE else (4096, 8 * span)


def broadcast_word(code, blocks=1):
    return np.full((blocks, 128, 1), code, np.uint64)


CASES = [
    (row_types, swizzle, major_a, major_b, in_registers)
    for swizzle in Swizzle
    for row_types, major_a, major_b, in_registers in (
        ((F16, F16), Major.K, Major.K, False),
        ((F16, F16), Major.OUTER, Major.OUTER, False),
        ((BF16, BF16), Major.K, Major.OUTER, True),
        ((TF32, TF32), Major.K, Major.K, False),
        ((E4M3, E5M2), Major.K, Major.K, False),
        ((U8, S8), Major.K, Major.K, True),
    )
]


@pytest.mark.parametrize(("types", "swizzle", "major_a", "major_b", "in_registers"), CASES)
def test_products_of_laid_out_tiles(types, swizzle, major_a, major_b, in_registers):
    rng = np.random.default_rng(1)
    n = 32
    row = wgmma(n, *types, in_registers)
    k = row.shape[2]
    a = random_numbers(rng, types[0], (64, k))
    b = random_numbers(rng, types[1], (n, k))
    c = random_numbers(rng, row.fragment("d").dtype, (64, n))
    values, images = {}, []
    for name, matrix, major, start in (("a", a, major_a, 1024), ("b", b, major_b, 17 * 1024)):
        leading, stride = canonical_offsets(swizzle, major, k * types[0].nbytes)
        images.append(lay_out(matrix, swizzle, major, leading, stride, start, 40 * 1024))
        values[name] = broadcast_word(MatrixDescriptor(start, leading, stride, swizzle).encode())
    shared = (images[0] | images[1])[None]
    names = {operand.name for operand in row.operands}
    if in_registers:
        values["a"] = packed(row, "a", a[None])
    values |= {
        key: value
        for key, value in {"sign_a": -1, "sign_b": 1, "major_a": major_a.value, "major_b": major_b.value}.items()
        if key in names
    }
    sign = -1 if "sign_a" in names else 1
    for accumulate in (0, 1):
        operands = {**values, "d": packed(row, "d", c[None]), "accumulate": np.full((1, 128, 1), accumulate, np.uint32)}
        d = unpacked(row, "d", row.execute(operands, FlatMemory(None, shared))["d"])[0]
        expected = sign * (a.astype(np.float64) @ b.astype(np.float64).T) + accumulate * c.astype(np.float64)
        assert np.array_equal(d.astype(np.float64), expected)


def test_a_step_of_32_bytes_moves_k_inside_the_swizzle_span():
    """Four k16 steps of one 64-wide f16 tile: the descriptor's address advances by 32 bytes."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (rows, 64)).astype(np.float16) for rows in (64, 16))
    shared = np.zeros(16384, np.uint8)
    for matrix, start in ((a, 0), (b, 8192)):
        shared |= lay_out(matrix, Swizzle.B128, Major.K, 16, 1024, start, 16384)
    row = wgmma(16, F16, F16)
    d = np.zeros((1, 128, 8), np.uint32)
    for step in range(4):
        codes = {
            name: broadcast_word(MatrixDescriptor(start + 32 * step, 16, 1024, Swizzle.B128).encode())
            for name, start in (("a", 0), ("b", 8192))
        }
        fixed = {"sign_a": 1, "sign_b": 1, "major_a": 0, "major_b": 0}
        accumulate = np.full((1, 128, 1), step, np.uint32)
        operands = {**codes, **fixed, "d": d, "accumulate": accumulate}
        d = row.execute(operands, FlatMemory(None, shared[None]))["d"]
    assert np.array_equal(unpacked(row, "d", d)[0], a.astype(np.float32) @ b.astype(np.float32).T)


def test_descriptor_bits():
    code = MatrixDescriptor(0x12340, 16, 1024, Swizzle.B128).encode()
    assert code == (0x1234 | 1 << 16 | 64 << 32 | 1 << 62)
    with pytest.raises(IllegalProblem, match=r"stride .* multiple of 16"):
        MatrixDescriptor(0, 16, 1032, Swizzle.NONE).encode()
    with pytest.raises(NotYetSupported, match="base offset 0"):
        element_addresses(np.array([1 << 49], np.uint64), 64, 16, F16, Major.K)
    mixed = np.array([1 << 62, 2 << 62], np.uint64)
    with pytest.raises(IllegalProblem, match="share their swizzle"):
        element_addresses(mixed, 64, 16, F16, Major.K)


def test_widths_and_pairs_that_do_not_exist():
    for arguments in ((12, F16, F16), (264, F16, F16), (40, S8, S8), (16, F16, BF16), (16, F16, S8)):
        with pytest.raises(IllegalProblem, match="wgmma takes n in"):
            wgmma(*arguments)
    assert wgmma(24, S8, U8).shape == (64, 24, 32)


def test_only_sixteen_bit_types_may_run_along_the_outer_index():
    for dtype in (TF32, E4M3, E5M2, S8):
        names = {operand.name for operand in wgmma(16, dtype, dtype).operands}
        assert not names & {"major_a", "major_b"}
        assert storage(dtype).itemsize != 2
    assert {"major_b"} == {o.name for o in wgmma(16, F16, F16, True).operands if o.name.startswith("major")}


def test_the_row_tells_how_it_is_ordered():
    row = wgmma(64, F16, F16)
    assert (row.completion, row.proxy, row.ordering) == (Completion.MULTIPLY_GROUP, Proxy.ASYNC, Ordering.NONE)
    assert row.lanes == 128
