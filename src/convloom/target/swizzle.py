"""Swizzles of shared memory on sm_90: 16-byte chunks of an address exchanged by address bits above them.

A swizzle of 2**(4 + b) bytes xors the b address bits from bit 4 on with the b bits from bit 7 on. The final shared
address counts, for tensor copies and asynchronous multiplies alike (measured on an H200 with tiles that start at any
row).
"""

from __future__ import annotations

from enum import Enum

from convloom.target.number_format import Array


class Swizzle(Enum):
    """Span in bytes within which chunks change places."""

    NONE = 0
    B32 = 32
    B64 = 64
    B128 = 128

    @property
    def bits(self) -> int:
        """How many address bits change."""
        return {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 2, Swizzle.B128: 3}[self]


def swizzled(addresses: Array, swizzle: Swizzle) -> Array:
    """Where bytes at these (integer) shared addresses really lie; its own inverse."""
    mask = (1 << swizzle.bits) - 1
    return addresses ^ ((addresses >> 7 & mask) << 4)
