"""Number types of tensors and accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np

from convloom.errors import IllegalType


class NumberClass(Enum):
    """What kind of arithmetic a type stands for."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: text name, width in bits, class, and bits of its significand (implicit one included)."""

    name: str
    bits: int
    number_class: NumberClass
    digits: int

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.number_class is NumberClass.FLOAT

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type that stores it (bf16 through ml_dtypes)."""
        return _NUMPY[self.name]

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", 64, NumberClass.FLOAT, 53)
F32 = DType("f32", 32, NumberClass.FLOAT, 24)
F16 = DType("f16", 16, NumberClass.FLOAT, 11)
BF16 = DType("bf16", 16, NumberClass.FLOAT, 8)
S32 = DType("s32", 32, NumberClass.SIGNED, 31)
S8 = DType("s8", 8, NumberClass.SIGNED, 7)
U8 = DType("u8", 8, NumberClass.UNSIGNED, 8)

B32 = DType("b32", 32, NumberClass.UNSIGNED, 32)
"""A register word whose bits an instruction interprets; no tensor has it."""

ALL_DTYPES = (F64, F32, F16, BF16, S32, S8, U8)

_NUMPY: dict[str, np.dtype[np.generic]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "s32": np.dtype(np.int32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "b32": np.dtype(np.uint32),
}
_BY_NAME = {dtype.name: dtype for dtype in (*ALL_DTYPES, B32)}
_BY_NUMPY = {_NUMPY[dtype.name]: dtype for dtype in ALL_DTYPES}


def dtype_named(name: str) -> DType:
    """The type with this text name; IllegalType lists the known ones."""
    found = _BY_NAME.get(name)
    if found is None:
        known = ", ".join(_BY_NAME)
        raise IllegalType(f"an element type must be one of {known}; got {name!r}; use one of these names")
    return found


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The type of a NumPy array's elements; IllegalType if convloom has none for it."""
    found = _BY_NUMPY.get(np.dtype(dtype))
    if found is None:
        known = ", ".join(str(key) for key in _BY_NUMPY)
        raise IllegalType(f"array elements must be one of {known}; got {dtype}; convert the array first")
    return found


def accumulator(a: DType, b: DType) -> DType:
    """The type that products of a and b are summed in: f64 for f64, s32 for 8-bit integers, else f32."""
    if F64 in (a, b):
        return F64
    if not a.is_float and not b.is_float:
        return S32
    return F32
