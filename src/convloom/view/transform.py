"""The coordinate transforms: each a small index law from the coordinates that a kernel uses towards memory.

Index laws work alike on expressions and on NumPy arrays: `index(coordinates, read)` gets the input coordinates in
order and a function that reads a parameter in the same domain. `//` and `%` floor, as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, as_expr, bounds

IntArray: TypeAlias = NDArray[np.int64]
Index = TypeVar("Index", Expr, IntArray)

OFFSET = "offset"


@dataclass(frozen=True, slots=True, init=False)
class Axis:
    """A named coordinate of a view; it runs over 0 <= coordinate < extent."""

    name: str
    extent: Expr

    def __init__(self, name: str, extent: ExprLike) -> None:
        _fill(self, name, as_expr(extent))


@dataclass(frozen=True, slots=True)
class Guard:
    """A coordinate is valid only where it is >= 0 (if `lower`) and < size."""

    coordinate: str
    lower: bool
    size: Expr


@dataclass(frozen=True, slots=True)
class _Transform:
    """What the kinds share: no guard unless a kind says so."""

    @property
    def guard(self) -> Guard | None:
        """The condition that this transform puts on its output, if any."""
        return None


@dataclass(frozen=True, slots=True)
class _OneToOne(_Transform):
    """A transform with one input and one output."""

    input: str
    output: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names consumed."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced."""
        return (self.output,)


@dataclass(frozen=True, slots=True)
class Pass(_OneToOne):
    """Rename: i -> i.

    Post-condition: output == input.
    """

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return coordinates


@dataclass(frozen=True, slots=True, init=False)
class Affine(_Transform):
    """Weighted sum: (i1 .. in) -> c1*i1 + .. + cn*in + constant; any signs.

    Post-condition: output == sum(c * i) + constant.
    """

    inputs: tuple[str, ...]
    output: str
    coefficients: tuple[Expr, ...]
    constant: Expr

    def __init__(
        self, inputs: Sequence[str], output: str, coefficients: Sequence[ExprLike], constant: ExprLike = 0
    ) -> None:
        _same_length("Affine", "inputs", inputs, "coefficients", coefficients)
        _fill(self, tuple(inputs), output, tuple(map(as_expr, coefficients)), as_expr(constant))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced."""
        return (self.output,)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        total = read(self.constant)
        for coordinate, coefficient in zip(coordinates, self.coefficients, strict=True):
            total = total + coordinate * read(coefficient)
        return (total,)


@dataclass(frozen=True, slots=True, init=False)
class Split(_Transform):
    """Mixed-radix digits of an index, slowest first: i -> (i // (e2*e3), i // e3 % e2, i % e3).

    The first extent bounds nothing in the law: an index beyond the product overflows into the first output.
    Post-condition: Join(outputs, extents) == input, and 0 <= output < extent for every output but the first.
    """

    input: str
    outputs: tuple[str, ...]
    extents: tuple[Expr, ...]

    def __init__(self, input: str, outputs: Sequence[str], extents: Sequence[ExprLike]) -> None:
        _same_length("Split", "outputs", outputs, "extents", extents)
        _positive("Split", extents[1:])
        _fill(self, input, tuple(outputs), tuple(map(as_expr, extents)))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names consumed."""
        return (self.input,)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring, by successive division: every divisor is an extent, never a product."""
        rest = coordinates[0]
        digits: list[Index] = []
        for extent in reversed(self.extents[1:]):
            radix = read(extent)
            digits.append(rest % radix)
            rest = rest // radix
        return (rest, *reversed(digits))


@dataclass(frozen=True, slots=True, init=False)
class Join(_Transform):
    """Mixed-radix value of digits, slowest first: (i1, i2, i3) -> (i1*e2 + i2)*e3 + i3.

    Post-condition: Split(output, extents) == inputs where 0 <= i < e holds for every input but the first.
    """

    inputs: tuple[str, ...]
    output: str
    extents: tuple[Expr, ...]

    def __init__(self, inputs: Sequence[str], output: str, extents: Sequence[ExprLike]) -> None:
        _same_length("Join", "inputs", inputs, "extents", extents)
        _fill(self, tuple(inputs), output, tuple(map(as_expr, extents)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced."""
        return (self.output,)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        total = coordinates[0]
        for coordinate, extent in zip(coordinates[1:], self.extents[1:], strict=True):
            total = total * read(extent) + coordinate
        return (total,)


@dataclass(frozen=True, slots=True, init=False)
class Pad(_OneToOne):
    """Index into a padded range: i -> i - left, valid iff 0 <= i - left < size.

    A negative `left` crops. Post-condition: output == input - left; where valid, 0 <= output < size.
    """

    left: Expr
    size: Expr

    def __init__(self, input: str, output: str, left: ExprLike, size: ExprLike) -> None:
        _fill(self, input, output, as_expr(left), as_expr(size))

    @property
    def guard(self) -> Guard | None:
        """Both bounds on the output."""
        return Guard(self.output, True, self.size)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return (coordinates[0] - read(self.left),)


@dataclass(frozen=True, slots=True, init=False)
class PadTo(_OneToOne):
    """A range run up to more than its size (a tail): i -> i, valid iff i < size.

    Post-condition: output == input; where valid, output < size.
    """

    size: Expr

    def __init__(self, input: str, output: str, size: ExprLike) -> None:
        _fill(self, input, output, as_expr(size))

    @property
    def guard(self) -> Guard | None:
        """The upper bound on the output."""
        return Guard(self.output, False, self.size)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return coordinates


@dataclass(frozen=True, slots=True, init=False)
class Slice(_OneToOne):
    """Every step-th index from begin on: i -> i*step + begin.

    Post-condition: output == begin + step * input.
    """

    begin: Expr
    step: Expr

    def __init__(self, input: str, output: str, begin: ExprLike, step: ExprLike = 1) -> None:
        _fill(self, input, output, as_expr(begin), as_expr(step))

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return (coordinates[0] * read(self.step) + read(self.begin),)


@dataclass(frozen=True, slots=True)
class Broadcast(_Transform):
    """An index that nothing below depends on: i -> ().

    Post-condition: the view has the same offset and validity for every value of the input.
    """

    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names consumed."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced: none."""
        return ()

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return ()


@dataclass(frozen=True, slots=True, init=False)
class Modulo(_OneToOne):
    """A range repeated: i -> i % extent.

    Post-condition: 0 <= output < extent, and extent divides input - output.
    """

    extent: Expr

    def __init__(self, input: str, output: str, extent: ExprLike) -> None:
        _positive("Modulo", (extent,))
        _fill(self, input, output, as_expr(extent))

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return (coordinates[0] % read(self.extent),)


@dataclass(frozen=True, slots=True, init=False)
class Const(_Transform):
    """A fixed index: () -> value.

    Post-condition: output == value.
    """

    output: str
    value: Expr

    def __init__(self, output: str, value: ExprLike) -> None:
        _fill(self, output, as_expr(value))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names consumed: none."""
        return ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced."""
        return (self.output,)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring."""
        return (read(self.value),)


@dataclass(frozen=True, slots=True, init=False)
class Xor(_Transform):
    """Bitwise exclusive or of two non-negative indices below 2**31 (swizzles of on-chip tiles): (i, j) -> i ^ j.

    Post-condition: output ^ j == i.
    """

    inputs: tuple[str, ...]
    output: str

    def __init__(self, inputs: Sequence[str], output: str) -> None:
        if len(inputs) != 2:
            raise IllegalProblem(f"Xor takes two inputs; got {len(inputs)}; chain several Xor transforms")
        _fill(self, tuple(inputs), output)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names produced."""
        return (self.output,)

    def index(self, coordinates: tuple[Index, ...], read: Callable[[Expr], Index]) -> tuple[Index, ...]:
        """The law of the class docstring; the expression language has no exclusive or, so bit by bit."""
        left, right = coordinates
        if isinstance(left, Expr) and isinstance(right, Expr):
            return (_xor_expressions(left, right),)
        return (np.bitwise_xor(cast(IntArray, left), cast(IntArray, right)),)  # pyright: ignore[reportReturnType]


Transform: TypeAlias = Pass | Affine | Split | Join | Pad | PadTo | Slice | Broadcast | Modulo | Const | Xor


def rebuild(transform: Transform, name: Callable[[str], str], value: Callable[[Expr], Expr]) -> Transform:
    """The same kind of transform with `name` applied to every coordinate name and `value` to every parameter."""
    kind: type[Any] = type(transform)
    return kind(*(_mapped(getattr(transform, field), name, value) for field in _field_names(kind)))


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _mapped(item: Any, name: Callable[[str], str], value: Callable[[Expr], Expr]) -> Any:
    if isinstance(item, str):
        return name(item)
    if isinstance(item, Expr):
        return value(item)
    return tuple(_mapped(part, name, value) for part in item)


def _fill(record: object, *values: object) -> None:
    kind: type[Any] = type(record)
    for field, value in zip(_field_names(kind), values, strict=True):
        object.__setattr__(record, field, value)


def _same_length(kind: str, left: str, lefts: Sequence[Any], right: str, rights: Sequence[Any]) -> None:
    if len(lefts) != len(rights):
        raise IllegalProblem(
            f"{kind} needs as many {right} as {left}; got {len(rights)} for {len(lefts)}; give one per coordinate"
        )


def _positive(kind: str, extents: Sequence[ExprLike]) -> None:
    for extent in extents:
        highest = bounds(as_expr(extent)).hi
        if highest is not None and highest < 1:
            raise IllegalProblem(
                f"an extent of {kind} must be at least 1; got {extent}; leave empty axes out of the view"
            )


def _xor_expressions(left: Expr, right: Expr) -> Expr:
    total = left + right
    for bit in range(_bits(left, right)):
        weight = 1 << bit
        total = total - (left // weight % 2) * (right // weight % 2) * (2 * weight)
    return total


def _bits(left: Expr, right: Expr) -> int:
    """How many low bits of the two can both be set, from their known bounds."""
    lengths: list[int] = []
    for side in (left, right):
        known = bounds(side)
        if known.lo is None or known.lo < 0 or known.hi is None:
            raise IllegalProblem(
                f"Xor needs coordinates with known bounds >= 0; got {side}; give its symbols lo and hi"
            )
        lengths.append(known.hi.bit_length())
    return min(lengths)
