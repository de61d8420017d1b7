"""Products through compile: fixed sizes and dims, transposes, shared operands, strides, types, empty sizes."""

import itertools

import numpy as np
import pytest

import convloom
from convloom import BiasAxis, Scaling, dim, gemm_problem
from convloom.dtypes import BF16, F32, S8, S32, U8
from convloom.errors import IllegalProblem, IllegalType

RANDOM = np.random.default_rng(5)


def integers(*shape, dtype=np.float32):
    return RANDOM.integers(-3, 4, shape).astype(dtype)


def sizes(dynamic):
    """b, m, n, k as dims or as the numbers 2, 5, 6, 7."""
    return [dim(name, min=0) for name in "bmnk"] if dynamic else [2, 5, 6, 7]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("transpose_a", "transpose_b", "shared"),
    [(False, False, ""), (True, False, "a"), (False, True, "b"), (True, True, ""), (False, False, "ab")],
)
def test_products(dynamic, transpose_a, transpose_b, shared):
    b, m, n, k = sizes(dynamic)
    axes = {f"shared_{name}": (0,) for name in shared}
    problem = gemm_problem(
        batch=(b,), m=m, n=n, k=k, transpose_a=transpose_a, transpose_b=transpose_b, bias=F32, **axes
    )
    kernel = convloom.compile(problem)
    for count, rows, columns, depth in [(2, 5, 6, 7), (1, 9, 3, 4)] if dynamic else [(2, 5, 6, 7)]:
        left = integers(count, depth, rows).transpose(0, 2, 1) if transpose_a else integers(count, rows, depth)
        right = integers(count, columns, depth).transpose(0, 2, 1) if transpose_b else integers(count, depth, columns)
        left = np.broadcast_to(left[0], left.shape) if "a" in shared and count > 1 else left
        right = np.broadcast_to(right[0], right.shape) if "b" in shared and count > 1 else right
        bias = integers(columns)
        assert np.array_equal(kernel(left, right, bias), left @ right + bias)


@pytest.mark.parametrize("empty", [names for size in range(5) for names in itertools.combinations("bmnk", size)])
def test_empty_sizes(empty):
    """One kernel of dims takes them all; the fixed problem agrees."""
    count = {name: 0 if name in empty else value for name, value in zip("bmnk", (2, 3, 4, 5), strict=True)}
    left, right = integers(count["b"], count["m"], count["k"]), integers(count["b"], count["k"], count["n"])
    bias = integers(count["m"])
    b, m, n, k = sizes(True)
    for arguments in (
        {"batch": (b,), "m": m, "n": n, "k": k},
        {"batch": (count["b"],), "m": count["m"], "n": count["n"], "k": count["k"]},
    ):
        problem = gemm_problem(**arguments, bias=F32, bias_axis=BiasAxis.M, scaling=Scaling(beta=True))
        kernel = convloom.compile(problem)
        old = integers(count["b"], count["m"], count["n"])
        result = kernel(left, right, bias, out=old.copy(), beta=2.0)
        assert np.array_equal(result, left @ right + 2 * old + bias[:, None])


@pytest.mark.parametrize("dynamic", [False, True])
def test_leading_dimensions(dynamic):
    lda, ldb, ldc = [dim(name) for name in ("lda", "ldb", "ldc")] if dynamic else [20, 21, 22]
    kernel = convloom.compile(gemm_problem(m=5, n=6, k=7, layouts=((lda, 1), (1, ldb), (ldc, 1))))
    for wide in ((20, 21, 22), (7, 8, 6)) if dynamic else ((20, 21, 22),):
        left, right = integers(5, wide[0])[:, :7], integers(6, wide[1])[:, :7].T
        out = np.full((5, wide[2]), 9, np.float32)
        assert np.array_equal(kernel(left, right, out=out[:, :6]), left @ right)
        assert (out[:, 6:] == 9).all()


def test_types():
    left, right = integers(5, 8, dtype=np.int8), integers(8, 6, dtype=np.int8)
    kernel = convloom.compile(gemm_problem(m=5, n=6, k=8, dtypes=(S8, S8, S32)))
    assert np.array_equal(kernel(left, right), left.astype(np.int32) @ right.astype(np.int32))
    positive = np.abs(left).astype(np.uint8)
    kernel = convloom.compile(gemm_problem(m=dim("m"), n=6, k=8, dtypes=(U8, S8, S32), bias=S32))
    bias = integers(6, dtype=np.int32)
    assert np.array_equal(kernel(positive, right, bias), positive.astype(np.int32) @ right.astype(np.int32) + bias)
    half = convloom.compile(gemm_problem(m=5, n=6, k=8, dtypes=(BF16, BF16, F32)))
    floats = left.astype(BF16.numpy), right.astype(BF16.numpy)
    assert np.array_equal(half(*floats), left.astype(np.float32) @ right.astype(np.float32))


def test_tags():
    kernel = convloom.compile(gemm_problem(batch=(2,), m=5, n=6, k=7, layouts=("acb", None, "bca")))
    left, right = integers(2, 7, 5).transpose(0, 2, 1), integers(2, 7, 6)
    result = kernel(left, right)
    assert result.strides == (4, 48, 8)
    assert np.array_equal(result, left @ right)


def test_refusals():
    plain = {"m": 5, "n": 6, "k": 7}
    with pytest.raises(IllegalProblem, match="k must not be negative; got -7"):
        gemm_problem(**{**plain, "k": -7})
    with pytest.raises(IllegalType, match="m must be an integer; got"):
        gemm_problem(**{**plain, "m": 5.0})
    with pytest.raises(IllegalType, match="batch must be a sequence of integers or dims; got 3"):
        gemm_problem(**plain, batch=3)
    with pytest.raises(IllegalType, match="transpose_a must be True or False"):
        gemm_problem(**plain, transpose_a="yes")
    with pytest.raises(IllegalProblem, match=r"shared_b lists batch axes, 0 to 0; got 1"):
        gemm_problem(**plain, batch=(2,), shared_b=(1,))
    with pytest.raises(IllegalProblem, match="a layout says where a lies"):
        gemm_problem(**plain, layouts=((7, 1), None, None), transpose_a=True)
    with pytest.raises(IllegalProblem, match="one stride per dimension"):
        gemm_problem(**plain, layouts=((7,), None, None))
    with pytest.raises(IllegalType, match="a layout must be a Layout, strides"):
        gemm_problem(**plain, layouts=(7, None, None))
    with pytest.raises(IllegalProblem, match=r"c has strides \(2, 1\) for shape \(5, 6\)"):
        gemm_problem(**plain, layouts=(None, None, (2, 1)))
    kernel = convloom.compile(gemm_problem(m=dim("m"), n=6, k=7))
    with pytest.raises(IllegalProblem, match=r"b must have shape \(7, 6\); got \(6, 6\)"):
        kernel(integers(5, 7), integers(6, 6))
    with pytest.raises(IllegalProblem, match=r"a must have the strides"):
        kernel(integers(7, 5).T, integers(7, 6))
