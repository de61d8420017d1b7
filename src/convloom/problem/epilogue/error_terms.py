"""Formulas of the eltwise kinds in fp64, and how far a device's f32 may be from them.

A device's function differs from the formula by at most `c * u * magnitude(x)`, u = 2^-24 (2^-53 in fp64): the sum of
its roundings and of its library functions' errors. These are taken from the OpenCL C specification, section 7.4 (full
profile): exp, log, sqrt 3 ulp, tanh 5, pow 16, erf 16, division 2.5; CUDA's and libm's are below. One ulp is 2 u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.problem.epilogue.nodes import EltwiseKind

Array = NDArray[Any]
Formula = Callable[[Any, Any, Any], Any]  # x, alpha, beta


@dataclass(frozen=True, slots=True)
class Terms:
    """A formula, the factor c of its roundoff, and the magnitude that it is relative to (None: the value's own)."""

    formula: Formula
    roundoff: float
    magnitude: Formula | None = None


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu_erf(x: Array, a: float, b: float) -> Array:
    return x / 2 * (1 + np.asarray(_erf(x / math.sqrt(2)), np.float64))


def _gelu_tanh(x: Array, a: float, b: float) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hard(x: Array, a: float, b: float) -> Array:
    return np.minimum(np.maximum(a * x + b, 0), 1)


def _relu(x: Array, a: float, b: float) -> Array:
    return np.where(x < 0, a * x if a else 0.0, x)


def _elu(x: Array, a: float, b: float) -> Array:
    return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _size(x: Array, a: float, b: float) -> Array:
    return np.abs(x)


def _linear_size(x: Array, a: float, b: float) -> Array:
    return np.abs(a * x) + abs(b)


TERMS: dict[EltwiseKind, Terms] = {
    EltwiseKind.ABS: Terms(lambda x, a, b: np.abs(x), 0),
    EltwiseKind.CLIP: Terms(lambda x, a, b: np.minimum(np.maximum(x, a), b), 0),
    EltwiseKind.CLIP_V2: Terms(lambda x, a, b: np.minimum(np.maximum(x, a), b), 0),
    EltwiseKind.ELU: Terms(_elu, 10),
    EltwiseKind.EXP: Terms(lambda x, a, b: np.exp(x), 8),
    EltwiseKind.GELU_ERF: Terms(_gelu_erf, 24, _size),
    EltwiseKind.GELU_TANH: Terms(_gelu_tanh, 16, _size),
    EltwiseKind.HARDSIGMOID: Terms(_hard, 2, _linear_size),
    EltwiseKind.HARDSWISH: Terms(
        lambda x, a, b: x * _hard(x, a, b), 4, lambda x, a, b: np.abs(x * (abs(a * x) + abs(b)))
    ),
    EltwiseKind.LINEAR: Terms(lambda x, a, b: a * x + b, 2, _linear_size),
    EltwiseKind.LOG: Terms(lambda x, a, b: np.log(x), 8),
    EltwiseKind.LOGISTIC: Terms(lambda x, a, b: 1 / (1 + np.exp(-x)), 16),
    EltwiseKind.MISH: Terms(lambda x, a, b: x * np.tanh(_softplus(x)), 32),
    EltwiseKind.POW: Terms(lambda x, a, b: a * np.power(x, b), 40),
    EltwiseKind.RELU: Terms(_relu, 1),
    EltwiseKind.ROUND: Terms(lambda x, a, b: np.rint(x), 0),
    EltwiseKind.SOFT_RELU: Terms(lambda x, a, b: _softplus(a * x) / a, 24, lambda x, a, b: np.abs(x) + abs(1 / a)),
    EltwiseKind.SQRT: Terms(lambda x, a, b: np.sqrt(x), 6),
    EltwiseKind.SQUARE: Terms(lambda x, a, b: x * x, 1),
    EltwiseKind.SWISH: Terms(
        lambda x, a, b: x / (1 + np.exp(-a * x)),
        20,
        lambda x, a, b: np.abs(x / (1 + np.exp(-a * x)) * (1 + np.abs(a * x))),
    ),
    EltwiseKind.TANH: Terms(lambda x, a, b: np.tanh(x), 12),
}

CORRECTLY_ROUNDED = frozenset(
    (
        *(EltwiseKind.ABS, EltwiseKind.CLIP, EltwiseKind.CLIP_V2, EltwiseKind.HARDSIGMOID, EltwiseKind.HARDSWISH),
        *(EltwiseKind.LINEAR, EltwiseKind.RELU, EltwiseKind.ROUND, EltwiseKind.SQUARE),
    )
)
"""Sums and products only: they are exact where the parts and the result are representable."""
