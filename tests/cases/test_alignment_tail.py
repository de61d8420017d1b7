"""Sizes that fill no vector and no tile, and what lies behind them in memory."""

import numpy as np
import pytest

import convloom
from convloom import Gemm, TensorSpec
from convloom.dtypes import F16
from convloom.problem.layout import plain
from convloom.problem.reference import Operands
from tests.cases.convolution import ConvCase, Op, call_guarded, check, integers
from tests.cases.guard_pages import run_guarded
from tests.cases.memory import Guarded, guarded

HALVES = ("f16", "f16", "f16")

TABLE = [
    *[
        ConvCase(f"ALN-03-{c}", Op.CONV, 2, c, 64, (33, 35), (3, 3), (17, 18), 2, 1, types=HALVES, last=True)
        for c in (1, 2, 3, 5, 6, 7)
    ],
    ConvCase("ALN-04", Op.CONV, 1, 3, 256, (384, 384), (7, 7), (96, 96), 4, 3, types=HALVES, last=True, bias="f16"),
]


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_table(case, device):
    check(case, device)


# --- ALN-01: products of every small size, column by column ---------------------------------------------------------


def by_columns(values):
    return guarded(values, (1, values.shape[0]))


def check_product(multiply, m, n, k):
    """a = 0, 1, 2, .., b a ramp around 0; all three matrices column by column, poison behind each."""
    a = np.arange(m * k, dtype=np.float16).reshape(k, m).T
    b = (np.arange(k * n, dtype=np.float16) % 7 - 3).reshape(n, k).T
    out = Guarded((m, n), np.float16, (1, m))
    multiply(by_columns(a).array, by_columns(b).array, out=out.array)
    assert np.array_equal(out.array, a.astype(int) @ b.astype(int))
    assert out.surroundings_unchanged


@pytest.mark.parametrize("case", ["ALN-01-any"])
def test_products_of_every_size_up_to_9_by_one_kernel(case):
    m, n, k = (convloom.dim(name) for name in "mnk")
    specs = [TensorSpec(F16, plain((1, rows))) for rows in (m, k, m)]
    kernel = convloom.compile(Gemm((), m, n, k, *specs))
    for place in range(9**3):
        check_product(kernel, place // 81 + 1, place // 9 % 9 + 1, place % 9 + 1)


@pytest.mark.parametrize("sizes", [(2, 4, 3), (1, 1, 1), (9, 9, 9), (7, 5, 3), (3, 1, 9), (1, 8, 5), (5, 9, 1)], ids=lambda sizes: f"ALN-01-{sizes}")  # fmt: skip  # noqa: E501
def test_products_of_fixed_sizes(sizes):
    check_product(convloom.gemm, *sizes)


# --- ALN-06: rows that are no multiple of a tile, at the end of memory ----------------------------------------------


@pytest.mark.parametrize("case", ["ALN-06"])
def test_a_product_reads_nothing_outside_its_operands(case):
    """Fewer rows than reported (2051 for 81920), the same leading dimensions."""
    a, b = integers((2051, 642), np.float16, 2), integers((30, 642), np.float16, 2, seed=1)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    for result in run_guarded("convloom.gemm(a, b.T, out=out)", a=a, b=b, out=np.zeros((2051, 30), np.float16)):
        assert np.array_equal(result, expected)


# --- ALN-10: what lies around a tensor ------------------------------------------------------------------------------

ALN_10 = ConvCase("ALN-10", Op.CONV, 1, 1, 1, (4, 4), (3, 3), (4, 4), padding=1)


@pytest.mark.parametrize("case", [ALN_10], ids=str)
def test_poison_around_an_image(case, any_device):
    check(case, any_device)


@pytest.mark.parametrize("poison", [0xFF, 0x7F, 0x00], ids=["ALN-10-nan", "ALN-10-large", "ALN-10-zero"])
def test_ones_are_counted_whatever_lies_around(poison):
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    y = call_guarded(ALN_10, Operands(x, w), poison)
    assert y[0, 0].tolist() == [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]]


@pytest.mark.parametrize("around", [np.nan, np.inf, -np.inf], ids=lambda value: f"ALN-10-inside-{value}")
def test_ones_are_counted_inside_a_larger_image(around):
    """The image is the middle of a larger one, so that the elements next to it are what must not be read."""
    whole = np.full((1, 2, 8, 8), around, np.float32)
    x = whole[:, :1, 2:6, 2:6]
    x[...] = 1
    y = convloom.conv(x, np.ones((1, 1, 3, 3), np.float32), padding=1)
    assert y[0, 0].tolist() == [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]]
