"""Fused multiply-add of NumPy arrays: a * b + c rounded once, to the bit.

Method: S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
odd", IEEE Transactions on Computers 57 (2008). Holds without overflow or underflow of intermediate values.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import F32, F64, DType
from convloom.errors import IllegalType
from convloom.target.number_format import Array

Doubles: TypeAlias = NDArray[np.float64]
_SPLITTER = 134217729.0  # 2**27 + 1


def fused_multiply_add(a: Array, b: Array, c: Array, dtype: DType) -> Array:
    """The number a * b + c of f32 or f64 numbers, all given as f64; IllegalType for other types."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if dtype == F32:
            return _finite_or(_sum_to_odd(a * b, c), a * b + c).astype(np.float32).astype(np.float64)
        if dtype == F64:
            return _finite_or(_fused_double(a, b, c), a * b + c)
    raise IllegalType(f"a fused multiply-add is of {F32} or {F64}; got {dtype}; convert first")


def _fused_double(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    high, low = _two_product(a, b)
    upper, rest = _two_sum(c, low)
    total, error = _two_sum(high, upper)
    return total + _sum_to_odd(rest, error)


def _finite_or(value: Doubles, plain: Doubles) -> Doubles:
    return np.where(np.isfinite(plain), value, plain)


def _two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """(rounded sum, its error): their sum is a + b exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """(rounded product, its error): their sum is a * b exactly (Dekker)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Doubles) -> tuple[Doubles, Doubles]:
    big = _SPLITTER * a
    high = big - (big - a)
    return high, a - high


def _sum_to_odd(a: Doubles, b: Doubles) -> Doubles:
    """The sum a + b rounded to odd: if inexact, the neighbour whose last bit is 1; rounding again is harmless."""
    total, error = _two_sum(a, b)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, towards), total)
