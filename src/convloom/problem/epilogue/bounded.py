"""Expressions evaluated by definition in fp64, with a bound on what a device may compute instead.

Every value carries the largest distance of a device's f32 (or f64) from it: errors of the parts carried through, plus
the roundings of the step. A sum, difference or product of exact parts that the type can hold is exact, so that the
bound is 0 for epilogues on small integers and the comparison is one of equality.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import F64, S8, U8, DType
from convloom.errors import InternalError
from convloom.problem.epilogue.error_terms import CORRECTLY_ROUNDED, TERMS
from convloom.problem.epilogue.nodes import (
    Accumulator,
    Binary,
    BinaryKind,
    Eltwise,
    Input,
    Node,
    Number,
    Old,
    Select,
)

Array = NDArray[Any]

_UNDERFLOW = {True: 2.0**-1022, False: 2.0**-126}  # f64, f32: devices may flush what is smaller


class Bounded(NamedTuple):
    """A value and the largest error of a device's."""

    value: Array
    error: Array


class Evaluation(NamedTuple):
    """What an expression starts from: the accumulator, the old result, operands, and the type of the arithmetic."""

    accumulator: Bounded
    old: Array | None
    old_type: DType
    operands: tuple[Array, ...]
    dtype: DType

    @property
    def unit(self) -> float:
        """Roundoff of the type."""
        return 2.0**-self.dtype.digits

    def exact(self, value: Array | float) -> Bounded:
        """A value that a device holds, after conversion to the type of the arithmetic."""
        array = np.asarray(value, np.float64)
        return self.rounded(Bounded(array, np.zeros_like(array)), 1)

    def rounded(
        self, of: Bounded, factor: float, size: Array | None = None, *, exactly: Array | bool = True
    ) -> Bounded:
        """The value with factor * u * size (its own) added to the error, but where it is exact."""
        value, error = of
        magnitude = np.abs(value) if size is None else size
        same = exactly & (error == 0) & self.holds(value)
        more = np.where(same, 0.0, factor * self.unit * magnitude + _UNDERFLOW[self.dtype is F64])
        return Bounded(value, error + more)

    def holds(self, value: Array) -> Array:
        """Where the type is known to have the value.

        fp64 cannot tell whether itself has rounded: there, multiples of 2^-10 below 2^40 count, whose sums and products
        have few enough digits.
        """
        if self.dtype is F64:
            return ((np.rint(value * 1024) == value * 1024) & (np.abs(value) < 2.0**40)) | ~np.isfinite(value)
        return (value.astype(self.dtype.numpy).astype(np.float64) == value) | np.isnan(value)

    def step(self, kind: BinaryKind, left: Bounded, right: Bounded) -> Bounded:
        """One operation of two values."""
        return _BINARY[kind](self, left, right)


def evaluate(node: Node, at: Evaluation) -> Bounded:
    """The expression's value, with its error."""
    with np.errstate(all="ignore"):
        return _evaluate(node, at)


def _evaluate(node: Node, at: Evaluation) -> Bounded:
    match node:
        case Accumulator():
            return at.accumulator
        case Input():
            return at.exact(at.operands[node.index])
        case Number():
            return at.exact(_held(node.value, at))
        case Old():
            return _old(node, at)
        case Eltwise():
            return _eltwise(node, _evaluate(node.x, at), at)
        case Binary():
            return at.step(node.kind, _evaluate(node.left, at), _evaluate(node.right, at))
        case Select():
            return _select(*(_evaluate(part, at) for part in (node.condition, node.yes, node.no)))
        case _:
            raise InternalError(f"an expression consists of epilogue nodes; got {node!r}; report this")


def _held(value: float, at: Evaluation) -> float:
    return float(np.asarray(value, at.dtype.numpy))


def _old(node: Old, at: Evaluation) -> Bounded:
    if at.old is None:
        raise InternalError("an epilogue reads the old result, and there is none; report this")
    old = at.old
    if node.dtype in (S8, U8) and node.dtype is not at.old_type:
        old = old.astype(at.old_type.numpy).view(node.dtype.numpy)
    read = at.exact(old.astype(np.float64))
    shifted = at.step(BinaryKind.SUB, read, at.exact(float(node.zero_point)))
    return at.step(BinaryKind.MUL, shifted, at.exact(_held(node.scale, at)))


def _eltwise(node: Eltwise, x: Bounded, at: Evaluation) -> Bounded:
    terms, alpha, beta = TERMS[node.kind], _held(node.alpha, at), _held(node.beta, at)
    value = terms.formula(x.value, alpha, beta)
    ends = [terms.formula(x.value + sign * x.error, alpha, beta) for sign in (-1.0, 1.0)]
    spread = np.where(x.error == 0, 0.0, np.maximum(*(_distance(end, value) for end in ends)))
    if terms.roundoff == 0:
        return Bounded(value, spread)
    size = None if terms.magnitude is None else terms.magnitude(x.value, alpha, beta)
    plain = node.kind in CORRECTLY_ROUNDED
    exactly = at.holds(alpha * x.value) & at.holds(alpha * x.value + beta) if plain else False
    return at.rounded(Bounded(value, spread), terms.roundoff, size, exactly=exactly)


def _distance(left: Array, right: Array) -> Array:
    """How far apart; nothing is known where just one of them is a number."""
    apart = np.abs(left - right)
    return np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.where(np.isnan(apart), np.inf, apart))


def _select(condition: Bounded, yes: Bounded, no: Bounded) -> Bounded:
    taken = condition.value != 0
    sure = (condition.error == 0) | (np.abs(condition.value) > condition.error)
    value, error = np.where(taken, yes.value, no.value), np.where(taken, yes.error, no.error)
    either = np.abs(yes.value - no.value) + yes.error + no.error
    return Bounded(value, np.where(sure, error, either))


# --- two values -----------------------------------------------------------------------------------------------------


def _add(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
    return at.rounded(Bounded(x.value + y.value, x.error + y.error), 1)


def _sub(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
    return at.rounded(Bounded(x.value - y.value, x.error + y.error), 1)


def _mul(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
    error = _part(x.value, y.error) + _part(y.value, x.error) + x.error * y.error
    return at.rounded(Bounded(x.value * y.value, error), 1)


def _part(value: Array, error: Array) -> Array:
    """Value * error, 0 where there is no error."""
    return np.where(error == 0, 0.0, np.abs(value) * error)


def _div(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
    """Division by a power of two is exact where the quotient is in range; else 2.5 ulp."""
    value = x.value / y.value
    least = np.abs(y.value) - y.error
    carried = (x.error + _part(value, y.error)) / least
    error = np.where((x.error == 0) & (y.error == 0), 0.0, np.where(least > 0, carried, np.inf))
    power = np.frexp(y.value)[0]
    return at.rounded(Bounded(value, error), 5, exactly=np.abs(power) == 0.5)


def _extreme(choose: Callable[[Array, Array], Array]) -> Callable[[Evaluation, Bounded, Bounded], Bounded]:
    return lambda at, x, y: Bounded(choose(x.value, y.value), np.maximum(x.error, y.error))


def _compared(holds: Callable[[Array, Array], Array]) -> Callable[[Evaluation, Bounded, Bounded], Bounded]:
    def compared(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
        value = holds(x.value, y.value).astype(np.float64)
        error = x.error + y.error
        return Bounded(value, np.where((error > 0) & (np.abs(x.value - y.value) <= error), 1.0, 0.0))

    return compared


def _prelu(at: Evaluation, x: Bounded, y: Bounded) -> Bounded:
    """Steps by at most max(1, |slope|) per step of x."""
    negative = x.value < 0
    value = np.where(negative, x.value * y.value, x.value)
    slope = np.maximum(1.0, np.abs(y.value) + y.error)
    error = _part(slope, x.error) + np.where(negative, _part(x.value, y.error), 0.0)
    return at.rounded(Bounded(value, error), 1)


_BINARY: dict[BinaryKind, Callable[[Evaluation, Bounded, Bounded], Bounded]] = {
    BinaryKind.ADD: _add,
    BinaryKind.SUB: _sub,
    BinaryKind.MUL: _mul,
    BinaryKind.DIV: _div,
    BinaryKind.MAX: _extreme(np.maximum),
    BinaryKind.MIN: _extreme(np.minimum),
    BinaryKind.GE: _compared(lambda x, y: x >= y),
    BinaryKind.GT: _compared(lambda x, y: x > y),
    BinaryKind.LE: _compared(lambda x, y: x <= y),
    BinaryKind.LT: _compared(lambda x, y: x < y),
    BinaryKind.EQ: _compared(lambda x, y: x == y),
    BinaryKind.NE: _compared(lambda x, y: x != y),
    BinaryKind.PRELU: _prelu,
}
