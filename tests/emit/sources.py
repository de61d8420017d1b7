"""A handful of problems with fixed plans, whose source texts are kept as goldens and compiled."""

from __future__ import annotations

from dataclasses import replace

from convloom.artifact import KernelSource
from convloom.compiler import generate, prepare
from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8
from convloom.expr import sym
from convloom.plan.check_plan import check_plan
from convloom.plan.split import Reduction, Split
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.problem.contraction import AxisKind, Contraction
from convloom.problem.conv import Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.target.arch import Target


def product(m, n, k, types, **rest):
    shapes = ((m, k), (k, n), (m, n))
    specs = [TensorSpec(dtype, dense(shape)) for dtype, shape in zip(types, shapes, strict=True)]
    return Gemm((), m, n, k, *specs, **rest)


PROBLEMS = {
    "padded_forward_f32": conv_problem(
        batch=2, in_channels=8, out_channels=16, in_spatial=(9, 9), kernel=(3, 3), padding=1, bias=F32
    ),
    "strided_backward_data_f16": conv_problem(
        direction=Direction.BWD_D,
        batch=2,
        in_channels=8,
        out_channels=8,
        in_spatial=(15,),
        kernel=(3,),
        stride=2,
        padding=1,
        dtypes=(F16, F16, F16),
    ),
    "grouped_backward_weights_bf16": conv_problem(
        direction=Direction.BWD_W,
        batch=3,
        in_channels=4,
        out_channels=6,
        groups=2,
        in_spatial=(7, 5),
        kernel=(2, 3),
        dtypes=(BF16, F32, BF16),
    ),
    "dynamic_product_f32": product(sym("m", lo=1), sym("n", lo=1, divisor=8), sym("k", lo=1), (F32, F32, F32)),
    "product_s8": product(32, 48, 64, (U8, S8, S8), bias=S32),
    "scaled_product_f64": product(33, 20, 17, (F64, F64, F64), scaling=Scaling(True, True)),
}


def fixed_plan(contraction: Contraction, target: Target) -> TiledPlan:
    """Axes in declared order, small tiles; vectors where the problem of the name allows them."""
    g, m, n, k = (tuple(axis.name for axis in contraction.of_kind(kind)) for kind in AxisKind)
    varying = tuple(name for name in k if any(a.name == name and not a.extent.is_const for a in contraction.axes))
    serial, merged = (varying, tuple(name for name in k if name not in varying)) if contraction.phases else ((), k)
    lanes = min(4, target.math_lanes(contraction.acc))
    for vector, store in ((4, 4), (4, 1), (1, lanes), (1, 1)):
        for a, b in ((Along.K, Along.ROW), (Along.ROW, Along.K), (Along.K, Along.K), (Along.ROW, Along.ROW)):
            axes = (g, m, n, serial, merged)
            transfers = Transfer(a, vector, 0), Transfer(b, vector, 0)
            plan = TiledPlan(16, 16, 8, 4, 4, 4, 4, lanes, False, *axes, *transfers, store, 32, False)
            if check_plan(plan, contraction, target) is None:
                return plan
    raise AssertionError("no fixed plan is legal")


def source_of(name: str, target: Target):
    """The generated kernel of a name for a target."""
    contraction = prepare(PROBLEMS[name]).contraction
    return generate(contraction, target, fixed_plan(contraction, target)).source


def divided_launches(how: Reduction, target: Target) -> tuple[KernelSource, ...]:
    """A product of few tiles whose sums are shared among blocks and inside them, tiles taken in bands."""
    contraction = prepare(product(40, 40, 1000, (F32, F32, F32))).contraction
    plan = replace(fixed_plan(contraction, target), k_groups=2, split=Split(how, 3), walk=2)
    return generate(contraction, target, plan).program.launches
