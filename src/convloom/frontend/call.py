"""The way of every operation on arrays: describe the arrays, find or make the kernel, launch it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from convloom.dtypes import S32, DType
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.arrays import family_of
from convloom.frontend.compile import compile
from convloom.frontend.factors import real_factor
from convloom.frontend.kernel import Kernel
from convloom.frontend.repeat import Repeat, remember, signature_of
from convloom.frontend.tensor import Tensor
from convloom.problem.conv import Scaling
from convloom.problem.given import check_kind, integer
from convloom.problem.layout import Layout, plain
from convloom.problem.reference import Problem


class Options(NamedTuple):
    """The keyword arguments that all operations share."""

    out: Any
    stream: Any
    alpha: float
    beta: float
    accumulate: bool
    deterministic: bool
    max_workspace: int | None
    device: str | None
    plan: str | None
    tf32: bool = False


class Described(NamedTuple):
    """The arrays of a call: the two operands, bias and result where they are given."""

    first: Tensor
    second: Tensor
    bias: Tensor | None
    out: Tensor | None


Build: TypeAlias = Callable[[Described, tuple[Any, ...], Scaling], Problem]


class Operation(NamedTuple):
    """An operation: what users call its arrays (first, second, result), and how its arguments become a problem."""

    name: str
    names: tuple[str, str, str]
    build: Build


_FIRST_SETTING = 2  # of the options: behind out and stream
_kernels: dict[Any, Kernel] = {}
_repeats: dict[Any, Repeat] = {}


def run(
    operation: Operation,
    first: Any,
    second: Any,
    bias: Any,
    arguments: tuple[Any, ...],
    options: Options,
    bias_grad: Any = None,
) -> Any:
    """Runs an operation on arrays; a repeated call finds its kernel by the description of arrays and arguments.

    `bias_grad`: True, or the array for it, where the operation gives a bias gradient too: the result is then a pair.
    """
    names, out = operation.names, options.out
    arrays = (first, second) if bias is None else (first, second, bias)
    signature = signature_of(arrays, out) if bias_grad is None else None
    key = _repeat_key(operation, signature, bias, arguments, options)
    found = None if signature is None else _known_repeat(key)
    if found is not None:
        return found(arrays, out, options.stream)
    check_options(options)
    family = family_of(names[0], first)
    tensors = [family.adapt(names[0], first), family_of(names[1], second).adapt(names[1], second)]
    if bias is not None:
        tensors.append(family_of("bias", bias).adapt("bias", bias))
    result = None if out is None else adapted_result(names[2], out)
    alpha, beta = factors(options)
    kernel_key = (
        operation.name,
        *[tensor_key(tensor) for tensor in tensors],
        bias is None,
        None if result is None else tensor_key(result),
        repr(arguments),
        alpha != 1.0,
        beta != 0.0,
        options.device,
        options.plan,
        options.deterministic,
        options.max_workspace,
        options.tf32,
    )
    kernel = _kernels.get(kernel_key)
    if kernel is None:
        described = Described(tensors[0], tensors[1], None if bias is None else tensors[2], result)
        kernel = _find_kernel(operation, described, arguments, options)
        remember(_kernels, kernel_key, kernel)
    stream = family.stream(first) if options.stream is None else options.stream
    every = (names[0], names[1], "bias", "out") if bias is not None else (names[0], names[1], "out")
    returned = kernel.run(family, tensors, out, result, (alpha, beta), stream, every)
    if kernel.bias_gradient is not None:
        given = None if bias_grad is True else bias_grad
        return returned, kernel.bias_gradient.run(family, tensors[1], given, (alpha, beta), stream)
    repeat = None if signature is None else kernel.repeat(family, tensors, out is not None, (alpha, beta), every)
    if repeat is not None:
        remember(_repeats, key, repeat)
    return returned


def _repeat_key(
    operation: Operation, signature: Hashable, bias: Any, arguments: tuple[Any, ...], options: Options
) -> Hashable:
    """All that a call depends on but addresses and stream; types count: True equals 1, yet one may be refused."""
    given = options[_FIRST_SETTING:]
    return operation.name, bias is None, signature, repr(arguments), given, tuple(map(type, given))


def _known_repeat(key: Hashable) -> Repeat | None:
    try:
        return _repeats.get(key)
    except TypeError:  # an option that cannot be hashed is refused by the checks
        return None


def adapted_result(name: str, out: Any) -> Tensor:
    """The description of an array to write to; IllegalProblem if it is read-only."""
    family = family_of(name, out)
    family.check_writable(name, out)
    return family.adapt(name, out)


def tensor_key(tensor: Tensor) -> tuple[Any, ...]:
    """What a kernel depends on."""
    return tensor.shape, tensor.strides, tensor.dtype.name, tensor.device


def factors(options: Options) -> tuple[float, float]:
    """The factors alpha and beta; IllegalProblem for an old result that is not there, or for beta with accumulate."""
    alpha, beta = real_factor("alpha", options.alpha), real_factor("beta", options.beta)
    if options.accumulate is not False:
        if not isinstance(options.accumulate, bool | np.bool_):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IllegalType(f"accumulate must be True or False; got {options.accumulate!r}; give one of them")
        if options.accumulate and beta not in (0.0, 1.0):
            raise IllegalProblem(f"accumulate means beta=1; got accumulate=True and beta={beta}; give one of them")
        beta = 1.0 if options.accumulate else beta
    if beta != 0.0 and options.out is None:
        raise IllegalProblem(f"beta and accumulate need an old result; got beta={beta} and no out; pass out=")
    return alpha, beta


def compiled(problem: Problem, device: str, options: Options) -> Kernel:
    """The kernel of a problem as the options want it."""
    limit = options.max_workspace
    return compile(problem, device, options.plan, deterministic=options.deterministic, max_workspace=limit)


def check_options(options: Options) -> None:
    """IllegalType for options of wrong types; IllegalProblem for a negative workspace."""
    if options.plan is not None:
        check_kind("plan", options.plan, str, "None or a plan's text, as kernel.plan prints it")
    if options.device is not None:
        check_kind("device", options.device, str, "None or the name of a device, as 'cpu'")
    check_kind("deterministic", options.deterministic, bool, "True or False")
    limit = options.max_workspace
    if limit is not None and integer("max_workspace", limit) < 0:
        raise IllegalProblem(f"max_workspace is a number of bytes >= 0; got {limit}; 0 always works")


def _find_kernel(operation: Operation, described: Described, arguments: tuple[Any, ...], options: Options) -> Kernel:
    named = dict(zip((*operation.names[:2], "bias", "out"), described, strict=True))
    device = common_device({name: tensor for name, tensor in named.items() if tensor is not None}, options.device)
    alpha, beta = factors(options)
    problem = operation.build(described, arguments, Scaling(alpha != 1.0, beta != 0.0))
    return compiled(replace(problem, tf32=options.tf32), device, options)


def common_device(tensors: dict[str, Tensor], wanted: str | None) -> str:
    """The device of all tensors; IllegalProblem names two that differ, or the wanted one."""
    (name, first), *others = tensors.items()
    for other, tensor in others:
        if tensor.device != first.device:
            raise IllegalProblem(
                f"all arrays must lie on one device; {name} lies on {first.device}, {other} on {tensor.device}; "
                "move one of them"
            )
    if wanted is None or first.device == ("cuda:0" if wanted == "cuda" else wanted):
        return first.device
    if first.device == "opencl" and wanted.startswith("opencl:"):
        return wanted
    raise IllegalProblem(
        f"kernels run where the arrays lie; got device={wanted!r} and {name} on {first.device}; move the arrays or "
        "leave device out"
    )


def result_dtype(described: Described) -> DType:
    """Element type of a result: that of `out`, else s32 for 8-bit integers, else that of the first operand."""
    if described.out is not None:
        return described.out.dtype
    first = described.first.dtype
    return first if first.is_float else S32


def layout_of(tensor: Tensor) -> Layout:
    """The layout of an array. Strides that never matter become dense ones, so that equal problems are equal."""
    strides = list(tensor.strides)
    empty = 0 in tensor.shape
    expected = 1
    for dim in reversed(range(len(strides))):
        if empty or tensor.shape[dim] == 1:
            strides[dim] = expected
        expected = strides[dim] * max(tensor.shape[dim], 1)
    return plain(strides)


def check_bias_shape(bias: Tensor, channels: int) -> None:
    """IllegalProblem unless the bias has one value per channel of the result, dense."""
    if bias.shape != (channels,):
        raise IllegalProblem(
            f"bias has one value per channel of the result, shape ({channels},); got shape {bias.shape}; reshape it"
        )
    check_bias_dense(bias)


def check_bias_dense(bias: Tensor) -> None:
    """IllegalProblem for gaps between the values of a bias."""
    if max(bias.shape) > 1 and bias.strides != (1,):
        raise IllegalProblem(f"bias values must be contiguous; got strides {bias.strides}; copy it first")
