"""What functions of element values give in the interpreter: computed in fp64 and rounded once to the values' type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.ir.functions import Function

Array = NDArray[Any]

_error_function = np.frompyfunc(math.erf, 1, 1)


def call(function: Function, values: list[Array], numbers: tuple[float, ...]) -> Array:
    """The function of values of one type; integers are exact, and wrap as devices do."""
    dtype = values[0].dtype
    if np.issubdtype(dtype, np.integer):
        return _formula(function, values, 0.0, 0.0).astype(dtype)
    alpha, beta = (*(float(np.asarray(item, dtype)) for item in numbers), 0.0, 0.0)[:2]
    with np.errstate(all="ignore"):
        return _formula(function, [value.astype(np.float64) for value in values], alpha, beta).astype(dtype)


def _formula(function: Function, values: list[Array], alpha: float, beta: float) -> Array:
    if function is Function.SELECT:
        condition, yes, no = values
        return np.where(condition != 0, yes, no)
    if function in _OF_TWO:
        return np.asarray(_OF_TWO[function](*values))
    return np.asarray(_OF_ONE[function](values[0], alpha, beta))


def _erf(x: Array) -> Array:
    return np.asarray(_error_function(x), np.float64)


def _clip(x: Array, a: float, b: float) -> Array:
    return np.where(x < a, a, np.where(x > b, b, x))


def _where(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition, yes, no)


def _times_unless_zero(a: float, x: Array) -> Array:
    """A factor of 0 gives 0, of infinities too."""
    return np.zeros_like(x) if a == 0 else a * x


_OF_ONE: dict[Function, Callable[[Any, Any, Any], Any]] = {
    Function.ABS: lambda x, a, b: np.abs(x),
    Function.CLIP: _clip,
    Function.ELU: lambda x, a, b: _where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    Function.EXP: lambda x, a, b: np.exp(x),
    Function.GELU_ERF: lambda x, a, b: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    Function.GELU_TANH: lambda x, a, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    Function.HARDSIGMOID: lambda x, a, b: _clip(a * x + b, 0, 1),
    Function.HARDSWISH: lambda x, a, b: x * _clip(a * x + b, 0, 1),
    Function.LINEAR: lambda x, a, b: a * x + b,
    Function.LOG: lambda x, a, b: np.log(x),
    Function.LOGISTIC: lambda x, a, b: 1 / (1 + np.exp(-x)),
    Function.MISH: lambda x, a, b: x * np.tanh(np.logaddexp(0, x)),
    Function.POW: lambda x, a, b: a * np.power(x, b),
    Function.RELU: lambda x, a, b: np.where(x < 0, _times_unless_zero(a, x), x),
    Function.ROUND: lambda x, a, b: np.rint(x),
    Function.SOFT_RELU: lambda x, a, b: np.logaddexp(0, a * x) / a,
    Function.SQRT: lambda x, a, b: np.sqrt(x),
    Function.SQUARE: lambda x, a, b: x * x,
    Function.SWISH: lambda x, a, b: x / (1 + np.exp(-a * x)),
    Function.TANH: lambda x, a, b: np.tanh(x),
}
_OF_TWO: dict[Function, Callable[[Any, Any], Any]] = {
    Function.SUB: lambda x, y: x - y,
    Function.DIV: lambda x, y: x / y,
    Function.MAX: np.maximum,
    Function.MIN: np.minimum,
    Function.GE: lambda x, y: x >= y,
    Function.GT: lambda x, y: x > y,
    Function.LE: lambda x, y: x <= y,
    Function.LT: lambda x, y: x < y,
    Function.EQ: lambda x, y: x == y,
    Function.NE: lambda x, y: x != y,
    Function.PRELU: lambda x, y: _where(x < 0, x * y, x),
}
