"""The slow oracle: any problem evaluated straight from its mathematical definition, in fp64 or exact integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.expr import Expr
from convloom.problem.conv import Conv, Direction, constant
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.geometry import Span, Window, tap_outputs

Array: TypeAlias = NDArray[Any]
Problem: TypeAlias = Conv | Gemm

EXACT_IN_FP64 = 2**53
CHUNK_ELEMENTS = 1 << 23


class Arithmetic(Enum):
    """How sums are computed: in fp64, or exactly (operands must hold integers)."""

    FP64 = "fp64"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Operands:
    """Values of one call as logical arrays, in the dims of the problem's docstring.

    `a` and `b` are (src, wei), (dst, wei), (src, dst) by direction, or the factors of a Gemm. `bias` is 1-D; `old` is
    the result's former content, read only if beta is not 0 or the epilogue has a sum. `extras` are the epilogue's
    operands, along the result and then along the factors, with extent 1 where they are broadcast.
    """

    a: Array
    b: Array
    bias: Array | None = None
    old: Array | None = None
    alpha: float = 1.0
    beta: float = 0.0
    extras: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """The result (fp64, or int64 if exact), the sum of magnitudes of all its terms (if asked), and their number."""

    value: Array
    magnitude: Array | None
    length: int


def reference(
    problem: Problem, operands: Operands, arithmetic: Arithmetic = Arithmetic.FP64, *, magnitude: bool = False
) -> Reference:
    """The value alpha * (sum of products) + beta * old + bias by definition; old is not read if beta is 0.

    Padding is an exact zero that multiplies (0 * NaN is NaN): padded taps in FWD and BWD_W, and in BWD_D outputs beyond
    dst that a tap of the element's residue would meet. Residues modulo the stride that meet no output multiply nothing.
    IllegalProblem for symbolic sizes, wrong shapes, or operands that are no integers where the sum shall be exact.
    """
    _check_shapes(problem, operands)
    length = reduction_length(problem)
    total = _total(problem, _converted(operands, arithmetic, length), arithmetic)
    sizes = _total(problem, _magnitudes(operands), Arithmetic.FP64) if magnitude else None
    return Reference(total, sizes, length + (operands.bias is not None) + (operands.beta != 0))


def reduction_length(problem: Problem) -> int:
    """Upper bound of the products in one sum, for constant sizes: taps that no extent can hold do not count."""
    if isinstance(problem, Gemm):
        return constant(problem.k, "a reference")
    sizes = zip(problem.windows, _constants(problem.in_spatial), _constants(problem.out_spatial), strict=True)
    if problem.direction is Direction.FWD:
        taps = (min(window.kernel, -(-inside // window.dilation)) for window, inside, _ in sizes)
        return constant(problem.channels_per_group, "a reference") * math.prod(taps)
    if problem.direction is Direction.BWD_D:
        taps = (min(_taps_per_residue(window), outside) for window, _, outside in sizes)
        return constant(problem.outputs_per_group, "a reference") * math.prod(taps)
    places = (min(outside, -(-inside // window.stride)) for window, inside, outside in sizes)
    return constant(problem.batch, "a reference") * math.prod(places)


def _taps_per_residue(window: Window) -> int:
    period = window.stride // math.gcd(window.stride, window.dilation)
    return -(-window.kernel // period)


def result_shape(problem: Problem) -> tuple[int, ...]:
    """Extents of the result. IllegalProblem if symbolic."""
    return _constants(problem.c_shape if isinstance(problem, Gemm) else problem.shape(problem.result))


def operand_shapes(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of operands a and b. IllegalProblem if symbolic."""
    if isinstance(problem, Gemm):
        return _constants(problem.a_shape), _constants(problem.b_shape)
    first, second, _ = problem.roles
    return _constants(problem.shape(first)), _constants(problem.shape(second))


def extra_shapes(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Extents of the epilogue's operands, in the order of a call. IllegalProblem if symbolic."""
    return tuple(_constants(shape) for shape in symbolic_extra_shapes(problem))


def symbolic_extra_shapes(problem: Problem) -> tuple[tuple[Expr, ...], ...]:
    """Extents of the epilogue's operands as expressions."""
    if isinstance(problem, Gemm):
        shapes = (problem.a_shape, problem.b_shape, problem.c_shape)
    else:
        first, second, result = problem.roles
        shapes = (problem.shape(first), problem.shape(second), problem.shape(result))
    epilogue = problem.epilogue
    zeros = ((epilogue.zero_a, shapes[0]), (epilogue.zero_b, shapes[1]))
    return (
        *(operand.shape(shapes[2]) for operand in epilogue.operands),
        *(zero.shape(shape) for zero, shape in zeros if zero is not None),
    )


def _constants(sizes: tuple[Expr, ...]) -> tuple[int, ...]:
    return tuple([constant(size, "a reference") for size in sizes])


def _check_shapes(problem: Problem, operands: Operands) -> None:
    first, second = operand_shapes(problem)
    expected = [("a", operands.a, first), ("b", operands.b, second)]
    if operands.bias is not None:
        expected.append(("bias", operands.bias, _constants((problem.bias_extent,))))
    if operands.old is not None:
        expected.append(("old", operands.old, result_shape(problem)))
    for name, array, shape in expected:
        if array.shape != shape:
            raise IllegalProblem(f"operand {name} of this problem has shape {shape}; got {array.shape}; reshape it")
    if operands.beta != 0 and operands.old is None:
        raise IllegalProblem(f"beta other than 0 reads the old result; got beta={operands.beta} without it; pass `old`")


def _converted(operands: Operands, arithmetic: Arithmetic, length: int) -> Operands:
    if arithmetic is Arithmetic.FP64:
        return _mapped(operands, lambda array: array.astype(np.float64))
    exact = replace(_mapped(operands, _integers), alpha=_integer(operands.alpha), beta=_integer(operands.beta))
    largest = _largest(exact.a) * _largest(exact.b) * max(length, 1)
    if largest < EXACT_IN_FP64:  # every sum is an integer that fp64 holds, and fp64 products are fast
        return replace(exact, a=exact.a.astype(np.float64), b=exact.b.astype(np.float64))
    if largest >= 2**63:
        raise IllegalProblem(f"exact sums must fit 64 bits; operands allow {largest}; use smaller integers")
    return exact


def _mapped(operands: Operands, convert: Callable[[Array], Array]) -> Operands:
    def optional(array: Array | None) -> Array | None:
        return None if array is None else convert(array)

    return replace(
        operands,
        a=convert(operands.a),
        b=convert(operands.b),
        bias=optional(operands.bias),
        old=optional(operands.old) if operands.beta != 0 else None,
    )


def _magnitudes(operands: Operands) -> Operands:
    positive = _mapped(operands, lambda array: np.abs(array.astype(np.float64)))
    return replace(positive, alpha=abs(operands.alpha), beta=abs(operands.beta))


def _integers(array: Array) -> Array:
    whole = array.astype(np.int64)
    if not np.array_equal(whole.astype(np.float64), array.astype(np.float64)):
        raise IllegalProblem("exact arithmetic needs integers; an operand holds fractions; round it or use fp64")
    return whole


def _integer(factor: float) -> int:
    if factor != int(factor):
        raise IllegalProblem(f"exact arithmetic needs integer factors; got {factor}; use an integer or fp64")
    return int(factor)


def _largest(array: Array) -> int:
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def _total(problem: Problem, operands: Operands, arithmetic: Arithmetic) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        products = _products(problem, operands)
        total = (products.astype(np.int64) if arithmetic is Arithmetic.EXACT else products) * operands.alpha
        if operands.old is not None:
            total = total + operands.old * operands.beta
        if operands.bias is not None:
            total = total + placed_bias(problem, operands.bias)
    return total


def placed_bias(problem: Problem, bias: Array) -> Array:
    """The bias as it is broadcast over the result."""
    if isinstance(problem, Gemm):
        return bias if problem.bias_axis is BiasAxis.N else bias[:, None]
    return bias.reshape(-1, *(1,) * problem.rank)


def _products(problem: Problem, operands: Operands) -> Array:
    if isinstance(problem, Gemm):
        return np.matmul(operands.a, operands.b)
    sizes = _Sizes.of(problem)
    if problem.direction is Direction.FWD:
        return _forward(sizes, operands.a, operands.b)
    if problem.direction is Direction.BWD_D:
        return _backward_data(sizes, operands.a, operands.b)
    return _backward_weights(sizes, operands.a, operands.b)


class _Tap(NamedTuple):
    """One kernel tap: its place and, per dimension, the outputs that see it inside the input."""

    place: tuple[int, ...]
    outputs: tuple[Span, ...]
    inputs: tuple[slice, ...]

    @property
    def boxes(self) -> tuple[slice, ...]:
        """The outputs as slices."""
        return tuple(slice(span.begin, span.end) for span in self.outputs)

    @property
    def is_empty(self) -> bool:
        """True if no output sees the tap inside the input."""
        return any(span.size == 0 for span in self.outputs)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The constant sizes of a convolution."""

    batch: int
    groups: int
    inputs: int  # channels of a group
    outputs: int
    in_spatial: tuple[int, ...]
    out_spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    windows: tuple[Window, ...]

    @staticmethod
    def of(conv: Conv) -> _Sizes:
        """The sizes; IllegalProblem if symbolic."""
        batch, groups, inputs, outputs = _constants(
            (conv.batch, conv.groups, conv.channels_per_group, conv.outputs_per_group)
        )
        spatial = _constants(conv.in_spatial), _constants(conv.out_spatial)
        return _Sizes(batch, groups, inputs, outputs, *spatial, conv.kernel, conv.windows)

    def taps(self) -> Iterator[_Tap]:
        """All taps of the kernel."""
        for index in itertools.product(*map(range, self.kernel)):
            columns = zip(index, self.in_spatial, self.out_spatial, self.windows, strict=True)
            spans = tuple([tap_outputs(tap, extent, outputs, window) for tap, extent, outputs, window in columns])
            slices = tuple(map(_input_slice, index, spans, self.windows))
            yield _Tap(index, spans, slices)

    def chunks(self, row: int) -> Iterator[slice]:
        """Slices of the batch such that so many elements per image make a chunk of bounded size."""
        step = max(1, CHUNK_ELEMENTS // max(row, 1))
        return (slice(begin, min(begin + step, self.batch)) for begin in range(0, self.batch, step))

    def src(self, array: Array) -> Array:
        """The src as (groups, channels of a group, n, *spatial)."""
        return _by_group(array, self.groups, self.inputs)

    def dst(self, array: Array) -> Array:
        """The dst as (groups, channels of a group, n, *spatial)."""
        return _by_group(array, self.groups, self.outputs)

    def wei(self, array: Array) -> Array:
        """The weights as (groups, outputs, inputs, *kernel)."""
        return array.reshape(self.groups, self.outputs, self.inputs, *self.kernel)


def _by_group(array: Array, groups: int, channels: int) -> Array:
    grouped = array.reshape(array.shape[0], groups, channels, *array.shape[2:])
    return np.moveaxis(grouped, 0, 2)


def _by_image(array: Array) -> Array:
    """The inverse of _by_group: (n, channels, *spatial)."""
    moved = np.moveaxis(array, 2, 0)
    return moved.reshape(moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:])


def _input_slice(tap: int, outputs: Span, window: Window) -> slice:
    if outputs.size == 0:
        return slice(0, 0)
    begin = outputs.begin * window.stride - window.pad_begin + tap * window.dilation
    return slice(begin, begin + (outputs.size - 1) * window.stride + 1, window.stride)


def _forward(sizes: _Sizes, src: Array, wei: Array) -> Array:
    """dst[n, o, y] = sum over taps k and channels i of wei[o, i, k] * src[n, i, y*stride - pad + k*dilation]."""
    x, w = sizes.src(src), sizes.wei(wei)
    y = np.zeros((sizes.groups, sizes.outputs, sizes.batch, *sizes.out_spatial), x.dtype)
    for tap in sizes.taps():
        factor = w[(..., *tap.place)]
        _add_zero_products(y, factor, _outside(sizes, tap))
        if not tap.is_empty:
            for images in sizes.chunks(sizes.groups * sizes.inputs * math.prod(sizes.out_spatial)):
                y[(slice(None), slice(None), images, *tap.boxes)] += _mix(factor, x[:, :, images][(..., *tap.inputs)])
    return _by_image(y)


def _backward_data(sizes: _Sizes, dst: Array, wei: Array) -> Array:
    """src[n, i, x] = sum over o and (y, k) with y*stride - pad + k*dilation = x of wei[o, i, k] * dst[n, o, y]."""
    y, w = sizes.dst(dst), sizes.wei(wei)
    x = np.zeros((sizes.groups, sizes.inputs, sizes.batch, *sizes.in_spatial), y.dtype)
    for tap in sizes.taps():
        factor = np.swapaxes(w[(..., *tap.place)], 1, 2)
        _add_zero_products(x, factor, _beyond(sizes, tap))
        if not tap.is_empty:
            for images in sizes.chunks(sizes.groups * sizes.outputs * math.prod(sizes.out_spatial)):
                x[(slice(None), slice(None), images, *tap.inputs)] += _mix(factor, y[:, :, images][(..., *tap.boxes)])
    return _by_image(x)


def _backward_weights(sizes: _Sizes, src: Array, dst: Array) -> Array:
    """wei[o, i, k] = sum over n and outputs y of dst[n, o, y] * src[n, i, y*stride - pad + k*dilation]."""
    x, y = sizes.src(src), sizes.dst(dst)
    w = np.zeros((sizes.groups, sizes.outputs, sizes.inputs, *sizes.kernel), x.dtype)
    finite = bool(np.isfinite(y).all())
    for tap in sizes.taps():
        if not finite:
            zeros = 0 * y[..., _outside(sizes, tap)]
            w[(..., *tap.place)] += zeros.sum(axis=(2, 3))[..., None]
        if not tap.is_empty:
            for images in sizes.chunks(sizes.groups * (sizes.inputs + sizes.outputs) * math.prod(sizes.out_spatial)):
                gradient, values = y[:, :, images][(..., *tap.boxes)], x[:, :, images][(..., *tap.inputs)]
                w[(..., *tap.place)] += _correlate(gradient, values)
    return w.reshape(sizes.groups * sizes.outputs, sizes.inputs, *sizes.kernel)


def _mix(factor: Array, values: Array) -> Array:
    """Sum over c of factor[g, r, c] * values[g, c, ...]."""
    groups, rows, columns = factor.shape
    if columns == 1:
        return factor.reshape(groups, rows, *(1,) * (values.ndim - 2)) * values
    flat = np.matmul(factor, values.reshape(groups, columns, math.prod(values.shape[2:])))
    return flat.reshape(groups, rows, *values.shape[2:])


def _correlate(left: Array, right: Array) -> Array:
    """Sum over all but the two leading axes of left[g, r, ...] * right[g, c, ...], as [g, r, c]."""
    groups, rows, columns = left.shape[0], left.shape[1], right.shape[1]
    if rows == columns == 1:
        return (left * right).sum(axis=tuple(range(2, left.ndim)))[..., None]
    length = math.prod(left.shape[2:])
    transposed = np.swapaxes(right.reshape(groups, columns, length), 1, 2)
    return np.matmul(left.reshape(groups, rows, length), transposed)


def _add_zero_products(target: Array, factor: Array, where: Array | None) -> None:
    """Adds 0 * factor, summed over its last axis, at the positions of the mask: NaN for weights that are not finite."""
    if np.isfinite(factor).all() or where is None:
        return
    target[..., where] += (0 * factor).sum(axis=2)[:, :, None, None]


def _outside(sizes: _Sizes, tap: _Tap) -> Array:
    """Mask over the outputs for which the tap lies in the padding."""
    mask = np.ones(sizes.out_spatial, dtype=bool)
    mask[tap.boxes] = tap.is_empty
    return mask


def _beyond(sizes: _Sizes, tap: _Tap) -> Array:
    """Mask over the inputs that the tap would join to an output beyond dst."""
    mask = np.ones(sizes.in_spatial, dtype=bool)
    for dim, (index, extent, window) in enumerate(zip(tap.place, sizes.in_spatial, sizes.windows, strict=True)):
        positions = np.arange(extent) + window.pad_begin - index * window.dilation
        mask &= (positions % window.stride == 0).reshape([-1 if other == dim else 1 for other in range(mask.ndim)])
    if not tap.is_empty:
        mask[tap.inputs] = False
    return mask
