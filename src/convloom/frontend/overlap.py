"""Whether a result shares memory with an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from convloom.errors import IllegalProblem
from convloom.frontend.tensor import Tensor

_MOST_WORK = 10_000  # candidate solutions that the exact answer may cost; beyond it the ranges decide


class Reach(NamedTuple):
    """The bytes of a tensor relative to its element of index 0: begin <= byte < end."""

    begin: int
    end: int


def reach_of(tensor: Tensor) -> Reach:
    """The range that a tensor's elements lie in; empty for an empty tensor."""
    if 0 in tensor.shape:
        return Reach(0, 0)
    spans = [(extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)]
    size = tensor.dtype.nbytes
    begin = sum(span for span in spans if span < 0) * size
    return Reach(begin, (sum(span for span in spans if span > 0) + 1) * size)


def may_overlap(addresses: Sequence[int], reaches: Sequence[Reach]) -> bool:
    """Whether the range of the last tensor, the result, meets that of another."""
    first, last = addresses[-1] + reaches[-1].begin, addresses[-1] + reaches[-1].end
    operands = len(addresses) - 1
    for place in range(operands):  # in every call: a generator costs more
        address, (begin, end) = addresses[place], reaches[place]
        if address + begin < last and first < address + end:
            return True
    return False


def check_all_apart(tensors: Sequence[Tensor], reaches: Sequence[Reach], names: Sequence[str]) -> None:
    """IllegalProblem if the last tensor, the result, shares a byte with another."""
    *operands, result = tensors
    for operand, reach, name in zip(operands, reaches[:-1], names[:-1], strict=True):
        if may_overlap((operand.address, result.address), (reach, reaches[-1])):
            check_apart(result, operand, (names[-1], name))


def check_apart(result: Tensor, operand: Tensor, names: tuple[str, str]) -> None:
    """IllegalProblem if some byte belongs to both; to be asked when their ranges overlap."""
    try:
        shared = np.shares_memory(
            _bytes_of(result),
            _bytes_of(operand),
            max_work=_MOST_WORK,  # pyright: ignore[reportArgumentType]
        )
    except np.exceptions.TooHardError:
        shared = True
    if shared:
        raise IllegalProblem(
            f"a result must not share memory with an operand; {names[0]} at {result.address:#x} overlaps {names[1]} at "
            f"{operand.address:#x}; pass another out or a copy"
        )


class _Memory:
    """Describes memory to NumPy, which only compares addresses and never reads it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _bytes_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    size = tensor.dtype.nbytes
    return np.asarray(
        _Memory(
            {
                "version": 3,
                "typestr": f"|V{size}",
                "shape": tensor.shape,
                "strides": tuple([stride * size for stride in tensor.strides]),
                "data": (tensor.address, False),
            }
        )
    )
