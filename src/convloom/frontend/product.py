"""Matrix products on arrays, batched and broadcast as numpy.matmul does."""

from __future__ import annotations

from typing import Any, NamedTuple

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.expr import const
from convloom.frontend.arrays import family_of
from convloom.frontend.call import (
    Described,
    Options,
    adapted_result,
    check_bias_dense,
    check_options,
    common_device,
    compiled,
    factors,
    layout_of,
    result_dtype,
    tensor_key,
)
from convloom.frontend.kernel import Kernel
from convloom.frontend.repeat import remember
from convloom.frontend.tensor import Tensor
from convloom.problem.checks import check_result_layout
from convloom.problem.conv import Scaling, TensorSpec
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.layout import dense, plain


class _Prepared(NamedTuple):
    """What follows from the description of the arrays."""

    kernel: Kernel
    a: tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of the operand with all batch axes
    b: tuple[tuple[int, ...], tuple[int, ...]]
    c: tuple[tuple[int, ...], tuple[int, ...]]
    shape: tuple[int, ...]  # of the array that is returned
    strides: tuple[int, ...]
    dtype: DType
    device: str


_prepared: dict[Any, _Prepared] = {}


def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
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
    """The product alpha * (a @ b) + beta * out + bias, with the shapes of numpy.matmul.

    Shapes: a (.., m, k), b (.., k, n), batches broadcast against each other, result (.., m, n). A 1-D a is a row, a 1-D
    b a column; their axis is not in the result. bias has shape (n,), or (m, 1) for one value per row. Strides are the
    arrays' own, so that a transposed view costs nothing. A new result is dense, rows first. Everything else as in
    `conv`.
    """
    options = Options(out, stream, alpha, beta, accumulate, deterministic, max_workspace, device, plan, tf32)
    check_options(options)
    family = family_of("a", a)
    left, right = family.adapt("a", a), family_of("b", b).adapt("b", b)
    addend = None if bias is None else family_of("bias", bias).adapt("bias", bias)
    result = None if out is None else adapted_result("out", out)
    scale = factors(options)
    arrays = Described(left, right, addend, result)
    prepared = _prepare(arrays, scale, options)
    if result is None:
        out = family.allocator(prepared.shape, prepared.strides, prepared.dtype, prepared.device)()
        result = family.adapt("out", out)
    tensors = [_placed(left, prepared.a), _placed(right, prepared.b)]
    names = ("a", "b", "out")
    if addend is not None:
        tensors.append(_placed(addend, ((max(addend.shape),), (1,))))
        names = ("a", "b", "bias", "out")
    stream = family.stream(a) if stream is None else stream
    prepared.kernel.run(family, tensors, out, _placed(result, prepared.c), scale, stream, names)
    return out


def _placed(tensor: Tensor, place: tuple[tuple[int, ...], tuple[int, ...]]) -> Tensor:
    return Tensor(tensor.address, place[0], place[1], tensor.dtype, tensor.device, tensor.keeper)


def _prepare(arrays: Described, scale: tuple[float, float], options: Options) -> _Prepared:
    key = (
        *[None if tensor is None else tensor_key(tensor) for tensor in arrays],
        scale[0] != 1.0,
        scale[1] != 0.0,
        options.device,
        options.plan,
        options.deterministic,
        options.max_workspace,
        options.tf32,
    )
    found = _prepared.get(key)
    if found is None:
        found = _build(arrays, Scaling(scale[0] != 1.0, scale[1] != 0.0), options)
        remember(_prepared, key, found)
    return found


def _build(arrays: Described, scaling: Scaling, options: Options) -> _Prepared:
    named = {name: tensor for name, tensor in zip(("a", "b", "bias", "out"), arrays, strict=True) if tensor is not None}
    device = common_device(named, options.device)
    a, b = _matrix("a", arrays.first, 0), _matrix("b", arrays.second, 1)
    _check_inner(arrays.first, arrays.second, a, b)
    batch = _batch(a.shape[:-2], b.shape[:-2])
    a, b = _broadcast(a, batch), _broadcast(b, batch)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    whole = (*batch, m, n)
    kept = [dim for dim in range(len(whole)) if _is_kept(dim - len(whole), arrays)]
    shape = tuple([whole[dim] for dim in kept])
    dtype = result_dtype(arrays)
    layout = dense(whole) if arrays.out is None else plain(_result_strides(arrays.out, shape, kept, whole))
    problem = Gemm(
        batch=batch,  # pyright: ignore[reportArgumentType]
        m=m,  # pyright: ignore[reportArgumentType]
        n=n,  # pyright: ignore[reportArgumentType]
        k=k,  # pyright: ignore[reportArgumentType]
        a=TensorSpec(a.dtype, layout_of(a)),
        b=TensorSpec(b.dtype, layout_of(b)),
        c=TensorSpec(dtype, layout),
        bias=None if arrays.bias is None else arrays.bias.dtype,
        scaling=scaling,
        bias_axis=_bias_axis(arrays.bias, m, n),
        tf32=options.tf32,
    )
    strides = tuple([stride.value for stride in layout.strides])
    return _Prepared(
        compiled(problem, device, options),
        (a.shape, a.strides),
        (b.shape, b.strides),
        (whole, strides),
        shape,
        tuple([strides[dim] for dim in kept]),
        dtype,
        device,
    )


def _matrix(name: str, tensor: Tensor, missing: int) -> Tensor:
    """The operand with at least two dimensions; a vector gets one of extent 1, in front (0) or behind (1)."""
    if not tensor.shape:
        raise IllegalProblem(f"{name} must have at least one dimension; got a scalar; multiply by alpha instead")
    if len(tensor.shape) > 1:
        return tensor
    shape, strides = list(tensor.shape), list(tensor.strides)
    shape.insert(missing, 1)
    strides.insert(missing, 0)
    return _placed(tensor, (tuple(shape), tuple(strides)))


def _check_inner(first: Tensor, second: Tensor, a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != b.shape[-2]:
        raise IllegalProblem(
            f"the inner sizes of a product must be equal; a has k = {a.shape[-1]} (shape {first.shape}), b has "
            f"k = {b.shape[-2]} (shape {second.shape}); transpose or reshape one"
        )


def _batch(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    if any(one != other and 1 not in (one, other) for one, other in zip(*padded, strict=True)):
        raise IllegalProblem(f"batch sizes must be equal or 1; got {first} and {second}; reshape the operands")
    return tuple([other if one == 1 else one for one, other in zip(*padded, strict=True)])


def _broadcast(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """The operand with these batch axes; where it has one element or none, the stride is 0."""
    own = len(tensor.shape) - 2
    missing = len(batch) - own
    strides = [
        0 if dim < missing or (tensor.shape[dim - missing] == 1 and batch[dim] != 1) else tensor.strides[dim - missing]
        for dim in range(len(batch))
    ]
    return _placed(tensor, ((*batch, *tensor.shape[-2:]), (*strides, *tensor.strides[-2:])))


def _is_kept(place: int, arrays: Described) -> bool:
    """Whether an axis (counted from the end) is in the result: the one that a vector lacks is not."""
    vectors = {-2: arrays.first, -1: arrays.second}
    return place not in vectors or len(vectors[place].shape) > 1


def _result_strides(out: Tensor, shape: tuple[int, ...], kept: list[int], whole: tuple[int, ...]) -> list[int]:
    if out.shape != shape:
        raise IllegalProblem(f"out must have the result's shape {shape}; got {out.shape}; pass an array of that shape")
    check_result_layout("out", layout_of(out), tuple(map(const, shape)))
    given = [stride.value for stride in layout_of(out).strides]
    strides = [1] * len(whole)
    for dim, stride in zip(kept, given, strict=True):
        strides[dim] = stride
    return strides


def _bias_axis(bias: Tensor | None, m: int, n: int) -> BiasAxis:
    if bias is None or bias.shape in ((n,), (1, n)):
        axis = BiasAxis.N
    elif bias.shape == (m, 1):
        axis = BiasAxis.M
    else:
        raise IllegalProblem(
            f"bias has one value per column, shape ({n},), or per row, shape ({m}, 1); got {bias.shape}; reshape it"
        )
    if bias is not None:
        long = [stride for extent, stride in zip(bias.shape, bias.strides, strict=True) if extent > 1]
        check_bias_dense(_placed(bias, ((max(bias.shape),), tuple(long) or (1,))))
    return axis
