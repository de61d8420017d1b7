"""Arrays inside guarded memory: poisoned surroundings, memory that ends at a page, memory that is mostly not there."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
GUARD_BYTES = 256
NAN_BYTE = 0xFF  # a NaN in every float type when repeated
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Element strides without gaps; `order` lists the dimensions from the slowest to the fastest."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape)) if order is None else order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def channels_last(rank: int) -> tuple[int, ...]:
    """The order (n, *spatial, c) of the dimensions (n, c, *spatial)."""
    return (0, *range(2, rank), 1)


def element_strides(array: Array) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


class Guarded:
    """An array of any element strides in memory that is otherwise poison, in front of it, behind it and in its gaps."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None = None,
        values: Array | None = None,
        poison: int = NAN_BYTE,
    ) -> None:
        kind = np.dtype(dtype)
        steps = dense_strides(shape) if strides is None else tuple(strides)
        reaches = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)] if 0 not in shape else []
        lowest = sum(reach for reach in reaches if reach < 0)
        size = sum(reach for reach in reaches if reach > 0) - lowest + (0 not in shape)
        self._place = tuple(shape), GUARD_BYTES - lowest * kind.itemsize, [step * kind.itemsize for step in steps]
        self._storage = np.full(size * kind.itemsize + 2 * GUARD_BYTES, poison, np.uint8)
        self.array: Array = self._view(self._storage, kind)
        if values is not None:
            self.array[...] = values
        self._before = self._storage.copy()

    def _view(self, storage: Array, dtype: np.dtype[Any]) -> Array:
        shape, offset, strides = self._place
        return np.ndarray(shape, dtype, storage, offset, strides)

    @property
    def unchanged(self) -> bool:
        return np.array_equal(self._storage, self._before)

    @property
    def surroundings_unchanged(self) -> bool:
        own = np.zeros_like(self._storage)
        item = self.array.itemsize
        self._view(own, np.dtype(f"V{item}"))[...] = np.void(b"\1" * item)
        return np.array_equal(self._storage[own == 0], self._before[own == 0])


def guarded(values: Array, strides: Sequence[int] | None = None, poison: int = NAN_BYTE) -> Guarded:
    return Guarded(values.shape, values.dtype, strides, values, poison)


def sparse(elements: int, dtype: Any) -> Array:
    """Zeros of which only the pages that somebody writes take memory: room for offsets beyond 2**31."""
    nbytes = elements * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return np.frombuffer(pages, dtype)


def at_offsets(storage: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The array of these element strides whose element of index 0 is number `offset` of the storage."""
    item = storage.itemsize
    return np.ndarray(tuple(shape), storage.dtype, storage, offset * item, [stride * item for stride in strides])
