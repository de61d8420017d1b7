"""The reference of a problem with an epilogue: sums by definition, then every step by definition, with error bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import F32, F64, S32, DType
from convloom.errors import IllegalProblem
from convloom.problem.conv import NO_SCALING
from convloom.problem.data import reachable_outputs
from convloom.problem.epilogue import NO_EPILOGUE, BinaryKind
from convloom.problem.epilogue.bounded import Bounded, Evaluation, evaluate
from convloom.problem.numerics import TF32_PRODUCT, Comparison, outcome, result_dtype, round_to, unit_roundoff
from convloom.problem.reference import Arithmetic, Operands, Problem, placed_bias, reference, result_shape

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FusedReference:
    """What is to be stored, in fp64, and the largest distance of a device's number from it before the last rounding.

    `without_sums`: what would be stored if all sums of products were 0.
    """

    value: Array
    error: Array
    without_sums: Array


def fused_reference(problem: Problem, operands: Operands, *, exact: bool) -> FusedReference:
    """The result of a problem with an epilogue. `exact`: operands are such that device sums are exact.

    IllegalProblem for symbolic sizes and wrong shapes.
    """
    epilogue = problem.epilogue
    _check_operands(problem, operands)
    sums = _sums(problem, operands, exact=exact)
    out = result_dtype(problem)
    wide = F64 if out in (F64, S32) else F32
    zeros = np.zeros(1)
    along = operands.extras[: len(epilogue.operands)]
    at = Evaluation(Bounded(zeros, zeros), operands.old, out, along, wide)

    def stored(of: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            total = _scaled(problem, operands, of, at)
        return evaluate(epilogue.expression, at._replace(accumulator=total))

    result, bare = stored(sums), stored(Bounded(np.zeros_like(sums.value), np.zeros_like(sums.value)))
    shape = result_shape(problem)
    value, error, without = (np.broadcast_to(array, shape) for array in (result.value, result.error, bare.value))
    return FusedReference(value, error, without)


def deciding_share(problem: Problem, expected: FusedReference) -> float:
    """Outputs that a kernel without any products would get wrong, among those that some product reaches.

    What the share of non-zero outputs is to a plain problem: with relu, zeros say as much as other numbers where a sum
    is negative and a bias is not. 1 if no product reaches any.
    """
    reached = reachable_outputs(replace(problem, bias=None, scaling=NO_SCALING))
    with np.errstate(all="ignore"):
        given, bare = (_stored(result_dtype(problem), array) for array in (expected.value, expected.without_sums))
    same = (given == bare) | (np.isnan(given) & np.isnan(bare))
    return 1.0 if reached == 0 else int(np.count_nonzero(~same)) / reached


def _check_operands(problem: Problem, operands: Operands) -> None:
    wanted = len(problem.epilogue.all_operands)
    if len(operands.extras) != wanted:
        raise IllegalProblem(
            f"the epilogue has {wanted} operands; got {len(operands.extras)}; pass them in their order"
        )
    if problem.epilogue.steps.reads_old and operands.old is None:
        raise IllegalProblem("the epilogue reads the old result; got none; pass `old`")


def _sums(problem: Problem, operands: Operands, *, exact: bool) -> Bounded:
    """The sums of products with zero points taken off, and the error of a device's sums."""
    bare = replace(problem, epilogue=NO_EPILOGUE, bias=None, scaling=NO_SCALING)
    a, b = operands.a, operands.b
    zeros = list(operands.extras[len(problem.epilogue.operands) :])
    if problem.epilogue.zero_a is not None:
        a = a.astype(np.int64) - zeros.pop(0).astype(np.int64)
    if problem.epilogue.zero_b is not None:
        b = b.astype(np.int64) - zeros.pop(0).astype(np.int64)
    integral = not problem.acc.is_float
    arithmetic = Arithmetic.EXACT if exact or integral else Arithmetic.FP64
    found = reference(bare, Operands(a, b), arithmetic, magnitude=arithmetic is Arithmetic.FP64)
    value = found.value.astype(np.float64)
    if found.magnitude is None:
        return Bounded(value, np.zeros_like(value))
    product = TF32_PRODUCT if problem.tf32 else 0.0
    return Bounded(value, (2.0 * found.length * unit_roundoff(problem.acc) + product) * found.magnitude)


def _scaled(problem: Problem, operands: Operands, sums: Bounded, at: Evaluation) -> Bounded:
    """Alpha * sums * scales + beta * old + bias, each step rounded in the type of the epilogue.

    An s32 sum that meets an s32 bias first is added in s32, which is exact.
    """
    scaling, bias = problem.scaling, operands.bias
    first = bias is not None and not (problem.bias is None or problem.bias.is_float)
    if bias is not None and first and not (problem.epilogue.factors or scaling.alpha or scaling.beta):
        sums, bias = Bounded(sums.value + placed_bias(problem, bias), sums.error), None
    total = at.rounded(sums, 1) if _is_converted(problem.acc, at) else sums
    for number in problem.epilogue.factors:
        total = at.step(BinaryKind.MUL, total, at.exact(operands.extras[number]))
    if scaling.alpha:
        total = at.step(BinaryKind.MUL, total, at.exact(operands.alpha))
    if scaling.beta and operands.old is not None:
        part = at.step(BinaryKind.MUL, at.exact(operands.old), at.exact(operands.beta))
        total = at.step(BinaryKind.ADD, total, part)
    if bias is not None:
        total = at.step(BinaryKind.ADD, total, at.exact(placed_bias(problem, bias)))
    return total


def _is_converted(acc: DType, at: Evaluation) -> bool:
    return acc.digits > at.dtype.digits


def compare_fused(problem: Problem, result: Array, expected: FusedReference) -> Comparison:
    """Each element is the rounding of some number within `error` of the reference; NaN for NaN (0 in integers)."""
    out = result_dtype(problem)
    with np.errstate(all="ignore"):
        low, high = (_rounded(out, expected, sign) for sign in (-1.0, 1.0))
    given, middle = result.astype(np.float64), _rounded(out, expected, 0.0)
    inside = (given >= low) & (given <= high)
    both_nan = np.isnan(given) & np.isnan(middle)
    anything = np.isnan(expected.error) | np.isinf(expected.error)
    bad = ~(inside | both_nan | (anything & ~np.isnan(middle)))
    with np.errstate(all="ignore"):
        distance = np.where(inside & (given == middle) | both_nan, 0.0, np.abs(given - middle))
        room = np.maximum(high - middle, middle - low)
        ratio = np.where(distance == 0, 0.0, distance / room)
    shown = np.where(np.isnan(distance), np.inf, distance)
    return outcome(given, middle, shown, np.where(np.isnan(ratio), np.inf, ratio), bad)


def _rounded(out: DType, expected: FusedReference, sign: float) -> Array:
    return _stored(out, expected.value if sign == 0 else expected.value + sign * expected.error)


def _stored(out: DType, value: Array) -> Array:
    if not out.is_float:
        value = np.nan_to_num(value, nan=0.0, posinf=np.inf, neginf=-np.inf)
        value = np.clip(value, -(2.0**53), 2.0**53)
    return round_to(out, value).astype(np.float64)
