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
    """One element type: text name, width in bits, class, bits of its significand (implicit one included).

    `exponent_bits` of floating-point types; `largest` finite number where stores saturate to it (8-bit floats).
    """

    name: str
    bits: int
    number_class: NumberClass
    digits: int
    exponent_bits: int = 0
    largest: float | None = None

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
        """The NumPy type that stores it (bf16 and the 8-bit floats through ml_dtypes)."""
        return _NUMPY[self.name]

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", 64, NumberClass.FLOAT, 53, 11)
F32 = DType("f32", 32, NumberClass.FLOAT, 24, 8)
F16 = DType("f16", 16, NumberClass.FLOAT, 11, 5)
BF16 = DType("bf16", 16, NumberClass.FLOAT, 8, 8)
E4M3 = DType("e4m3", 8, NumberClass.FLOAT, 4, 4, 448.0)
"""4 exponent bits, no infinities, NaN = 0x7f and 0xff (OCP 8-bit floating point, E4M3)."""
E5M2 = DType("e5m2", 8, NumberClass.FLOAT, 3, 5, 57344.0)
"""5 exponent bits, IEEE-like (OCP 8-bit floating point, E5M2)."""
S32 = DType("s32", 32, NumberClass.SIGNED, 31)
S8 = DType("s8", 8, NumberClass.SIGNED, 7)
U8 = DType("u8", 8, NumberClass.UNSIGNED, 8)

B32 = DType("b32", 32, NumberClass.UNSIGNED, 32)
"""A register word whose bits an instruction interprets; no tensor has it."""

B64 = DType("b64", 64, NumberClass.UNSIGNED, 64)
"""A transaction barrier's word in shared memory; no tensor has it."""

ALL_DTYPES = (F64, F32, F16, BF16, E4M3, E5M2, S32, S8, U8)

_NUMPY: dict[str, np.dtype[np.generic]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s32": np.dtype(np.int32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
}
_BY_NAME = {dtype.name: dtype for dtype in (*ALL_DTYPES, B32, B64)} | {"f8_e4m3": E4M3, "f8_e5m2": E5M2}
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


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of a floating-point type is one of another, or the types are one."""
    if wide is narrow:
        return True
    both = wide.is_float and narrow.is_float
    return both and wide.digits >= narrow.digits and wide.exponent_bits >= narrow.exponent_bits


def accumulator(a: DType, b: DType) -> DType:
    """The type that products of a and b are summed in: f64 for f64, s32 for 8-bit integers, else f32."""
    if F64 in (a, b):
        return F64
    if not a.is_float and not b.is_float:
        return S32
    return F32
