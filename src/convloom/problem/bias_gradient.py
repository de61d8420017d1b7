"""The gradient of a convolution by its bias, as a convolution's weight gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Direction, TensorSpec
from convloom.problem.layout import dense, plain
from convloom.problem.reference import Operands, Problem, operand_shapes, result_shape


def bias_gradient_problem(conv: Conv) -> Conv:
    """The sum of dst over images and positions, channel by channel: the weights of a 1x1 window over ones.

    Its src (n, 1, *outputs) is a single one that every index reaches, its result (oc, 1, ..) lies dense. So every plan,
    every division of sums and `deterministic` serve it too. IllegalProblem for a problem without a bias gradient.
    """
    if conv.bias_grad is None:
        raise IllegalProblem("the problem gives no bias gradient; got bias_grad=None; build it with its element type")
    rank = conv.rank
    ones = (1,) * rank
    shape = (conv.out_channels, *[1] * (rank + 1))
    return Conv(
        direction=Direction.BWD_W,
        batch=conv.batch,
        in_channels=1,  # pyright: ignore[reportArgumentType] - sizes may be ints where a record is built
        out_channels=conv.out_channels,
        groups=1,  # pyright: ignore[reportArgumentType]
        in_spatial=conv.out_spatial,
        out_spatial=conv.out_spatial,
        kernel=ones,
        stride=ones,
        dilation=ones,
        pad_begin=(0,) * rank,
        src=TensorSpec(conv.dst.dtype, plain((0,) * (rank + 2))),
        wei=TensorSpec(conv.bias_grad, dense(shape)),
        dst=conv.dst,
        scaling=conv.scaling,
    )


def gradient_operands(conv: Conv, operands: Operands) -> Operands:
    """The operands of `bias_gradient_problem` in a check of a convolution."""
    problem = bias_gradient_problem(conv)
    ones = np.ones(operand_shapes(problem)[0], conv.dst.dtype.numpy)
    old = old_gradient(conv) if conv.scaling.beta else None
    return Operands(ones, operands.b, None, old, operands.alpha, operands.beta)


def old_gradient(conv: Problem) -> NDArray[Any] | None:
    """What a check finds in the array of the bias gradient before the call: small integers."""
    if not isinstance(conv, Conv) or conv.bias_grad is None:
        return None
    problem = bias_gradient_problem(conv)
    shape = result_shape(problem)
    return (np.arange(math.prod(shape)) % 15 - 7).reshape(shape).astype(problem.wei.dtype.numpy)
