"""ONNX nodes Conv, ConvTranspose, Gemm and MatMul as problems over arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import DType, dtype_of_numpy
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.expr import Expr, as_expr
from convloom.frontend.onnx_network import OnnxNode
from convloom.frontend.onnx_windows import Window, conv_transpose_windows, conv_windows
from convloom.problem.conv import Conv, Direction, Scaling, TensorSpec
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.layout import dense, plain
from convloom.problem.reference import Operands

Array = NDArray[Any]
Inputs = Sequence[Array | None]


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node as one call of a kernel: the problem, the values of its operands, and the shape of the node's output.

    The shape differs from the problem's result only for 1-D matrix operands.
    """

    problem: Conv | Gemm
    operands: Operands
    shape: tuple[int, ...]


def node_call(node: OnnxNode, inputs: Inputs) -> NodeCall:
    """The call that computes a node from its input arrays (None = left out).

    Raises NotYetSupported for another operator, IllegalProblem for attributes or shapes that break
    the ONNX specification.
    """
    build = _BUILDERS.get(node.operator)
    if build is None:
        raise NotYetSupported(
            f"operators must be one of {', '.join(_BUILDERS)}; got {node.operator}; leave the node out"
        )
    required, optional = (inputs[0], inputs[1]), inputs[2] if len(inputs) > 2 else None
    x, w = required
    if x is None or w is None:
        raise IllegalProblem(
            f"{node.operator} needs its first two inputs; node {node.name} leaves one out; correct the node"
        )
    return build(x, w, optional, node.attributes)


def _conv(x: Array, w: Array, bias: Array | None, attributes: Mapping[str, Any]) -> NodeCall:
    _check_ranks("Conv", x, w)
    windows = conv_windows(x.shape[2:], w.shape[2:], attributes)
    shape = (x.shape[0], w.shape[0], *[window.size_out for window in windows])
    problem = Conv(
        direction=Direction.FWD,
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=w.shape[0],
        in_spatial=_sizes(x.shape[2:]),
        out_spatial=_sizes(shape[2:]),
        **_window_fields(windows, attributes),
        src=_spec(x),
        wei=_spec(w),
        dst=_result_spec(x, shape),
        bias=_bias_type(bias),
    )
    return NodeCall(problem, Operands(x, w, bias), shape)


def _conv_transpose(x: Array, w: Array, bias: Array | None, attributes: Mapping[str, Any]) -> NodeCall:
    """Backward by data: the node's input is `dst`, its output `src`; weights (C, M/group, ..) are `wei` unchanged."""
    _check_ranks("ConvTranspose", x, w)
    windows = conv_transpose_windows(x.shape[2:], w.shape[2:], attributes)
    channels = w.shape[1] * attributes.get("group", 1)
    shape = (x.shape[0], channels, *[window.size_out for window in windows])
    problem = Conv(
        direction=Direction.BWD_D,
        batch=x.shape[0],
        in_channels=channels,
        out_channels=w.shape[0],
        in_spatial=_sizes(shape[2:]),
        out_spatial=_sizes(x.shape[2:]),
        **_window_fields(windows, attributes),
        src=_result_spec(x, shape),
        wei=_spec(w),
        dst=_spec(x),
        bias=_bias_type(bias),
    )
    return NodeCall(problem, Operands(x, w, bias), shape)


def _gemm(a: Array, b: Array, c: Array | None, attributes: Mapping[str, Any]) -> NodeCall:
    """The node's alpha * A' * B' + beta * C: a plain row or column C is the bias, any other is the old output."""
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
    shape = (a.shape[0], b.shape[1])
    if c is None or beta == 0.0:
        return _product(Operands(a, b, alpha=alpha), shape)
    axis = _bias_axis(c.shape, shape)
    if axis is not None and alpha == beta == 1.0:
        return _product(Operands(a, b, bias=c.reshape(-1)), shape, bias_axis=axis)
    return _product(Operands(a, b, old=_broadcast_copy(c, shape), alpha=alpha, beta=beta), shape)


def _matmul(a: Array, b: Array, _: Array | None, __: Mapping[str, Any]) -> NodeCall:
    """NumPy's matmul: batches broadcast (stride 0 where an operand lacks one), a 1-D operand is a row or a column."""
    if a.ndim == 0 or b.ndim == 0:
        raise IllegalProblem(
            f"MatMul operands have at least one dimension; got shapes {a.shape} and {b.shape}; reshape them"
        )
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    batch = _broadcast_shape(rows.shape[:-2], columns.shape[:-2])
    rows = np.broadcast_to(rows, batch + rows.shape[-2:])
    columns = np.broadcast_to(columns, batch + columns.shape[-2:])
    shape = batch + rows.shape[-2:-1] * (a.ndim > 1) + columns.shape[-1:] * (b.ndim > 1)
    return _product(Operands(rows, columns), shape)


_BUILDERS: dict[str, Callable[[Array, Array, Array | None, Mapping[str, Any]], NodeCall]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}


def _product(operands: Operands, shape: tuple[int, ...], bias_axis: BiasAxis = BiasAxis.N) -> NodeCall:
    a, b = operands.a, operands.b
    if a.shape[-1] != b.shape[-2]:
        raise IllegalProblem(
            f"the inner sizes of a product must be equal; got {a.shape} and {b.shape}; transpose or reshape"
        )
    result = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    problem = Gemm(
        batch=_sizes(result[:-2]),
        m=as_expr(result[-2]),
        n=as_expr(result[-1]),
        k=as_expr(a.shape[-1]),
        a=_spec(a),
        b=_spec(b),
        c=_result_spec(a, result),
        bias=_bias_type(operands.bias),
        scaling=Scaling(alpha=operands.alpha != 1.0, beta=operands.beta != 0.0),
        bias_axis=bias_axis,
    )
    return NodeCall(problem, operands, shape)


def _check_ranks(operator: str, x: Array, w: Array) -> None:
    if x.ndim != w.ndim or x.ndim < 3:
        raise IllegalProblem(
            f"{operator} needs input and weights of one rank >= 3; got shapes {x.shape} and {w.shape}; reshape them"
        )


def _window_fields(windows: Sequence[Window], attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "groups": attributes.get("group", 1),
        "kernel": tuple(window.kernel for window in windows),
        "stride": tuple(window.stride for window in windows),
        "dilation": tuple(window.dilation for window in windows),
        "pad_begin": tuple(window.pad_begin for window in windows),
    }


def _sizes(extents: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(map(as_expr, extents))


def _spec(array: Array) -> TensorSpec:
    return TensorSpec(dtype_of_numpy(array.dtype), plain([stride // array.itemsize for stride in array.strides]))


def _result_spec(like: Array, shape: Sequence[int]) -> TensorSpec:
    return TensorSpec(dtype_of_numpy(like.dtype), dense(shape))


def _bias_type(bias: Array | None) -> DType | None:
    return None if bias is None else dtype_of_numpy(bias.dtype)


def _bias_axis(given: tuple[int, ...], shape: tuple[int, int]) -> BiasAxis | None:
    """The axis along which C runs whole while the other is left out or 1; None if C is anything else."""
    rows, columns = (1,) * (2 - len(given)) + given if len(given) <= 2 else (0, 0)
    if (rows, columns) == (1, shape[1]):
        return BiasAxis.N
    if (rows, columns) == (shape[0], 1):
        return BiasAxis.M
    return None


def _broadcast_copy(c: Array, shape: tuple[int, int]) -> Array:
    try:
        return np.array(np.broadcast_to(c, shape), order="C")
    except ValueError:
        raise IllegalProblem(f"Gemm's C must broadcast to {shape}; got shape {c.shape}; reshape it") from None


def _broadcast_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise IllegalProblem(
            f"batch sizes must be equal or 1; got {first} and {second}; reshape the operands"
        ) from None
