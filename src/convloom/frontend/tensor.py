"""What a kernel needs to know of an array, and the rules that every array obeys."""

from __future__ import annotations

from typing import Any, NamedTuple

from convloom.dtypes import DType
from convloom.errors import IllegalProblem


class Tensor(NamedTuple):
    """An array as a kernel sees it.

    Address of the element of index 0 (OpenCL: a buffer that begins there), extents, strides in elements, element type,
    device (`cpu`, `cuda:0`, ..), and what must stay alive during the call.
    """

    address: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: str
    keeper: Any = None


def whole_strides(name: str, strides: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """Byte strides in elements; IllegalProblem if an element would straddle two."""
    for stride in strides:
        if stride % nbytes:
            raise IllegalProblem(
                f"strides of {name} must be multiples of its element size, {nbytes} bytes; got {strides}; copy it first"
            )
    return tuple([stride // nbytes for stride in strides])


def check_alignment(name: str, address: int, dtype: DType) -> None:
    """IllegalProblem unless the address is a multiple of the element size."""
    if address % dtype.nbytes:
        raise IllegalProblem(
            f"{name} must lie at a multiple of its element size, {dtype.nbytes} bytes; got address {address:#x}, "
            f"{address % dtype.nbytes} beyond one; copy it first"
        )
