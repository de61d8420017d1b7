"""Logical NumPy arrays to flat buffers of a layout and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.expr import ExprLike, as_expr
from convloom.problem.layout import Layout

Array = NDArray[Any]


def buffer_size(layout: Layout, shape: Sequence[int]) -> int:
    """Elements of the flat buffer of a tensor."""
    return _value(layout.storage_size(shape))


def buffer_origin(layout: Layout, shape: Sequence[int]) -> int:
    """Position of the element of index 0 in the flat buffer; positive where a stride is negative."""
    return -_value(layout.storage_range(shape).lowest) if 0 not in shape else 0


def pack(array: Array, layout: Layout, fill: Any = 0) -> Array:
    """The flat buffer of a logical array; elements that no index reaches hold `fill`.

    Where indices share an element (stride 0) the last one written stays; `unpack` tells what the buffer then means.
    """
    buffer = np.full(buffer_size(layout, array.shape), fill, dtype=array.dtype)
    if array.size == 0:
        return buffer
    if layout.blocks:
        buffer[element_offsets(layout, array.shape)] = array
    else:
        _strided(buffer, layout, array.shape)[...] = array
    return buffer


def unpack(buffer: Array, layout: Layout, shape: Sequence[int]) -> Array:
    """A copy of the logical array that a flat buffer holds. IllegalProblem if the buffer has another size."""
    expected = buffer_size(layout, shape)
    if buffer.shape != (expected,):
        raise IllegalProblem(f"a buffer of this layout has shape ({expected},); got {buffer.shape}; allocate that many")
    if 0 in shape:
        return np.empty(tuple(shape), buffer.dtype)
    if layout.blocks:
        return buffer[element_offsets(layout, shape)]
    return _strided(buffer, layout, shape).copy()


def element_offsets(layout: Layout, shape: Sequence[int]) -> NDArray[np.int64]:
    """Position in the flat buffer of every element of the logical tensor."""
    total = np.full((1,) * len(shape), buffer_origin(layout, shape), dtype=np.int64)
    for dim, extent in enumerate(shape):
        column = _dimension_offsets(layout, dim, extent)
        total = total + column.reshape([-1 if other == dim else 1 for other in range(len(shape))])
    return total


def _dimension_offsets(layout: Layout, dim: int, extent: int) -> NDArray[np.int64]:
    rest = np.arange(extent, dtype=np.int64)
    offsets = np.zeros(extent, dtype=np.int64)
    stride = _value(layout.strides[dim])
    for block in layout.blocks_of(dim):
        period = _value(block.period)
        offsets += rest // period * stride
        rest, stride = rest % period, _value(block.stride)
    return offsets + rest * stride


def _strided(buffer: Array, layout: Layout, shape: Sequence[int]) -> Array:
    strides = [_value(stride) * buffer.itemsize for stride in layout.strides]
    bits = buffer[buffer_origin(layout, shape) :].view(f"u{buffer.itemsize}")  # NumPy cannot re-stride every type
    return as_strided(bits, tuple(shape), strides).view(buffer.dtype)


def _value(size: ExprLike) -> int:
    known = as_expr(size)
    if not known.is_const:
        raise IllegalProblem(
            f"a buffer needs constant extents and strides; got {known}; bind its symbols to values first"
        )
    return known.value
