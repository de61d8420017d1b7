"""Which positions of a convolution's tensors take part in some product, and the bytes that a problem must touch."""

from __future__ import annotations

import math

import numpy as np

from convloom.problem.conv import Conv, Role, TensorSpec, constant
from convloom.problem.gemm import Gemm
from convloom.problem.geometry import Span, tap_outputs
from convloom.problem.layout_memory import buffer_size


def reached_positions(conv: Conv, role: Role, dim: int) -> int:
    """Positions of one spatial dimension of a tensor that some (output, tap) pair inside the input reaches."""
    extent, outputs = (constant(size[dim], "a count") for size in (conv.in_spatial, conv.out_spatial))
    window = conv.windows[dim]
    spans = [tap_outputs(tap, extent, outputs, window) for tap in range(window.kernel)]
    if role is Role.WEI:
        return sum(span.size > 0 for span in spans)
    if role is Role.DST:
        return _marked(outputs, [(span, 1, 0) for span in spans])
    shifts = [tap * window.dilation - window.pad_begin for tap in range(window.kernel)]
    return _marked(extent, [(span, window.stride, shift) for span, shift in zip(spans, shifts, strict=True)])


def _marked(extent: int, runs: list[tuple[Span, int, int]]) -> int:
    """How many of 0 .. extent-1 are o*step + shift for an o of one of the spans."""
    marks = np.zeros(extent, dtype=bool)
    for span, step, shift in runs:
        if span.size:
            begin = span.begin * step + shift
            marks[begin : begin + (span.size - 1) * step + 1 : step] = True
    return int(marks.sum())


def touched_bytes(problem: Conv | Gemm) -> int:
    """Bytes that every implementation must move: each used element of the operands once, the whole result once.

    Input that a stride skips does not count; elements that indices share count once. IllegalProblem for symbolic sizes.
    """
    if isinstance(problem, Gemm):
        shapes = (problem.a_shape, problem.b_shape, problem.c_shape)
        specs = (problem.a, problem.b, problem.c)
        return sum(
            _bytes(spec, tuple([constant(extent, "a count of bytes") for extent in shape]))
            for spec, shape in zip(specs, shapes, strict=True)
        )
    first, second, result = problem.roles
    used = sum(_bytes(problem.spec(role), _shape(problem, role), _used(problem, role)) for role in (first, second))
    return used + _bytes(problem.spec(result), _shape(problem, result))


def _shape(conv: Conv, role: Role) -> tuple[int, ...]:
    return tuple([constant(extent, "a count of bytes") for extent in conv.shape(role)])


def _used(conv: Conv, role: Role) -> int:
    """Elements of an operand that some product reads."""
    return math.prod(_shape(conv, role)[:2]) * math.prod(reached_positions(conv, role, dim) for dim in range(conv.rank))


def _bytes(spec: TensorSpec, shape: tuple[int, ...], used: int | None = None) -> int:
    elements = math.prod(shape) if used is None else used
    return min(elements, buffer_size(spec.layout, shape)) * spec.dtype.nbytes
