"""Convolutions on arrays: forward, transposed, and the two gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from convloom.dtypes import S32, DType
from convloom.errors import IllegalProblem
from convloom.expr import Expr, const
from convloom.frontend.arrays import family_of
from convloom.frontend.call import Described, Operation, Options, check_bias_shape, layout_of, result_dtype, run
from convloom.frontend.tensor import Tensor
from convloom.problem.checks import check_groups, check_result_layout
from convloom.problem.conv import Conv, Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import Padding, PerDimension, conv_problem, conv_transpose_problem
from convloom.problem.given import integer, integers
from convloom.problem.layout import Layout

_RANKS = (3, 4, 5)


def conv(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: SupportsIndex = 1,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    accumulate: bool = False,
    deterministic: bool = False,
    max_workspace: int | None = None,
    device: str | None = None,
    plan: str | None = None,
    stream: Any = None,
    tf32: bool = False,
) -> Any:
    """The convolution alpha * (x * w) + beta * out + bias, as torch.nn.functional.conv1d, conv2d, conv3d.

    Shapes: x (n, c, *spatial), w (k, c/groups, *kernel), bias (k,), result (n, k, *outputs) with outputs =
    (in + pads - dilation*(kernel-1) - 1) // stride + 1; one to three spatial dimensions. `padding` is an integer, one
    per dimension, one (begin, end) pair per dimension, 'same' (stride 1) or 'valid'; negative pads crop; dilation 1 is
    dense. x and w may have any strides, zero and negative ones included; nothing is copied.
    The result is `out` (any strides without overlap, any element type that fits), else a new array of the kind of x:
    dense in the order of x's strides, of x's element type, or s32 for 8-bit integers. `beta` = 0 does not read out;
    `accumulate` is beta = 1. `deterministic`: equal calls give equal bits, at a small cost. `max_workspace`: most bytes
    of scratch memory; 0 always works, None leaves it to the planner. `device`: where the arrays must lie. `stream`:
    None takes the current one of the arrays' framework. `tf32`: f32 factors may lose their lower 13 bits where that is
    faster; False keeps every bit. On a GPU the call returns at once. IllegalProblem (a ValueError) names rule, value
    and remedy; IllegalType (also a TypeError) concerns types.
    """
    options = Options(out, stream, alpha, beta, accumulate, deterministic, max_workspace, device, plan, tf32)
    return run(_CONV, x, w, bias, (stride, padding, dilation, groups), options)


def conv_transpose(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: PerDimension = 1,
    padding: Padding = 0,
    output_padding: PerDimension = 0,
    groups: SupportsIndex = 1,
    dilation: PerDimension = 1,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    accumulate: bool = False,
    deterministic: bool = False,
    max_workspace: int | None = None,
    device: str | None = None,
    plan: str | None = None,
    stream: Any = None,
    tf32: bool = False,
) -> Any:
    """The transposed convolution, as torch.nn.functional.conv_transpose1d, 2d, 3d (the order of arguments included).

    Shapes: x (n, c, *spatial), w (c, k/groups, *kernel), bias (k,), result (n, k, *outputs) with outputs =
    (in-1)*stride - pads + dilation*(kernel-1) + output_padding + 1. Everything else as in `conv`.
    """
    options = Options(out, stream, alpha, beta, accumulate, deterministic, max_workspace, device, plan, tf32)
    return run(_TRANSPOSE, x, w, bias, (stride, padding, output_padding, groups, dilation), options)


def conv_input_grad(
    input_size: Sequence[SupportsIndex],
    w: Any,
    grad_out: Any,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: SupportsIndex = 1,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    accumulate: bool = False,
    deterministic: bool = False,
    max_workspace: int | None = None,
    device: str | None = None,
    plan: str | None = None,
    stream: Any = None,
    tf32: bool = False,
) -> Any:
    """The gradient of a convolution by its input, as torch.nn.grad.conv2d_input and its kin.

    `input_size` is the input's shape (n, c, *spatial), or its spatial sizes alone. Shapes: w (k, c/groups, *kernel),
    grad_out (n, k, *outputs), result (n, c, *spatial). Everything else as in `conv`; a new result follows the order of
    grad_out.
    """
    options = Options(out, stream, alpha, beta, accumulate, deterministic, max_workspace, device, plan, tf32)
    return run(_INPUT_GRAD, grad_out, w, None, (input_size, stride, padding, dilation, groups), options)


def conv_weight_grad(
    x: Any,
    weight_shape: Sequence[SupportsIndex],
    grad_out: Any,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: SupportsIndex = 1,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    accumulate: bool = False,
    deterministic: bool = False,
    max_workspace: int | None = None,
    device: str | None = None,
    plan: str | None = None,
    stream: Any = None,
    tf32: bool = False,
    bias_grad: Any = None,
) -> Any:
    """The gradient of a convolution by its weights, as torch.nn.grad.conv2d_weight and its kin.

    `weight_shape` is (k, c/groups, *kernel). Shapes: x (n, c, *spatial), grad_out (n, k, *outputs), result as
    `weight_shape`. `bias_grad`: True, or an array of shape (k,) to write to, gives the gradient by the bias too: the
    sums of grad_out per channel, of its element type (s32 for 8-bit integers) unless the array has another; the result
    is then the pair (weight gradient, bias gradient), and alpha and beta hold for both. Everything else as in `conv`.
    """
    options = Options(out, stream, alpha, beta, accumulate, deterministic, max_workspace, device, plan, tf32)
    wanted = None if bias_grad is None or bias_grad is False else _gradient_type(bias_grad, grad_out)
    arguments = (weight_shape, stride, padding, dilation, groups, wanted)
    return run(_WEIGHT_GRAD, x, grad_out, None, arguments, options, bias_grad)


# --- from arrays to problems ----------------------------------------------------------------------------------------


def _build_conv(arrays: Described, arguments: tuple[Any, ...], scaling: Scaling) -> Conv:
    x, w, bias, out = arrays
    stride, padding, dilation, given_groups = arguments
    groups = integer("groups", given_groups)
    _check_ranks(("x", x.shape), ("w", w.shape))
    check_groups_of(x.shape[1], w.shape[0], groups)
    _check_weights(w.shape, x.shape[1], groups)
    problem = conv_problem(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=w.shape[0],
        in_spatial=x.shape[2:],
        kernel=w.shape[2:],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        dtypes=(x.dtype, w.dtype, result_dtype(arrays)),
        layouts=(layout_of(x), layout_of(w), None),
        bias=_bias(bias, w.shape[0]),
        scaling=scaling,
    )
    return problem if out is None else replace(problem, dst=_result_spec(out, problem.dst_shape))


def _build_transpose(arrays: Described, arguments: tuple[Any, ...], scaling: Scaling) -> Conv:
    x, w, bias, out = arrays
    stride, padding, output_padding, given_groups, dilation = arguments
    groups = integer("groups", given_groups)
    _check_ranks(("x", x.shape), ("w", w.shape))
    channels = w.shape[1] * groups
    check_groups_of(x.shape[1], channels, groups)
    if w.shape[0] != x.shape[1]:
        raise IllegalProblem(
            f"the weights of a transposed convolution have shape (c, k/groups, *kernel); w has {w.shape[0]} input "
            f"channels, expected {x.shape[1]} as x has; correct the weights"
        )
    problem = conv_transpose_problem(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=channels,
        in_spatial=x.shape[2:],
        kernel=w.shape[2:],
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        dtypes=(x.dtype, w.dtype, result_dtype(arrays)),
        layouts=(layout_of(x), layout_of(w), None),
        bias=_bias(bias, channels),
        scaling=scaling,
    )
    return problem if out is None else replace(problem, src=_result_spec(out, problem.src_shape))


def _build_input_grad(arrays: Described, arguments: tuple[Any, ...], scaling: Scaling) -> Conv:
    grad, w, _, out = arrays
    size, stride, padding, dilation, given_groups = arguments
    groups = integer("groups", given_groups)
    _check_ranks(("grad_out", grad.shape), ("w", w.shape))
    shape = _input_shape(size, grad, w, groups)
    check_groups_of(shape[1], w.shape[0], groups)
    _check_weights(w.shape, shape[1], groups)
    _check_gradient(grad, shape[0], w.shape[0])
    _check_result(out, shape)
    return conv_problem(
        direction=Direction.BWD_D,
        batch=shape[0],
        in_channels=shape[1],
        out_channels=w.shape[0],
        in_spatial=shape[2:],
        out_spatial=grad.shape[2:],
        kernel=w.shape[2:],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        dtypes=(result_dtype(arrays), w.dtype, grad.dtype),
        layouts=(_layout(out), layout_of(w), layout_of(grad)),
        scaling=scaling,
    )


def _build_weight_grad(arrays: Described, arguments: tuple[Any, ...], scaling: Scaling) -> Conv:
    x, grad, _, out = arrays
    given_shape, stride, padding, dilation, given_groups, bias_grad = arguments
    groups = integer("groups", given_groups)
    shape = _shape("weight_shape", given_shape)
    _check_ranks(("x", x.shape), ("weight_shape", shape))
    _check_ranks(("x", x.shape), ("grad_out", grad.shape))
    check_groups_of(x.shape[1], shape[0], groups)
    _check_weights(shape, x.shape[1], groups)
    _check_gradient(grad, x.shape[0], shape[0])
    _check_result(out, shape)
    problem = conv_problem(
        direction=Direction.BWD_W,
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=shape[0],
        in_spatial=x.shape[2:],
        out_spatial=grad.shape[2:],
        kernel=shape[2:],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        dtypes=(x.dtype, result_dtype(arrays), grad.dtype),
        layouts=(layout_of(x), _layout(out), layout_of(grad)),
        scaling=scaling,
    )
    return replace(problem, bias_grad=bias_grad)


_CONV = Operation("conv", ("x", "w", "out"), _build_conv)
_TRANSPOSE = Operation("conv_transpose", ("x", "w", "out"), _build_transpose)
_INPUT_GRAD = Operation("conv_input_grad", ("grad_out", "w", "out"), _build_input_grad)
_WEIGHT_GRAD = Operation("conv_weight_grad", ("x", "grad_out", "out"), _build_weight_grad)


# --- checks ---------------------------------------------------------------------------------------------------------


def _check_ranks(first: tuple[str, tuple[int, ...]], second: tuple[str, tuple[int, ...]]) -> None:
    """IllegalProblem unless both shapes have batch or channels, channels, and one to three spatial dimensions."""
    for name, shape in (first, second):
        if len(shape) not in _RANKS:
            raise IllegalProblem(
                f"{name} has two dimensions for batch and channels and 1 to 3 spatial ones; got shape {shape}; "
                "reshape it"
            )
    if len(first[1]) != len(second[1]):
        raise IllegalProblem(
            f"{first[0]} and {second[0]} must have as many dimensions; got shapes {first[1]} and {second[1]}; "
            "a single image needs a batch dimension of 1"
        )


def check_groups_of(in_channels: int, out_channels: int, groups: int) -> None:
    """IllegalProblem unless groups is positive and divides both channel counts."""
    if groups < 1:
        raise IllegalProblem(
            f"groups must be positive; got {groups}; allowed are common divisors of {in_channels} and {out_channels}"
        )
    check_groups(const(in_channels), const(out_channels), const(groups))


def _check_weights(shape: tuple[int, ...], channels: int, groups: int) -> None:
    if shape[1] * groups == channels:
        return
    fitting = channels // shape[1] if shape[1] and channels % shape[1] == 0 else 0
    hint = f"groups={fitting} would match" if fitting and shape[0] % fitting == 0 else "correct the weights"
    raise IllegalProblem(
        f"weights have shape (k, c/groups, *kernel); got {shape[1]} input channels, expected "
        f"{channels // groups} = {channels} / {groups}; {hint}"
    )


def _check_gradient(grad: Tensor, batch: int, channels: int) -> None:
    for dim, (what, expected) in enumerate((("batch", batch), ("channels", channels))):
        if grad.shape[dim] != expected:
            raise IllegalProblem(
                f"grad_out must have the {what} of the forward result, {expected}; got {grad.shape[dim]} (shape "
                f"{grad.shape}); pass the gradient of that convolution"
            )


def _check_result(out: Tensor | None, shape: tuple[int, ...]) -> None:
    if out is not None and out.shape != shape:
        raise IllegalProblem(f"out must have the result's shape {shape}; got {out.shape}; pass an array of that shape")
    if out is not None:
        check_result_layout("out", layout_of(out), tuple(map(const, shape)))


def _result_spec(out: Tensor, shape: tuple[Expr, ...]) -> TensorSpec:
    _check_result(out, tuple([extent.value for extent in shape]))
    return TensorSpec(out.dtype, layout_of(out))


def _input_shape(size: Any, grad: Tensor, w: Tensor, groups: int) -> tuple[int, ...]:
    shape = _shape("input_size", size)
    if len(shape) == len(w.shape) - 2:
        return (grad.shape[0], w.shape[1] * groups, *shape)
    if len(shape) != len(w.shape):
        raise IllegalProblem(
            f"input_size is (n, c, *spatial) or the spatial sizes of {len(w.shape) - 2} dimensions; got {shape}; "
            "give one of these"
        )
    return shape


def _shape(name: str, given: Any) -> tuple[int, ...]:
    shape = integers(name, given)
    if min(shape, default=0) < 0:
        raise IllegalProblem(f"{name} must hold no negative sizes; got {shape}; give sizes >= 0")
    return shape


def _gradient_type(bias_grad: Any, grad_out: Any) -> DType:
    """The element type of a bias gradient: that of its array, else that of grad_out's sums."""
    if bias_grad is not True:
        return family_of("bias_grad", bias_grad).adapt("bias_grad", bias_grad).dtype
    dtype = family_of("grad_out", grad_out).adapt("grad_out", grad_out).dtype
    return dtype if dtype.is_float else S32


def _layout(out: Tensor | None) -> Layout | None:
    return None if out is None else layout_of(out)


def _bias(bias: Tensor | None, channels: int) -> DType | None:
    if bias is None:
        return None
    check_bias_shape(bias, channels)
    return bias.dtype
