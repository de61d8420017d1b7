"""Every multiplying row in a kernel on a GPU, in all element types, sums divided in every way, in a CUDA graph."""

from dataclasses import replace
from random import Random

import pytest

import convloom
from convloom import Direction, conv_problem
from convloom.compiler import prepare
from convloom.dtypes import dtype_named
from convloom.frontend.problem_check import check_problem
from convloom.plan.draw_plan import draw_plan
from convloom.plan.legality import multiplying_rows, row_multiplies
from convloom.plan.products import products_of
from convloom.plan.split import Reduction
from convloom.plan.tiled import SCALAR, TiledPlan, plan_text
from convloom.problem.data import DataKind
from convloom.target.arch import target_named
from tests.device.gpu import needs_gpu
from tests.plan.dividing import divided

GPU = target_named("sm_90a")


def on_gpu(test):
    """Marks a test that needs a GPU."""
    for mark in needs_gpu:
        test = mark(test)
    return test


SIZES = {"batch": 2, "in_channels": 40, "out_channels": 72, "in_spatial": (11, 9), "kernel": (3, 3), "padding": 1}
GRADIENT = {"batch": 8, "in_channels": 32, "out_channels": 64, "in_spatial": (14, 14), "kernel": (3, 3), "padding": 1}
TYPES = [
    *("f64:f64:f64", "f32:f32:f32", "tf32", "f16:f16:f16", "bf16:bf16:bf16", "f16:f16:f32", "bf16:bf16:f32"),
    *("s8:s8:s32", "u8:s8:u8", "s8:u8:s8", "u8:u8:f32", "s8:s8:f16", "s8:s8:bf16"),
    *("e4m3:e4m3:f32", "e5m2:e4m3:f16", "e4m3:e5m2:e4m3", "e5m2:e5m2:e5m2", "f16:f16:e4m3", "f32:f32:e5m2"),
]


def convolution(types, direction=Direction.FWD, sizes=SIZES):
    names = ("f32",) * 3 if types == "tf32" else types.split(":")
    dtypes = tuple(map(dtype_named, names))
    return replace(conv_problem(direction=direction, dtypes=dtypes, **sizes), tf32=types == "tf32")


def rows(problem):
    """Names of the rows that can multiply on an H200, and of the multiply-add without a row."""
    products = products_of(prepare(problem).contraction)
    return {SCALAR, *(row.name for row in multiplying_rows(GPU) if row_multiplies(row, products))}


def plans(problem):
    """Random plans, one for each row."""
    contraction, waiting = prepare(problem).contraction, rows(problem)
    for seed in range(400):
        plan = draw_plan(Random(seed), contraction, GPU)
        if isinstance(plan, TiledPlan) and plan.row in waiting:
            waiting.remove(plan.row)
            yield plan_text(plan)
        if not waiting:
            return
    raise AssertionError(f"no plan was drawn for {waiting}")


@pytest.mark.parametrize("types", TYPES)
def test_plans_are_drawn_for_every_row(types):
    problem = convolution(types)
    assert len(list(plans(problem))) == len(rows(problem))


@pytest.mark.parametrize("types", TYPES)
@on_gpu
def test_every_row_in_every_type(types):
    problem = convolution(types)
    for plan in plans(problem):
        made = convloom.compile(problem, "cuda", plan)
        for kind in (DataKind.INT, DataKind.REAL):
            outcome = check_problem(made, kind)
            assert outcome.passed, f"{plan}: {outcome.reason}"


DIVIDED = ["f32", "tf32", "f16", "bf16", "f64", "s8:s32:s8", "s8:s8:s8"]


@on_gpu
@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC])
@pytest.mark.parametrize("types", DIVIDED)
def test_divided_sums_in_every_type(types, how):
    problem = convolution(
        types if ":" in types or types == "tf32" else ":".join([types] * 3), Direction.BWD_W, GRADIENT
    )
    kernel = convloom.compile(problem, "cuda")
    plan = plan_text(divided(prepare(problem).contraction, kernel.target, 7, 1, 1, how))
    outcome = check_problem(convloom.compile(problem, "cuda", plan), DataKind.INT)
    assert outcome.passed, outcome.reason


@on_gpu
@pytest.mark.parametrize("kind", list(DataKind))
@pytest.mark.parametrize(
    ("types", "sums"),
    [("f32", "f32"), ("tf32", "f32"), ("f16", "f16"), ("bf16", "f32"), ("f64", "f64"), ("s8:s32:s8", "s32")],
)
def test_bias_gradients(types, sums, kind):
    given = types if ":" in types or types == "tf32" else ":".join([types] * 3)
    problem = replace(convolution(given, Direction.BWD_W, GRADIENT), bias_grad=dtype_named(sums))
    outcome = check_problem(convloom.compile(problem, "cuda"), kind)
    assert outcome.passed, outcome.reason


@on_gpu
@pytest.mark.torch
@pytest.mark.parametrize("how", ["passes", "atomic", "deterministic"])
@pytest.mark.parametrize("types", ["f32", "f16", "bf16"])
def test_divided_sums_in_a_graph(types, how):
    torch = pytest.importorskip("torch")
    problem = convolution(":".join([types] * 3), Direction.BWD_W, GRADIENT)
    if how == "deterministic":
        kernel = convloom.compile(problem, "cuda", deterministic=True)
    else:
        target = convloom.compile(problem, "cuda").target
        plan = divided(prepare(problem).contraction, target, 7, 1, 1, Reduction(how))
        kernel = convloom.compile(problem, "cuda", plan_text(plan))
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[types]
    src, dst = (torch.randint(-2, 3, shape, device="cuda").to(kind) for shape in ((8, 32, 14, 14), (8, 64, 14, 14)))
    out = kernel(src, dst)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(src, dst, out=out)
    for shift in (1, 2):
        src.copy_(torch.roll(src, shift, 0))
        expected = kernel(src, dst)
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected)
        right = torch.nn.grad.conv2d_weight(src.double(), (64, 32, 3, 3), dst.double(), padding=1)
        assert torch.equal(out.double(), right.to(kind).double())
