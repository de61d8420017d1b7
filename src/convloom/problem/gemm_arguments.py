"""Matrix products from sizes, transposes and layouts, as `conv_problem` does it for convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from convloom.dtypes import F32, DType
from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, const
from convloom.problem.conv import NO_SCALING, Scaling, TensorSpec
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.given import check_kind, integers, size, sizes, three
from convloom.problem.layout import Layout, dense
from convloom.problem.layout_given import LayoutLike, given_layout


def gemm_problem(
    *,
    m: ExprLike,
    n: ExprLike,
    k: ExprLike,
    batch: Sequence[ExprLike] = (),
    transpose_a: bool = False,
    transpose_b: bool = False,
    shared_a: Sequence[SupportsIndex] = (),
    shared_b: Sequence[SupportsIndex] = (),
    dtypes: tuple[DType, DType, DType] = (F32, F32, F32),
    layouts: tuple[LayoutLike, LayoutLike, LayoutLike] = (None, None, None),
    bias: DType | None = None,
    bias_axis: BiasAxis = BiasAxis.N,
    scaling: Scaling = NO_SCALING,
    name: str = "",
) -> Gemm:
    """The product c[.., m, n] = a[.., m, k] * b[.., k, n] + bias; every size may be a dim or 0.

    Logical shapes are always a (*batch, m, k), b (*batch, k, n), c (*batch, m, n), whatever lies in memory:
    `transpose_a` says that a is stored as (*batch, k, m), so that a call passes its transposed view; `shared_a` lists
    the batch axes over which a is one and the same, stride 0, as numpy.broadcast_to gives it. `layouts` in the order a,
    b, c: strides in elements (leading dimensions; dims too), a Layout, a tag, or None for dense rows. bias has shape
    (n,), or (m,) with BiasAxis.M. IllegalProblem names the rule that is broken.
    """
    groups = sizes("batch", batch)
    rows, columns, summed = size("m", m), size("n", n), size("k", k)
    given, types = three("layouts", layouts), three("dtypes", dtypes)
    a = _layout("a", (*groups, rows, summed), given[0], transpose_a, shared_a)
    b = _layout("b", (*groups, summed, columns), given[1], transpose_b, shared_b)
    c = _layout("c", (*groups, rows, columns), given[2], False, ())
    specs = [TensorSpec(dtype, layout) for dtype, layout in zip(types, (a, b, c), strict=True)]
    return Gemm(groups, rows, columns, summed, *specs, bias=bias, scaling=scaling, bias_axis=bias_axis, name=name)


def _layout(
    name: str, shape: tuple[Expr, ...], given: LayoutLike, transposed: bool, shared: Sequence[SupportsIndex]
) -> Layout:
    check_kind(f"transpose_{name}", transposed, bool, "True or False")
    axes = integers(f"shared_{name}", shared)
    if given is not None and (transposed or axes):
        raise IllegalProblem(
            f"a layout says where {name} lies, transposes and shared axes included; got a layout of {name} beside "
            f"transpose_{name}={transposed} and shared_{name}={axes}; give one of them"
        )
    if given is not None:
        return given_layout(given, shape)
    rank = len(shape)
    wrong = [axis for axis in axes if not 0 <= axis < rank - 2]
    if wrong:
        raise IllegalProblem(
            f"shared_{name} lists batch axes, 0 to {rank - 3}; got {wrong[0]}; the problem has {rank - 2} batch axes"
        )
    stored = [const(1) if axis in axes else extent for axis, extent in enumerate(shape)]
    order = [*range(rank - 2), rank - 1, rank - 2] if transposed else list(range(rank))
    strides = dense(stored, order).strides
    return Layout(tuple([const(0) if axis in axes else stride for axis, stride in enumerate(strides)]))
