"""Semantics of multiply-add instructions: matrices taken from lanes, multiplied exactly, rounded once."""

from __future__ import annotations

import numpy as np

from convloom.dtypes import DType
from convloom.target.fused import fused_multiply_add
from convloom.target.instruction import Execution, Fragment, Semantics
from convloom.target.lane_map import to_lanes, to_matrix
from convloom.target.number_format import Array, as_elements, as_words, exact, rounded


def fragment_matrix(words: Array, fragment: Fragment) -> Array:
    """The numbers (f64 or int64) of a matrix spread over lanes: (.., lanes, registers) -> (.., rows, columns)."""
    return to_matrix(exact(as_elements(words, fragment.dtype), fragment.dtype), fragment.layout, fragment.shape)


def matrix_words(matrix: Array, fragment: Fragment, word: np.dtype[np.generic]) -> Array:
    """Exact numbers rounded to the fragment's type and packed into each lane's registers."""
    return as_words(to_lanes(rounded(matrix, fragment.dtype), fragment.layout), word)


def product(a: Array, b: Array) -> Array:
    """The product a @ b of exact numbers. Products are exact (f64 operands: rounded); sums are f64 or int64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.matmul(a, b)


def multiply_fragments(a: Fragment, b: Fragment, d: Fragment) -> Semantics:
    """The rule d := a @ b + c for operands `a`, `b`, `c` and `d` in registers; c has the fragment of d.

    The hardware adds in an order and with a width of its own; here the sum is f64 and rounded once to d's type, so
    floating-point results agree within rounding and integers agree exactly (modulo 2**32).
    """

    def run(execution: Execution) -> dict[str, Array]:
        c_words = execution.words("c")
        total = product(fragment_matrix(execution.words("a"), a), fragment_matrix(execution.words("b"), b))
        with np.errstate(invalid="ignore"):
            total = total + fragment_matrix(c_words, d)
        return {"d": matrix_words(total, d, c_words.dtype)}

    return run


def multiply_add(dtype: DType) -> Semantics:
    """The rule d := a * b + c in each lane; floats are rounded once, integers wrap."""

    def run(execution: Execution) -> dict[str, Array]:
        a, b, c = (exact(as_elements(execution.words(name), dtype), dtype) for name in "abc")
        total = fused_multiply_add(a, b, c, dtype) if dtype.is_float else a * b + c
        return {"d": as_words(rounded(total, dtype), execution.words("c").dtype)}

    return run


def dot(a: DType, b: DType, d: DType) -> Semantics:
    """The rule d := sum(a[i] * b[i]) + c over the elements packed in one register, in each lane; wraps."""

    def run(execution: Execution) -> dict[str, Array]:
        left, right = exact(as_elements(execution.words("a"), a), a), exact(as_elements(execution.words("b"), b), b)
        c_words = execution.words("c")
        total = (left * right).sum(axis=-1, keepdims=True) + exact(as_elements(c_words, d), d)
        return {"d": as_words(rounded(total, d), c_words.dtype)}

    return run
