"""Evaluation on integers and arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.errors import IllegalProblem
from convloom.expr import evaluate, fast_div, multiplier_of, select, shift_of, sym
from tests.expr.trees import SYMBOLS, Undefined, build, sample_values, trees, value

a, b = sym("a"), sym("b")


@given(trees(4), st.integers(0, 2**32))
@settings(derandomize=True, max_examples=600, deadline=None)
def test_arrays_and_integers_agree(tree, seed):
    rows = [sample_values(seed + shift) for shift in range(5)]
    expected = []
    for row in rows:
        try:
            expected.append(value(tree, row))
        except Undefined:
            return
    arrays = {name: np.array([row[name] for row in rows], np.int32) for name in SYMBOLS}
    result = evaluate(build(tree), arrays)
    np.testing.assert_array_equal(np.broadcast_to(result, len(rows)), expected)


def test_arrays_broadcast_and_are_int64():
    result = evaluate((a + b).lt(4), {"a": np.arange(3)[:, None], "b": np.arange(5)[None, :]})
    assert result.dtype == np.int64
    assert result.shape == (3, 5)
    assert isinstance(evaluate(a.lt(b), {"a": np.int32(2), "b": 3}), int)


def test_only_the_chosen_branch_is_evaluated():
    e = select(b.ne(0), a // b, 7)
    assert evaluate(e, {"a": 5, "b": 0}) == 7
    assert evaluate(e, {"a": 5, "b": 2}) == 2


@pytest.mark.parametrize("zero", [0, np.array([1, 0])])
@pytest.mark.parametrize("e", [a // b, a % b])
def test_a_zero_divisor_is_an_error(e, zero):
    with pytest.raises(ZeroDivisionError):
        evaluate(e, {"a": np.array([3, 4]) if isinstance(zero, np.ndarray) else 3, "b": zero})


def test_a_missing_value_is_an_error():
    with pytest.raises(IllegalProblem, match="b has none"):
        evaluate(a + b, {"a": 1})


def test_magic_numbers_as_expressions():
    divided = fast_div(a, multiplier_of(b), shift_of(b))
    xs = np.arange(0, 2**31, 104729)
    for d in (1, 3, 7, 641, 2**31 - 1):
        np.testing.assert_array_equal(evaluate(divided, {"a": xs, "b": d}), xs // d)
    ds = np.array([1, 2, 5, 640])
    np.testing.assert_array_equal(evaluate(divided, {"a": 123456789, "b": ds}), 123456789 // ds)
