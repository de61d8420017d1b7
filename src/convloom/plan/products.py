"""The types that a contraction multiplies."""

from __future__ import annotations

from typing import NamedTuple

from convloom.dtypes import DType
from convloom.problem.contraction import Contraction


class Products(NamedTuple):
    """Types of the factors and of their sum; `tf32`: f32 factors may be cut."""

    a: DType
    b: DType
    acc: DType
    tf32: bool


def products_of(contraction: Contraction) -> Products:
    """What a contraction multiplies: operands, or in the sum's type what is left of them without their zero points.

    Differences of 8-bit numbers have 9 bits.
    """
    acc = contraction.acc
    a = contraction.a.dtype if contraction.zero_a is None else acc
    b = contraction.b.dtype if contraction.zero_b is None else acc
    return Products(a, b, acc, contraction.tf32)
