"""One row of a table of convolutions, and the check that every row goes through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

import convloom
from convloom import Conv, Direction, Gemm, Scaling
from convloom.dtypes import DType, dtype_named
from convloom.frontend.device_run import run_on_device
from convloom.frontend.problem_check import judge
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.data import DataKind, make_operands
from convloom.problem.layout import dense
from convloom.problem.reference import Arithmetic, Operands, operand_shapes, reference, result_shape
from tests.cases.memory import Guarded, channels_last, element_strides, guarded

Array = NDArray[Any]


class Op(Enum):
    """What is called."""

    CONV = "conv"
    TRANSPOSE = "conv_transpose"
    INPUT_GRAD = "conv_input_grad"
    WEIGHT_GRAD = "conv_weight_grad"


_DIRECTIONS = {
    Op.CONV: Direction.FWD,
    Op.TRANSPOSE: Direction.BWD_D,
    Op.INPUT_GRAD: Direction.BWD_D,
    Op.WEIGHT_GRAD: Direction.BWD_W,
}


@dataclass(frozen=True)
class ConvCase:
    """A convolution with n images, c input and k output channels.

    `input` and `output` are spatial extents of the forward convolution, of a transposed one those of its own input and
    output. `output` is not an argument of any call: it is what must come out. `types` are those of x, w and y.
    """

    name: str
    op: Op
    n: int
    c: int
    k: int
    input: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    output_padding: Any = 0
    types: tuple[str, str, str] = ("f32", "f32", "f32")
    last: bool = False  # all three tensors with the channels last
    bias: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def dtypes(self) -> tuple[DType, DType, DType]:
        x, w, y = map(dtype_named, self.types)
        return x, w, y

    @property
    def weights(self) -> tuple[int, ...]:
        if self.op is Op.TRANSPOSE:
            return (self.c, self.k // self.groups, *self.kernel)
        return (self.k, self.c // self.groups, *self.kernel)

    def problem(self, scaling: Scaling = Scaling()) -> Conv:  # noqa: B008 (a frozen record)
        shapes = (self.n, self.c, *self.input), self.weights, (self.n, self.k, *self.output)
        order = channels_last(len(self.kernel) + 2) if self.last else None
        arguments = {
            "batch": self.n,
            "in_channels": self.c,
            "out_channels": self.k,
            "in_spatial": self.input,
            "kernel": self.kernel,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "dtypes": self.dtypes,
            "layouts": tuple(dense(shape, order) for shape in shapes),
            "bias": None if self.bias is None else dtype_named(self.bias),
            "scaling": scaling,
        }
        if self.op is Op.TRANSPOSE:
            return conv_transpose_problem(output_padding=self.output_padding, **arguments)
        return conv_problem(direction=_DIRECTIONS[self.op], out_spatial=self.output, **arguments)

    def call(self, a: Array, b: Array, bias: Array | None = None, **options: Any) -> Array:
        """The public function, with `a` and `b` in its own order of operands."""
        geometry = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        if self.op is Op.CONV:
            return convloom.conv(a, b, bias, **geometry, **options)
        if self.op is Op.TRANSPOSE:
            return convloom.conv_transpose(a, b, bias, output_padding=self.output_padding, **geometry, **options)
        if self.op is Op.INPUT_GRAD:
            return convloom.conv_input_grad((self.n, self.c, *self.input), b, a, **geometry, **options)
        return convloom.conv_weight_grad(a, self.weights, b, **geometry, **options)


def check(case: ConvCase, device: str = "cpu", plan: str | None = None) -> None:
    """Integers are exact and reals within the bound; nothing else is written; the public function agrees bit by bit."""
    problem = case.problem()
    produced = (case.n, case.k, *case.output) if case.op in (Op.CONV, Op.TRANSPOSE) else None
    assert produced in (None, result_shape(problem))
    kernel = convloom.compile(problem, device, plan)
    for kind in DataKind:
        operands = make_operands(problem, kind, seed=len(case.name))
        run = run_on_device(kernel, operands)
        outcome = judge(problem, operands, run, kind)
        assert outcome.passed, f"{kind.value}: {outcome.reason}"
        if device == "cpu":
            assert_same_bits(call_guarded(case, operands, plan=plan), run.result)


def call_guarded(case: ConvCase, operands: Operands, poison: int = 0xFF, **options: Any) -> Array:
    """The result of the public function on poisoned memory, into a poisoned result."""
    problem = case.problem()
    order = channels_last(len(case.kernel) + 2) if case.last else None

    def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(stride.value for stride in dense(shape, order).strides)

    shapes = operand_shapes(problem)
    a = guarded(operands.a, strides(shapes[0]), poison)
    b = guarded(operands.b, strides(shapes[1]), poison)
    bias = None if operands.bias is None else guarded(operands.bias, poison=poison)
    shape = result_shape(problem)
    result = Guarded(shape, problem.spec(problem.result).dtype.numpy, strides(shape), poison=poison)
    returned = case.call(a.array, b.array, None if bias is None else bias.array, out=result.array, **options)
    assert returned is result.array
    assert all(memory.unchanged for memory in (a, b, bias) if memory is not None)
    assert result.surroundings_unchanged
    return returned.copy()


def assert_same_bits(given: Array, expected: Array) -> None:
    assert given.dtype == expected.dtype
    assert given.shape == expected.shape
    assert given.tobytes() == expected.tobytes()


def exact(case: ConvCase, a: Array, b: Array, bias: Array | None = None) -> Array:
    """The reference on integers, as int64."""
    return reference(case.problem(), Operands(a, b, bias), Arithmetic.EXACT).value


def integers(shape: tuple[int, ...], dtype: Any = np.float32, limit: int = 4, seed: int = 0) -> Array:
    """Small integers, zero seldom among them."""
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(dtype)


def strides_of(array: Array) -> tuple[int, ...]:
    """Element strides, those of dimensions of extent 1 left out: they say nothing."""
    pairs = zip(array.shape, element_strides(array), strict=True)
    return tuple(stride for extent, stride in pairs if extent > 1)


def run(problem: Conv | Gemm, operands: Operands, device: str) -> Array:
    """The result on a device, from memory with poison around every tensor and in the result."""
    done = run_on_device(convloom.compile(problem, device), operands)
    assert done.overrun == ()
    return done.result
