"""Arithmetic of element values as devices do it: accumulation types, rounding, saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import S8, S32, U8, DType

Array = NDArray[Any]
_INTEGER_LIMITS = {S8: (-128, 127), U8: (0, 255), S32: (-(2**31), 2**31 - 1)}


def converted(values: Array, dtype: DType) -> Array:
    """The numbers in another type: floats round to nearest even, integers saturate, NaN becomes integer 0."""
    if values.dtype == dtype.numpy:
        return values
    if dtype.is_float:
        through = values.astype(np.float32) if dtype.bits == 16 and values.dtype == np.int32 else values
        return through.astype(dtype.numpy)
    low, high = _INTEGER_LIMITS[dtype]
    wide = np.nan_to_num(np.rint(values.astype(np.float64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(wide, low, high).astype(dtype.numpy)


def multiply_add(left: Array, right: Array, addend: Array) -> Array:
    """left * right + addend with one rounding for f32 (double holds the product exactly), wrapping for integers."""
    if left.dtype == np.float32:
        return (left.astype(np.float64) * right + addend).astype(np.float32)
    return left * right + addend
