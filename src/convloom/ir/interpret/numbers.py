"""Arithmetic of element values as devices do it: accumulation types, rounding, saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import F32, S8, S32, U8, DType

Array = NDArray[Any]
_INTEGER_LIMITS = {S8: (-128, 127), U8: (0, 255), S32: (-(2**31), 2**31 - 1)}


def converted(values: Array, dtype: DType) -> Array:
    """The numbers in another type: floats round to nearest even, integers and 8-bit floats saturate.

    NaN becomes integer 0. Conversion to 16 and 8 bits goes by way of f32, as in printed sources.
    """
    if values.dtype == dtype.numpy:
        return values
    if dtype.is_float:
        through = values.astype(np.float32) if dtype.bits < F32.bits else values
        through = through if dtype.largest is None else np.clip(through, -dtype.largest, dtype.largest)
        return through.astype(dtype.numpy)
    low, high = _INTEGER_LIMITS[dtype]
    wide = np.nan_to_num(np.rint(values.astype(np.float64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(wide, low, high).astype(dtype.numpy)


def multiply_add(left: Array, right: Array, addend: Array) -> Array:
    """Multiplies and adds in the operands' own type, product and sum rounded apart; integers wrap.

    A fused device rounds once: the IR allows both, and so does the error bound of a comparison.
    """
    product = left * right
    if product.shape == np.broadcast_shapes(product.shape, addend.shape):
        product += addend
        return product
    return product + addend
