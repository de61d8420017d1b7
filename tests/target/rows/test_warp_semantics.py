"""Semantics of the generic and the warp-level rows against plain NumPy."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import F32, F64
from convloom.errors import IllegalProblem
from convloom.target.catalogue import all_rows, row_named, rows_for
from convloom.target.fused import fused_multiply_add
from convloom.target.instruction import Family
from convloom.target.memory import FlatMemory, MemoryFault
from convloom.target.number_format import as_words
from tests.target.rows.packing import packed, random_numbers, unpacked

MMA = [row.name for row in all_rows().values() if row.family is Family.MATRIX_MULTIPLY]
UNIT = {"f32": 2.0**-24, "f64": 2.0**-53}


def mma_operands(row, rng, small, batch=(3, 2)):
    return {
        name: random_numbers(rng, row.fragment(name).dtype, (*batch, *row.fragment(name).shape), small)
        for name in "abc"
    }


def run_mma(row, matrices):
    words = {name: packed(row, name, matrix) for name, matrix in matrices.items()}
    return unpacked(row, "d", row.execute(words)["d"])


@pytest.mark.parametrize("name", MMA)
def test_mma_is_a_matrix_product(name):
    row = row_named(name)
    matrices = mma_operands(row, np.random.default_rng(1), small=True)
    a, b, c = (matrices[key].astype(np.float64) for key in "abc")
    assert np.array_equal(run_mma(row, matrices).astype(np.float64), a @ b + c)


@pytest.mark.parametrize("name", [name for name in MMA if ".f32." in name or ".f64." in name])
def test_mma_rounds_once(name):
    row = row_named(name)
    matrices = mma_operands(row, np.random.default_rng(2), small=False)
    a, b, c = (matrices[key].astype(np.float64) for key in "abc")
    if "tf32" in name:
        a, b = ((m.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for m in (a, b))
    total = np.abs(a) @ np.abs(b) + np.abs(c)
    unit = UNIT[row.fragment("d").dtype.name]
    bound = 1.01 * unit * np.abs(a @ b + c) + (row.shape[2] + 1) * 2.0**-53 * total
    assert (np.abs(run_mma(row, matrices) - (a @ b + c)) <= bound).all()


def test_integer_products_wrap():
    row = row_named("mma.m16n8k32.s32.u8.u8")
    a, b = np.full((16, 32), 255, np.uint8), np.full((32, 8), 255, np.uint8)
    c = np.full((16, 8), 2**31 - 1, np.int32)
    expected = (32 * 255 * 255 + 2**31 - 1 + 2**31) % 2**32 - 2**31
    assert (run_mma(row, {"a": a, "b": b, "c": c}) == expected).all()


def test_not_a_number_and_infinity_pass_through():
    row = row_named("mma.m16n8k16.f32.f16.f16")
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    a[2, 3], a[4, 5], b[7, 1] = np.nan, np.inf, 0
    d = run_mma(row, {"a": a, "b": b, "c": np.zeros((16, 8), np.float32)})
    assert np.isnan(d[2]).all()
    assert np.isinf(d[4]).all()
    assert np.isfinite(np.delete(d, [2, 4], axis=0)).all()


@pytest.mark.parametrize("suffix", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix_are_inverse(count, suffix):
    rng = np.random.default_rng(count)
    shared = rng.integers(0, 256, (2, 1024)).astype(np.uint8)
    rows = np.stack([rng.permutation(64)[:32] for _ in range(2)]) * 16
    address = rows[..., None].astype(np.uint32)
    loaded = row_named(f"ldmatrix.x{count}{suffix}").execute({"address": address}, FlatMemory(None, shared))["d"]
    tiles = np.stack([shared[block].view(np.uint16).reshape(64, 8)[rows[block] // 16] for block in range(2)])
    tiles = tiles[:, : 8 * count].reshape(2, count, 8, 8)
    if suffix:
        tiles = tiles.transpose(0, 1, 3, 2)
    lane, register = 13, count - 1
    low, high = tiles[1, register, lane // 4, 2 * (lane % 4)], tiles[1, register, lane // 4, 2 * (lane % 4) + 1]
    assert loaded[1, lane, register] == int(low) | int(high) << 16
    target = np.zeros_like(shared)
    row_named(f"stmatrix.x{count}{suffix}").execute({"address": address, "a": loaded}, FlatMemory(None, target))
    for block in range(2):
        written = target[block].reshape(64, 16)[rows[block] // 16][: 8 * count]
        assert np.array_equal(written, shared[block].reshape(64, 16)[rows[block] // 16][: 8 * count])
    assert np.count_nonzero(target.reshape(2, 64, 16).any(-1)) <= 2 * 8 * count


def test_ldmatrix_then_mma_multiplies_shared_tiles():
    """A 16 x 16 row by row, B 16 x 8 row by row (k rows), C zero: the usual pairing of ldmatrix with mma."""
    rng = np.random.default_rng(5)
    a = rng.integers(-4, 5, (3, 16, 16)).astype(np.float16)
    b = rng.integers(-4, 5, (3, 16, 8)).astype(np.float16)
    shared = np.concatenate([a.reshape(3, -1), b.reshape(3, -1)], axis=1).view(np.uint8)
    lane = np.arange(32)
    a_address = (lane % 16) * 32 + (lane // 16) * 16
    b_address = 512 + (lane % 16) * 16
    memory = FlatMemory(None, shared)

    def load(name, address):
        words = np.broadcast_to(address.astype(np.uint32)[None, :, None], (3, 32, 1))
        return row_named(name).execute({"address": words}, memory)["d"]

    row = row_named("mma.m16n8k16.f32.f16.f16")
    fragments = {"a": load("ldmatrix.x4", a_address), "b": load("ldmatrix.x2.trans", b_address)}
    d = row.execute({**fragments, "c": np.zeros((3, 32, 4), np.uint32)})["d"]
    assert np.array_equal(unpacked(row, "d", d), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("a_type", ["s8", "u8"])
@pytest.mark.parametrize("b_type", ["s8", "u8"])
def test_dp4a(a_type, b_type):
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, (3, 40, 1), dtype=np.uint32)
    a, b, c = bits
    kinds = {"s8": np.int8, "u8": np.uint8}
    got = row_named(f"dp4a.{a_type}.{b_type}").execute(dict(zip("abc", bits[:, None], strict=True)))["d"]
    products = a.view(kinds[a_type]).astype(np.int64) * b.view(kinds[b_type]).astype(np.int64)
    expected = (products.sum(-1) + c[..., 0].view(np.int32)).astype(np.int32)
    assert np.array_equal(got[0, :, 0].view(np.int32), expected)


@pytest.mark.parametrize(
    "row", [row for row in all_rows().values() if row.name.startswith("cp.async.c") and row.operands]
)
def test_cp_async_fills_with_zeros_and_does_not_read_past_the_range(row):
    nbytes = int(row.name.split(".")[-1])
    source = np.arange(1, nbytes + nbytes // 2 + 1).astype(np.uint8)  # the second lane's source ends half-way
    shared = np.full((1, 64), 0xEE, np.uint8)
    row.execute(
        {
            "destination": np.array([[[0], [nbytes], [2 * nbytes]]], np.uint32),
            "source": np.array([[[0], [nbytes], [1 << 20 << 4]]], np.uint64),
            "source_bytes": np.array([[[nbytes], [nbytes // 2], [0]]], np.uint32),
        },
        FlatMemory(source, shared),
    )
    assert np.array_equal(shared[0, : source.size], source)
    assert not shared[0, source.size : 3 * nbytes].any()
    assert (shared[0, 3 * nbytes :] == 0xEE).all()


def test_inactive_lanes_touch_nothing():
    row, memory = row_named("store.global.32"), FlatMemory(np.zeros(8, np.uint8))
    values = {"address": np.array([[4], [400]], np.uint64), "a": np.array([[7], [9]], np.uint32)}
    row.execute(values, memory, np.array([True, False]))
    assert memory.global_bytes.tolist() == [0, 0, 0, 0, 7, 0, 0, 0]
    with pytest.raises(MemoryFault, match="got address 400"):
        row.execute(values, memory)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128])
def test_vector_access_round_trip(space, bits):
    rng = np.random.default_rng(bits)
    content = rng.integers(0, 256, (1, 32 * 16)).astype(np.uint8)
    address = (rng.permutation(32)[None, :, None] * (bits // 8)).astype(np.uint64 if space == "global" else np.uint32)

    def memory(data):
        return FlatMemory(data[0], None) if space == "global" else FlatMemory(None, data)

    loaded = row_named(f"load.{space}.{bits}").execute({"address": address}, memory(content))["d"]
    assert loaded.shape == (1, 32, max(1, bits // 32))
    copy = np.zeros_like(content)
    row_named(f"store.{space}.{bits}").execute({"address": address, "a": loaded}, memory(copy))
    assert np.array_equal(copy[0, : 4 * bits], content[0, : 4 * bits])
    assert not copy[0, 4 * bits :].any()


def test_misaligned_access_is_refused():
    with pytest.raises(IllegalProblem, match="must be a multiple of 16; got 8"):
        row_named("load.shared.128").execute({"address": np.full((1, 1), 8, np.uint32)}, FlatMemory())


def test_missing_operand_and_wrong_shape_are_refused():
    row = row_named("mma.m16n8k8.f32.f16.f16")
    with pytest.raises(IllegalProblem, match="needs operand 'a'"):
        row.execute({})
    words = {"a": np.zeros((32, 2), np.uint32), "b": np.zeros((32, 2), np.uint32), "c": np.zeros((32, 4), np.uint32)}
    with pytest.raises(IllegalProblem, match=r"operand 'b' .* must have shape \(.., lanes, 1\)"):
        row.execute(words)
    with pytest.raises(IllegalProblem, match="executed by 32 lanes"):
        row.execute({**words, "a": np.zeros((16, 2), np.uint32)})


NUMBERS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-9)
SINGLES = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-9)


def nearest_single(value):
    """A fraction rounded to f32, half to even, by integer arithmetic."""
    if value == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(value))) - 23
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent + 23):
        exponent -= 1
    return float(round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent)


@given(a=SINGLES, b=SINGLES, c=SINGLES, fine=st.booleans())
@settings(derandomize=True, max_examples=300, deadline=None)
def test_fused_single_is_rounded_once(a, b, c, fine):
    if fine:  # a tie, disturbed far below the last place
        a, b, c = 1 + 2.0**-12, 1 + 2.0**-12, np.float32(c) * np.float32(2.0**-60)
    exact = Fraction(a) * Fraction(b) + Fraction(float(c))
    got = fused_multiply_add(*(np.array([x], np.float64) for x in (a, b, c)), F32)[0]
    assert got == nearest_single(exact)


@given(a=NUMBERS, b=NUMBERS, c=NUMBERS, cancel=st.booleans())
@settings(derandomize=True, max_examples=300, deadline=None)
def test_fused_double_is_rounded_once(a, b, c, cancel):
    c = -(a * b) if cancel else c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = fused_multiply_add(*(np.array([x]) for x in (a, b, c)), F64)[0]
    assert got == exact.numerator / exact.denominator


@pytest.mark.parametrize("name", ["fma.f32", "fma.f64", "fma.s32"])
def test_fma_rows(name):
    row = row_named(name)
    word = row.operand("d").register.word
    kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[name[4:]]
    a, b, c = (np.array([[3], [-5]], kind), np.array([[7], [2]], kind), np.array([[1], [-4]], kind))
    got = row.execute({"a": as_words(a, word), "b": as_words(b, word), "c": as_words(c, word)})["d"]
    assert got.view(kind).tolist() == [[22], [-14]]


def test_catalogue_by_architecture():
    names = {arch: {row.name for row in rows_for(arch)} for arch in ("native", "sm_80", "sm_89", "sm_90", "sm_90a")}
    assert "mma.m16n8k16.f32.f16.f16" in names["sm_80"]
    assert "mma.m16n8k16.f32.f16.f16" not in names["native"]
    assert "fma.f32" in names["native"]
    assert "mma.m16n8k32.f32.e4m3.e4m3" in names["sm_89"] - names["sm_80"]
    assert "stmatrix.x4" in names["sm_90"] - names["sm_89"]
    assert names["sm_90"] <= names["sm_90a"]
    assert all(row.family is Family.DOT for row in rows_for("sm_80", Family.DOT))
