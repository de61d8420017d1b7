"""Shared-memory operands of wgmma: the 64-bit descriptor, and where it says that each element lies.

Source: NVIDIA, PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout"; the meaning of the two byte offsets
as measured on an H200 (see docs/instructions.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from convloom.dtypes import DType
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.target.memory import Memory, Space
from convloom.target.number_format import Array, as_elements, exact
from convloom.target.swizzle import Swizzle, swizzled

CHUNK = 16
"""Bytes that always stay together: a row of a core matrix."""
CORE_ROWS = 8

_FIELD = (1 << 14) - 1
_LAYOUT = {0: Swizzle.NONE, 1: Swizzle.B128, 2: Swizzle.B64, 3: Swizzle.B32}
_LAYOUT_BITS = {swizzle: bits for bits, swizzle in _LAYOUT.items()}


class Major(Enum):
    """Which index of the operand runs along memory: the summed one (K) or the other (M of A, N of B)."""

    K = 0
    OUTER = 1


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """A decoded descriptor; all in bytes, multiples of 16 below 2**18.

    K-major: `stride` leads to the next 8 outer indices; `leading` to the next 16 bytes of k without swizzle, and is not
    used with one. Outer-major with swizzle: `leading` leads to the next block of outer indices (one swizzle span),
    `stride` to the next 8 k; without swizzle `stride` leads to the next 16 bytes of outer indices, `leading` to the
    next 8 k.
    """

    address: int
    leading: int
    stride: int
    swizzle: Swizzle

    def encode(self) -> int:
        """The 64 bits. IllegalProblem for an offset that is no multiple of 16 or too large."""
        for name, value in (("address", self.address), ("leading", self.leading), ("stride", self.stride)):
            if value % CHUNK or not 0 <= value // CHUNK <= _FIELD:
                raise IllegalProblem(
                    f"{name} of a matrix descriptor must be a multiple of {CHUNK} below {CHUNK * (_FIELD + 1)}; "
                    f"got {value}; align the tile"
                )
        fields = self.address // CHUNK, self.leading // CHUNK << 16, self.stride // CHUNK << 32
        return sum(fields) | _LAYOUT_BITS[self.swizzle] << 62


def element_addresses(descriptors: Array, outer: int, k: int, dtype: DType, major: Major) -> Array:
    """Byte address of each element: uint64 descriptors of shape (*batch,) -> (*batch, outer, k).

    NotYetSupported for a base offset other than 0. Descriptors of one call share their swizzle (IllegalProblem).
    """
    swizzle = _common_swizzle(descriptors)
    start, leading, stride = (_field(descriptors, bit)[..., None, None] * CHUNK for bit in (0, 16, 32))
    outer_index, k_index = np.arange(outer)[:, None], np.arange(k)[None, :]
    if major is Major.K:
        offset = _k_major(outer_index, k_index * dtype.nbytes, leading, stride, swizzle)
    else:
        offset = _outer_major(outer_index * dtype.nbytes, k_index, leading, stride, swizzle)
    return swizzled(start + offset, swizzle)


def read_matrix(memory: Memory, addresses: Array, dtype: DType, major: Major) -> Array:
    """The numbers (f64 or int64) at element addresses (*batch, outer, k) in shared memory.

    They are read by core matrices, 8 chunks after each other: what tensor cores fetch at a time.
    """
    run = CHUNK // dtype.nbytes
    lines = addresses if major is Major.K else np.swapaxes(addresses, -1, -2)  # chunks along the last axis
    *batch, rows, length = lines.shape
    chunks = lines[..., ::run].reshape(*batch, rows // CORE_ROWS, CORE_ROWS, length // run).swapaxes(-1, -2)
    data = memory.load(Space.SHARED, chunks.reshape(*batch, -1), CHUNK).reshape(*chunks.shape, CHUNK)
    numbers = exact(as_elements(data, dtype), dtype).swapaxes(-2, -3).reshape(lines.shape)
    return numbers if major is Major.K else np.swapaxes(numbers, -1, -2)


def _field(descriptors: Array, bit: int) -> Array:
    return (descriptors >> np.uint64(bit)).astype(np.int64) & _FIELD


def _common_swizzle(descriptors: Array) -> Swizzle:
    if ((descriptors >> np.uint64(49)) & np.uint64(7)).any():
        raise NotYetSupported(
            "a matrix descriptor must have base offset 0; got another; tiles may start at any row with offset 0"
        )
    layouts = np.unique(descriptors >> np.uint64(62))
    if layouts.size != 1:
        raise IllegalProblem(
            f"descriptors of one instruction share their swizzle; got layouts {layouts.tolist()}; use one layout"
        )
    return _LAYOUT[int(layouts[0])]


def _k_major(outer: Array, k_bytes: Array, leading: Array, stride: Array, swizzle: Swizzle) -> Array:
    pitch = swizzle.value or CHUNK
    along = k_bytes if swizzle is not Swizzle.NONE else k_bytes // CHUNK * leading + k_bytes % CHUNK
    return outer // CORE_ROWS * stride + outer % CORE_ROWS * pitch + along


def _outer_major(outer_bytes: Array, k: Array, leading: Array, stride: Array, swizzle: Swizzle) -> Array:
    pitch = swizzle.value or CHUNK
    next_block, next_k = (leading, stride) if swizzle is not Swizzle.NONE else (stride, leading)
    return outer_bytes // pitch * next_block + outer_bytes % pitch + k // CORE_ROWS * next_k + k % CORE_ROWS * pitch
