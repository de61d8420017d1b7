"""The type of a value: element type and number of lanes."""

from __future__ import annotations

from typing import NamedTuple

from convloom.dtypes import B32, DType
from convloom.errors import InternalError
from convloom.ir.ops import Binary, Call, Constant, Convert, MultiplyAdd, Pack, Parameter, Read, Splat, Value


class ValueType(NamedTuple):
    """`lanes` numbers of `dtype`."""

    dtype: DType
    lanes: int


def value_type(value: Value) -> ValueType:
    """Derives the type from the leaves; operands of one operation have one type (the verifier checks it)."""
    match value:
        case Constant():
            return ValueType(value.dtype, value.lanes)
        case Parameter():
            return ValueType(value.dtype, 1)
        case Read():
            if value.buffer.dtype is None:
                raise InternalError(f"index array {value.buffer.name} holds no values; read it by Let; report this")
            return ValueType(value.buffer.dtype, value.lanes)
        case Convert():
            return ValueType(value.dtype, value_type(value.value).lanes)
        case Pack():
            return ValueType(B32, 1)
        case Splat():
            return ValueType(value_type(value.value).dtype, value.lanes)
        case Binary() | MultiplyAdd():
            return value_type(value.left)
        case Call():
            return value_type(value.values[0])
