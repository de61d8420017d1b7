"""Numbers as bits in registers: the element types that only instructions know, and decoding and encoding of all."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import ALL_DTYPES, DType, NumberClass
from convloom.errors import IllegalType, InternalError

Array: TypeAlias = NDArray[Any]
"""An array whose element type is known at run time only."""

TF32 = DType("tf32", 32, NumberClass.FLOAT, 11, 8)
"""An f32 of which multipliers read the upper 19 bits: the lower 13 are cut off, not rounded."""
B8 = DType("b8", 8, NumberClass.UNSIGNED, 8)
"""Eight bits that are only moved."""
B16 = DType("b16", 16, NumberClass.UNSIGNED, 16)
"""Sixteen bits that are only moved."""
B32 = DType("b32", 32, NumberClass.UNSIGNED, 32)
"""A 32-bit word that is only moved."""
B64 = DType("b64", 64, NumberClass.UNSIGNED, 64)
"""A 64-bit word that is only moved."""

INSTRUCTION_DTYPES = (TF32, B8, B16, B32, B64)

_STORAGE: dict[str, np.dtype[Any]] = {dtype.name: np.dtype(dtype.numpy) for dtype in ALL_DTYPES} | {
    "tf32": np.dtype(np.float32),
    "b8": np.dtype(np.uint8),
    "b16": np.dtype(np.uint16),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
}
_TF32_MASK = np.uint32(0xFFFFE000)


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that holds one element; for tf32 it is float32."""
    found = _STORAGE.get(dtype.name)
    if found is None:
        raise IllegalType(f"an instruction's element type must be one of {', '.join(_STORAGE)}; got {dtype}; use these")
    return found


def as_elements(bits: Array, dtype: DType) -> Array:
    """The elements packed into the last axis of an array of words, lowest bits first; shares memory where it can."""
    contiguous = np.ascontiguousarray(bits)
    kind = storage(dtype)
    if contiguous.shape[-1] * contiguous.itemsize % kind.itemsize:
        raise InternalError(
            f"words of {contiguous.dtype} x {contiguous.shape[-1]} must hold whole {dtype}; report this"
        )
    return contiguous.view(kind)


def as_words(elements: Array, word: np.dtype[Any]) -> Array:
    """The opposite of `as_elements`: elements of the last axis packed into words, first element in the lowest bits."""
    return np.ascontiguousarray(elements).view(word)


def exact(elements: Array, dtype: DType) -> Array:
    """The numbers as f64 (floats) or int64 (integers), which hold them and each product of two exactly.

    A product of two f64 is the exception: it is rounded. tf32 loses its lower 13 bits first.
    """
    if not dtype.is_float:
        return elements.astype(np.int64)
    if dtype.name == TF32.name:
        elements = (elements.view(np.uint32) & _TF32_MASK).view(np.float32)
    return elements.astype(np.float64)


def rounded(numbers: Array, dtype: DType) -> Array:
    """f64 numbers rounded once, to nearest even; int64 numbers wrapped modulo two to the type's width."""
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(storage(dtype))
