"""Operands for a check: small integers with exact sums, or reals; and the share of outputs that say something."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, U8, DType
from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Role, TensorSpec, constant
from convloom.problem.fused_data import fill_operands
from convloom.problem.layout import overlaps_itself
from convloom.problem.layout_memory import pack, unpack
from convloom.problem.reached import reached_positions
from convloom.problem.reference import Operands, Problem, extra_shapes, operand_shapes, reduction_length, result_shape

Array: TypeAlias = NDArray[Any]

BIAS_LIMIT = 8
OLD_LIMIT = 8
ALPHA, BETA = 2.0, -1.0
SIGMAS_REPRESENTABLE = 6.0
SIGMAS_SATURATING = 3.0


class DataKind(Enum):
    """Small integers (results must be equal bit for bit), or reals in [-1, 1) (results within the error bound)."""

    INT = "int"
    REAL = "real"


class _Limits(NamedTuple):
    """Largest magnitude of an element as src, wei and dst (after benchdnn's fill)."""

    src: int
    wei: int
    dst: int


_LIMITS: Mapping[DType, _Limits] = MappingProxyType(
    {
        F64: _Limits(32, 32, 8),
        F32: _Limits(32, 32, 8),
        BF16: _Limits(4, 4, 4),
        F16: _Limits(4, 2, 4),
        E4M3: _Limits(4, 2, 4),
        E5M2: _Limits(4, 2, 4),
        S8: _Limits(4, 4, 4),
        U8: _Limits(8, 8, 8),
    }
)


@dataclass(frozen=True, slots=True)
class Fill:
    """Magnitude limits of the operands a and b, and the share of a's elements that are not set to zero."""

    a: int
    b: int
    density: float


def make_operands(problem: Problem, kind: DataKind = DataKind.INT, seed: int = 0) -> Operands:
    """Operands of a problem in its own types, as logical arrays; the same seed gives the same data.

    Elements that share memory (stride 0) are equal. 8-bit operands are integers in either kind. Integers are chosen
    by `choose_fill`, so that sums are exact in any order. IllegalProblem for symbolic sizes.
    """
    random = np.random.default_rng(seed)
    shapes, specs = operand_shapes(problem), _operand_specs(problem)
    fill = choose_fill(problem)
    a = _operand(random, shapes[0], specs[0], kind, fill.a, fill.density)
    b = _operand(random, shapes[1], specs[1], kind, fill.b, 1.0)
    bias = None
    if problem.bias is not None:
        bias = _values(random, (constant(problem.bias_extent, "test data"),), problem.bias, kind, BIAS_LIMIT)
    scaling = problem.scaling
    reads_old = scaling.beta or problem.epilogue.steps.reads_old
    old = _values(random, result_shape(problem), _result_dtype(problem), kind, OLD_LIMIT) if reads_old else None
    extras = fill_operands(
        problem.epilogue,
        extra_shapes(problem),
        random,
        lambda shape, dtype: _values(random, shape, dtype, kind, BIAS_LIMIT),
    )
    return Operands(a, b, bias, old, ALPHA if scaling.alpha else 1.0, BETA if scaling.beta else 0.0, extras)


def choose_fill(problem: Problem) -> Fill:
    """Limits and density for exact sums: first lower magnitudes, then (only at magnitude 1) fewer non-zeros.

    Accumulator: n * |a| * |b| * |alpha| within 2^digits, which holds for any order of the sum; sums of more than
    2^digits products of +-1 stay inside by Hoeffding's inequality (beyond 2^24 terms: one in e^2^20). Result: six
    standard deviations of the sum of independent products within 2^digits of the output type; three for 8-bit
    outputs, whose saturation is wanted. A result outside is still rounded once: the comparison stays exact.
    """
    dtypes = [spec.dtype for spec in _operand_specs(problem)]
    limits = _start_limits(problem, dtypes[0], dtypes[1])
    length = max(reduction_length(problem), 1)
    factor = ALPHA if problem.scaling.alpha else 1.0
    room = 2**problem.acc.digits / factor - BIAS_LIMIT - OLD_LIMIT
    a, b = _lowered(limits, lambda x, y: length * x * y <= room)
    result = _result_dtype(problem)
    spread = _reach_of(dtypes[0], dtypes[1], length, SIGMAS_SATURATING if result in (S8, U8) else SIGMAS_REPRESENTABLE)
    target = 2**result.digits / factor
    a, b = _lowered((a, b), lambda x, y: spread(x, y, 1.0) <= target)
    density = 1.0
    while spread(a, b, density) > target:
        density /= 2
    return Fill(a, b, density)


def _lowered(limits: tuple[int, int], fits: Callable[[int, int], bool]) -> tuple[int, int]:
    a, b = limits
    while not fits(a, b) and (a, b) != (1, 1):
        a, b = (max(a // 2, 1), b) if a >= b else (a, max(b // 2, 1))
    return a, b


def _reach_of(a: DType, b: DType, length: int, sigmas: float) -> Callable[[int, int, float], float]:
    """Function (limit a, limit b, density) -> mean plus so many standard deviations of a sum of `length` products."""

    def reach(x: int, y: int, density: float) -> float:
        mean = density * _mean(a, x) * _mean(b, y)
        variance = density * _square(a, x) * _square(b, y) - mean * mean
        return length * abs(mean) + sigmas * math.sqrt(length * max(variance, 0.0))

    return reach


def _mean(dtype: DType, limit: int) -> float:
    return limit / 2 if dtype is U8 else 0.0


def _square(dtype: DType, limit: int) -> float:
    """Mean square of integers drawn evenly from [0, limit] (u8) or [-limit, limit]."""
    return limit * (2 * limit + 1) / 6 if dtype is U8 else limit * (limit + 1) / 3


def _start_limits(problem: Problem, a: DType, b: DType) -> tuple[int, int]:
    if not isinstance(problem, Conv):
        return _LIMITS[a].src, _LIMITS[b].wei
    first, second, _ = problem.roles
    return _limit(a, first), _limit(b, second)


def _limit(dtype: DType, role: Role) -> int:
    limits = _LIMITS[dtype]
    return {Role.SRC: limits.src, Role.WEI: limits.wei, Role.DST: limits.dst}[role]


def _operand_specs(problem: Problem) -> tuple[TensorSpec, TensorSpec]:
    if not isinstance(problem, Conv):
        return problem.a, problem.b
    first, second, _ = problem.roles
    return problem.spec(first), problem.spec(second)


def _result_dtype(problem: Problem) -> DType:
    return problem.spec(problem.result).dtype if isinstance(problem, Conv) else problem.c.dtype


def _operand(
    random: np.random.Generator, shape: tuple[int, ...], spec: TensorSpec, kind: DataKind, limit: int, density: float
) -> Array:
    array = _values(random, shape, spec.dtype, kind, limit)
    if density < 1 and kind is DataKind.INT:
        array *= random.random(shape, dtype=np.float32) < density
    if array.size and overlaps_itself(spec.layout, shape):
        return unpack(pack(array, spec.layout), spec.layout, shape)
    return array


def _values(random: np.random.Generator, shape: tuple[int, ...], dtype: DType, kind: DataKind, limit: int) -> Array:
    if kind is DataKind.REAL and dtype.is_float:
        precision = np.float64 if dtype is F64 else np.float32
        return (2 * random.random(shape, dtype=precision) - 1).astype(dtype.numpy)
    lowest = 0 if dtype is U8 else -limit
    return random.integers(lowest, limit + 1, shape, dtype=np.int8).astype(dtype.numpy)


def nonzero_share(problem: Problem, result: Array) -> float:
    """Non-zero outputs among those that some product reaches (all of them with a bias or beta); 1 if none can be.

    Outputs that only padding reaches, and elements between the taps of a strided backward-data, are zero by definition.
    """
    reached = reachable_outputs(problem)
    return 1.0 if reached == 0 else int(np.count_nonzero(result)) / reached


def reachable_outputs(problem: Problem) -> int:
    """How many outputs may be other than zero."""
    total = math.prod(result_shape(problem))
    if problem.bias is not None or problem.scaling.beta:
        return total
    if reduction_length(problem) == 0:
        return 0
    if not isinstance(problem, Conv):
        return total
    shape = result_shape(problem)
    reached = [reached_positions(problem, problem.result, dim) for dim in range(problem.rank)]
    return math.prod(shape[:2]) * math.prod(reached)


def check_nonzero_share(problem: Problem, result: Array, least: float = 0.3) -> None:
    """IllegalProblem if too few outputs are other than zero for a comparison to mean anything."""
    share = nonzero_share(problem, result)
    if share < least:
        raise IllegalProblem(
            f"a check needs {least:.0%} non-zero values among the reachable outputs; got {share:.1%}; use denser data"
        )
