"""Arguments as users give them: taken as integers, sizes and sequences, or refused by the parameter's name."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem, IllegalType
from convloom.expr import Expr, ExprLike, const

IntegerArray: TypeAlias = NDArray[np.integer[Any]]
Integers: TypeAlias = Sequence[SupportsIndex] | IntegerArray

LARGEST = 2**48
"""Most that a size, stride, dilation, pad, or the elements of a tensor may be.

A sum of a few products of two such numbers with a tile's 2**10 positions stays within 64 bits, in which kernels
compute positions and offsets; no address space of today holds more elements.
"""


def integer(name: str, value: SupportsIndex) -> int:
    """The value as an int; IllegalType (naming the argument) for anything that is not an integer, truth values too."""
    if isinstance(value, bool | np.bool_):
        raise IllegalType(f"{name} must be an integer; got the truth value {value!r}; give a number")
    try:
        return operator.index(value)
    except TypeError:
        raise IllegalType(
            f"{name} must be an integer; got {value!r} of type {type(value).__name__}; convert it"
        ) from None


def size(name: str, value: ExprLike) -> Expr:
    """The value as an expression: an integer or a dim. IllegalType for anything else."""
    return value if isinstance(value, Expr) else const(integer(name, value))


def listed(value: object) -> list[Any] | None:
    """The items of a sequence or of an array with dimensions; None for what is neither (texts and bytes are not)."""
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return array.tolist() if array.ndim else None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return list(cast("Sequence[Any]", value))
    return None


def integers(name: str, value: Integers) -> tuple[int, ...]:
    """The items as ints; IllegalType unless the value is a sequence or a 1-D array of integers."""
    return tuple([integer(name, item) for item in _items(name, value, "integers")])


def sizes(name: str, value: Sequence[ExprLike] | IntegerArray) -> tuple[Expr, ...]:
    """The items as expressions; IllegalType unless the value is a sequence of integers and dims."""
    return tuple([size(f"{name}[{place}]", item) for place, item in enumerate(_items(name, value, "integers or dims"))])


def _items(name: str, value: object, of_what: str) -> list[Any]:
    items = listed(value)
    if items is None:
        raise IllegalType(
            f"{name} must be a sequence of {of_what}; got {value!r} of type {type(value).__name__}; give a tuple"
        )
    return items


def three(name: str, value: Sequence[Any]) -> tuple[Any, Any, Any]:
    """One item for each tensor; IllegalType for another number of them."""
    items = listed(value)
    if items is None or len(items) != 3:
        raise IllegalType(f"{name} must be a sequence of three, one for each tensor; got {value!r}; give three")
    return items[0], items[1], items[2]


def check_kind(name: str, value: object, kind: type | UnionType, words: str) -> None:
    """IllegalType unless the value is of this class; `words` say what is expected and how to make one."""
    if not isinstance(value, kind):
        raise IllegalType(f"{name} must be {words}; got {value!r} of type {type(value).__name__}; pass one")


def check_largest(named: Iterable[tuple[str, int]]) -> None:
    """IllegalProblem for a number beyond LARGEST in magnitude."""
    for name, value in named:
        if abs(value) > LARGEST:
            raise IllegalProblem(
                f"{name} must not exceed 2**48 = {LARGEST} in magnitude, so that positions fit 64 bits; got {value}; "
                "use a smaller one"
            )
