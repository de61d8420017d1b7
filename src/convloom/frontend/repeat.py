"""Repeated calls: all that does not depend on addresses is done once per description of the arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.frontend.arrays import Family, families
from convloom.frontend.overlap import Reach, check_all_apart, may_overlap
from convloom.frontend.tensor import Tensor, check_alignment
from convloom.frontend.variant import PreparedCall
from convloom.runtime.launch_expression import ADDRESS_PERIOD

_MOST_KNOWN = 4096
_MOST_ALIGNMENTS = 64  # prepared calls of one description, by the alignment of their addresses
_LOW_BITS = ADDRESS_PERIOD - 1

Prepare: TypeAlias = Callable[[list[Any]], tuple[PreparedCall, bool]]
"""From the addresses of a call's tensors to its launches, and whether they serve all addresses of equal alignment."""


class Checked(NamedTuple):
    """The tensors of a call, its result last (their addresses do not count), their reaches and names for messages."""

    tensors: tuple[Tensor, ...]
    reaches: tuple[Reach, ...]
    names: tuple[str, ...]


class Calls:
    """The launches of calls of equal sizes and factors, prepared once for each alignment of their addresses."""

    __slots__ = ("_dtypes", "_known", "_names", "_prepare")

    def __init__(self, prepare: Prepare, names: tuple[str, ...], dtypes: tuple[DType, ...]) -> None:
        self._prepare, self._names, self._dtypes = prepare, names, dtypes
        self._known: dict[Hashable, PreparedCall] = {}

    def at(self, addresses: list[int]) -> PreparedCall:
        """The launches on tensors at these addresses; IllegalProblem for one that is not aligned to its elements.

        Raises also as `Variant.prepared`.
        """
        bits = 0
        for address in addresses:
            bits |= address
        key = tuple([address & _LOW_BITS for address in addresses]) if bits & _LOW_BITS else None
        return self._known.get(key) or self._prepared(key, addresses)

    def _prepared(self, key: Hashable, addresses: list[int]) -> PreparedCall:
        for name, address, dtype in zip(self._names, addresses, self._dtypes, strict=True):
            check_alignment(name, address, dtype)
        call, serves_aligned = self._prepare(addresses)
        if serves_aligned:
            remember(self._known, key, call, _MOST_ALIGNMENTS)
        return call


class Repeat:
    """Runs calls whose arrays have been checked but for their addresses.

    A call finds its `Repeat` by `signature_of` its arrays: the checks of types, sizes, strides and devices need not be
    done again for an equal signature. What depends on addresses is looked at in every call: the alignment chooses among
    prepared launches, a given result must not share memory with an operand. `calls` is None where nothing is
    launched; `allocate` makes a result, None where calls give one.
    """

    __slots__ = ("_allocate", "_calls", "_checked", "_family")

    def __init__(
        self,
        family: Family,
        checked: Checked,
        allocate: Callable[[], Any] | None,
        calls: Calls | None,
    ) -> None:
        self._family, self._checked, self._allocate, self._calls = family, checked, allocate, calls

    def __call__(self, arrays: Sequence[Any], out: Any, stream: Any) -> Any:
        """The call on arrays of the signature; `out` is None where the signature was taken without.

        A stream of None is the one in which the arrays' framework works.
        """
        family = self._family
        locate = family.address
        assert locate is not None
        addresses = [locate(array) for array in arrays]
        allocate = self._allocate
        if allocate is None:
            addresses.append(locate(out))
            self._check_apart(addresses)
        else:
            out = allocate()
            addresses.append(locate(out))
        calls = self._calls
        if calls is not None:
            queue = family.stream(arrays[0]) if stream is None else stream
            calls.at(addresses).enqueue(family, addresses, queue)
        return out

    def _check_apart(self, addresses: list[int]) -> None:
        tensors, reaches, names = self._checked
        if may_overlap(addresses, reaches):
            placed = [Tensor(place, *tensor[1:]) for place, tensor in zip(addresses, tensors, strict=True)]
            check_all_apart(placed, reaches, names)


def signature_of(arrays: Sequence[Any], out: Any) -> Hashable:
    """What the checks of a call look at in its arrays, but for their addresses; None where that has no cheap form.

    Arrays of several families have none.
    """
    first = type(arrays[0])  # pyright: ignore[reportUnknownVariableType]
    family = families.get(first)  # pyright: ignore[reportUnknownArgumentType]
    if family is None or family.signature is None:
        return None
    describe = family.signature
    parts: list[Hashable] = []
    for array in arrays if out is None else (*arrays, out):
        kind = type(array)  # pyright: ignore[reportUnknownVariableType]
        if kind is not first and families.get(kind) is not family:  # pyright: ignore[reportUnknownArgumentType]
            return None
        parts.append(describe(array))
    if None in parts or (out is not None and not _is_writable(family, out)):
        return None
    return out is None, *parts


def _is_writable(family: Family, out: Any) -> bool:
    try:
        family.check_writable("out", out)
    except IllegalProblem:
        return False
    return True


def remember(table: dict[Any, Any], key: Any, value: Any, most: int = _MOST_KNOWN) -> None:
    """Enters a value; a table that has grown too large starts anew."""
    if len(table) >= most:
        table.clear()
    table[key] = value
