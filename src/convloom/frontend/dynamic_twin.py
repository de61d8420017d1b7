"""From a problem of constant sizes to its twin over dims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from convloom.errors import IllegalProblem
from convloom.expr import Expr, const
from convloom.frontend.dims import dim
from convloom.problem.conv import Conv, TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.problem.reference import Problem

Naming = Callable[[str, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Twin:
    """A problem whose sizes are dims, and the problem of constant sizes that it becomes at the given ones."""

    dynamic: Problem
    static: Problem


def dynamic_twin(problem: Problem) -> Twin:
    """Every size but kernel, stride, dilation and groups becomes a dim; channels too where there is one group.

    IllegalProblem for blocked or strided layouts (only dense ones say what their strides are at other sizes), and for
    sizes of 0 (a dim is at least 1).
    """
    values: dict[Expr, Expr] = {}

    def named(name: str, size: Expr) -> Expr:
        if not size.is_const or size.value < 1:
            raise IllegalProblem(f"a twin is made from constant sizes of at least 1; got {size}; give a number")
        symbol = dim(name)
        values[symbol] = size
        return symbol

    dynamic = _conv(problem, named) if isinstance(problem, Conv) else _gemm(problem, named)
    return Twin(dynamic, dynamic.bind(values))


def _conv(conv: Conv, named: Naming) -> Conv:
    one_group = conv.groups is const(1)
    batch = named("mb", conv.batch)
    inputs = named("ic", conv.in_channels) if one_group else conv.in_channels
    outputs = named("oc", conv.out_channels) if one_group else conv.out_channels
    in_spatial = tuple([named(f"in{place}", extent) for place, extent in enumerate(conv.in_spatial)])
    out_spatial = tuple([named(f"out{place}", extent) for place, extent in enumerate(conv.out_spatial)])
    taps = tuple([const(extent) for extent in conv.kernel])
    per_group = inputs if one_group else conv.channels_per_group
    return replace(
        conv,
        batch=batch,
        in_channels=inputs,
        out_channels=outputs,
        in_spatial=in_spatial,
        out_spatial=out_spatial,
        src=_respread(conv.src, conv.src_shape, (batch, inputs, *in_spatial)),
        wei=_respread(conv.wei, conv.wei_shape, (outputs, per_group, *taps)),
        dst=_respread(conv.dst, conv.dst_shape, (batch, outputs, *out_spatial)),
    )


def _gemm(gemm: Gemm, named: Naming) -> Gemm:
    batch = tuple([named(f"batch{place}", extent) for place, extent in enumerate(gemm.batch)])
    m, n, k = named("m", gemm.m), named("n", gemm.n), named("k", gemm.k)
    return replace(
        gemm,
        batch=batch,
        m=m,
        n=n,
        k=k,
        a=_respread(gemm.a, gemm.a_shape, (*batch, m, k)),
        b=_respread(gemm.b, gemm.b_shape, (*batch, k, n)),
        c=_respread(gemm.c, gemm.c_shape, (*batch, m, n)),
    )


def _respread(spec: TensorSpec, old: tuple[Expr, ...], new: tuple[Expr, ...]) -> TensorSpec:
    """The same order of dimensions for other extents; among equal strides the longer dimension lies outside."""
    layout = spec.layout
    order = sorted(range(len(old)), key=lambda place: (-layout.strides[place].value, -old[place].value))
    if layout.blocks or dense(old, order) != layout:
        raise IllegalProblem(f"a twin over dims needs dense layouts; got {layout}; use nchw or nhwc and their kin")
    return TensorSpec(spec.dtype, dense(new, order))
