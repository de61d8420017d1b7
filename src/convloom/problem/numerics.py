"""How far a result may be from the reference, and the comparison that says whether it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, DType, NumberClass
from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv
from convloom.problem.reference import Problem, Reference

Array: TypeAlias = NDArray[Any]

HALF_SMALLEST_SUBNORMAL = {F64: 0.0, F32: 2.0**-150, F16: 2.0**-25, BF16: 2.0**-134, E4M3: 2.0**-10, E5M2: 2.0**-17}
TF32_PRODUCT = 2.0**-9 + 2.0**-20
"""Largest relative error of a product whose two factors are cut to 11 digits."""
F32_ROUNDOFF = 2.0**-24
FLOAT_EPILOGUE_ROUNDINGS = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outcome of a comparison: the largest error, the largest share of its bound that an error takes, what is wrong."""

    max_error: float
    max_ratio: float
    mismatches: int
    first_bad: tuple[int, ...] | None
    given: float
    expected: float

    @property
    def passed(self) -> bool:
        """True if no element is out of its bound."""
        return self.mismatches == 0

    @property
    def fault(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        if self.passed:
            return ""
        wrong = f"{self.mismatches} elements wrong, the first at {self.first_bad}"
        return f"{wrong}: {self.given:.9g} instead of {self.expected:.9g}"


def result_dtype(problem: Problem) -> DType:
    """The element type of the result."""
    return problem.spec(problem.result).dtype if isinstance(problem, Conv) else problem.c.dtype


def unit_roundoff(dtype: DType) -> float:
    """Half the gap between 1 and its successor; 0 for integers."""
    return 2.0**-dtype.digits if dtype.is_float else 0.0


def error_bound(problem: Problem, expected: Reference, *, factor: float = 1.0) -> Array:
    """Bound per element: factor * (u_out*|ref| + eta_out + 2*n*u_acc*sum|x*w|), against fp64 on the rounded inputs.

    n counts the terms of the sum, bias and old result included; u_acc is 2^-24 (2^-53 for f64). An s32 sum is exact:
    only the factors and the float bias round, and an integer result rounds by at most 1/2. `factor` 2 is for another
    library's result as reference. Source: N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1,
    doubled. Where tf32 is allowed, TF32_PRODUCT*sum|x*w| is added. IllegalProblem if the reference lacks magnitudes.
    """
    if expected.magnitude is None:
        raise IllegalProblem("an error bound needs sum|x*w|; the reference has none; compute it with magnitude=True")
    out, acc = result_dtype(problem), problem.acc
    value = np.abs(np.asarray(expected.value, dtype=np.float64))
    if acc.is_float:
        sums = 2.0 * expected.length * unit_roundoff(acc) * expected.magnitude
        sums += TF32_PRODUCT * expected.magnitude if problem.tf32 else 0.0
    elif _has_float_epilogue(problem) or out.is_float:
        sums = FLOAT_EPILOGUE_ROUNDINGS * F32_ROUNDOFF * expected.magnitude
    else:
        sums = np.zeros_like(value)
    eta = HALF_SMALLEST_SUBNORMAL[out] if out.is_float else _integer_eta(problem)
    with np.errstate(over="ignore", invalid="ignore"):
        return factor * (unit_roundoff(out) * value + eta + sums)


def _integer_eta(problem: Problem) -> float:
    return 0.5 if problem.acc.is_float or _has_float_epilogue(problem) else 0.0


def _has_float_epilogue(problem: Problem) -> bool:
    return problem.scaling.alpha or problem.scaling.beta or (problem.bias is not None and problem.bias.is_float)


def round_to(dtype: DType, value: Array) -> Array:
    """The value in an element type, to nearest even; integers and 8-bit floats saturate, others become infinite."""
    if dtype.is_float:
        value = value if dtype.largest is None else np.clip(value, -dtype.largest, dtype.largest)
        with np.errstate(over="ignore"):
            return value.astype(dtype.numpy)
    unsigned = dtype.number_class is NumberClass.UNSIGNED
    lowest = 0 if unsigned else -(2**dtype.digits)
    whole = value if np.issubdtype(value.dtype, np.integer) else np.rint(value)
    return np.clip(whole, lowest, 2**dtype.digits - 1).astype(dtype.numpy)


def compare_exact(problem: Problem, result: Array, expected: Reference) -> Comparison:
    """Bit equality with the reference rounded once to the output type; NaN equals NaN, and zeros of either sign."""
    rounded = round_to(result_dtype(problem), expected.value)
    return _compare(result, rounded.astype(np.float64), np.zeros(1))


def compare(problem: Problem, result: Array, expected: Reference, bound: Array | None = None) -> Comparison:
    """Every element within `bound` (default `error_bound`) of the reference; NaN and infinities must agree in kind.

    Results beyond the range of the output type may be infinite (floats) or saturate (integers).
    """
    limits = error_bound(problem, expected) if bound is None else bound
    out = result_dtype(problem)
    value = np.asarray(expected.value, dtype=np.float64)
    if not out.is_float:
        value = np.clip(
            value, 0 if out.number_class is NumberClass.UNSIGNED else -(2.0**out.digits), 2.0**out.digits - 1
        )
    elif out.largest is not None:
        value = np.clip(value, -out.largest, out.largest)
    else:
        value = _overflowed(out, value, limits, result)
    return _compare(result, value, limits)


def _overflowed(out: DType, value: Array, limits: Array, result: Array) -> Array:
    """The reference with infinity where the result is infinite and the bound reaches beyond the type's range."""
    given = result.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        outermost = np.isinf((value + np.copysign(limits, value)).astype(out.numpy).astype(np.float64))
    return np.where(np.isinf(given) & outermost & (np.sign(given) == np.sign(value)), given, value)


def _compare(result: Array, expected: Array, bound: Array) -> Comparison:
    if result.shape != expected.shape:
        raise IllegalProblem(f"a result must have the shape {expected.shape}; got {result.shape}; reshape it")
    given = result.astype(np.float64)
    same = (given == expected) | (np.isnan(given) & np.isnan(expected))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(same, 0.0, np.abs(given - expected))
        error = np.where(np.isnan(error), np.inf, error)
        limits = np.where(np.isfinite(expected), bound, 0.0)
        bad = ~same & ~(error <= limits)
        ratio = np.where(error == 0, 0.0, error / limits)
    return outcome(given, expected, error, np.where(np.isnan(ratio), np.inf, ratio), bad)


def outcome(given: Array, expected: Array, error: Array, ratio: Array, bad: Array) -> Comparison:
    """The comparison of the elements of a result, given which are wrong."""
    if error.size == 0:
        return Comparison(0.0, 0.0, 0, None, 0.0, 0.0)
    mismatches = int(np.count_nonzero(bad))
    first = cast("tuple[int, ...] | None", None)
    if mismatches:
        first = tuple([int(place) for place in np.unravel_index(int(np.argmax(bad)), bad.shape)])
    shown = first if first is not None else (0,) * error.ndim
    return Comparison(
        float(error.max()), float(ratio.max()), mismatches, first, float(given[shown]), float(expected[shown])
    )
