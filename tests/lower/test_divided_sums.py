"""Sums over K divided among blocks and inside blocks: exact on every device that runs here, whatever the sizes."""

import numpy as np
import pytest

import convloom
from convloom import Gemm, Scaling, TensorSpec, dim
from convloom.compiler import generate, prepare
from convloom.dtypes import BF16, F16, F32, F64, S8, S32
from convloom.frontend.device_target import target_for
from convloom.frontend.problem_check import check_problem
from convloom.plan.split import Reduction
from convloom.plan.tiled import plan_text
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.data import DataKind, make_operands
from convloom.problem.layout import dense
from convloom.problem.numerics import compare_exact
from convloom.runtime.device import device_named
from convloom.settings import scoped
from convloom.target.arch import CPU, INTERPRET
from tests.lower.running import exact_reference, run
from tests.plan.dividing import contraction_of, divided
from tests.problem.drawing import draw


def layer(direction, types=(F32, F32, F32), **changes):
    sizes = {"batch": 2, "in_channels": 6, "out_channels": 10, "in_spatial": (9, 7), "kernel": (3, 3), "padding": 1}
    return conv_problem(direction=direction, dtypes=types, **{**sizes, **changes})


PROBLEMS = {
    "forward": lambda: layer(Direction.FWD, bias=F32, scaling=Scaling(True, True)),
    "forward bf16": lambda: layer(Direction.FWD, (BF16, BF16, BF16), bias=BF16),
    "backward data, strided": lambda: layer(Direction.BWD_D, stride=2, bias=F32),
    "backward data, phases without taps": lambda: layer(Direction.BWD_D, kernel=(1, 2), stride=3, padding=0),
    "backward weights": lambda: layer(Direction.BWD_W, scaling=Scaling(False, True)),
    "backward weights, groups": lambda: layer(Direction.BWD_W, (F16, F16, F16), groups=2, stride=2),
    "depthwise weights": lambda: layer(Direction.BWD_W, in_channels=5, out_channels=5, groups=5),
    "integers": lambda: layer(Direction.FWD, (S8, S8, S32)),
    "doubles": lambda: layer(Direction.BWD_W, (F64, F64, F64)),
    "one product": lambda: layer(Direction.FWD, in_channels=1, kernel=(1, 1), padding=0),
}
FLOATS = ((F32, F32, F32), (F16, F16, F16))
PASSES, ATOMIC = Reduction.PASSES, Reduction.ATOMIC
DIVISIONS = (  # every second one is taken in turn: their number is odd
    (1, 2, 1),
    (3, 1, 2, PASSES),
    (1000, 1, 1, PASSES),
    (2, 4, 3, PASSES),
    (3, 1, 1, ATOMIC),
    (40, 2, 2, ATOMIC),
    (5, 1, 1, ATOMIC),
)


def program_of(problem, target, *division):
    """The launches of a plan that divides its sums so."""
    contraction = contraction_of(problem)
    return generate(contraction, target, divided(contraction, target, *division)).program


NAMES = {
    (1, 2, 1): ["tiled"],
    (3, 1, 1, PASSES): ["tiled", "finish"],
    (3, 1, 1, ATOMIC): ["clear", "tiled"],
}


@pytest.mark.parametrize("division", NAMES, ids=str)
def test_launches(division):
    program = program_of(PROBLEMS["doubles"](), CPU, *division)
    assert [launch.name.partition("_")[0] for launch in program.launches] == NAMES[division]
    assert program.launches[program.main].name.startswith("tiled")
    assert (program.workspace_bytes != "0") == (PASSES in division)


@pytest.mark.parametrize("name", ["forward", "forward bf16", "backward weights"])
def test_atomic_sums_go_to_a_workspace_where_something_follows(name):
    program = program_of(PROBLEMS[name](), CPU, 3, 1, 1, ATOMIC)
    assert [launch.name.partition("_")[0] for launch in program.launches] == ["clear", "tiled", "finish"]
    assert program.workspace_bytes != "0"


@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_on_the_cpu(name, third):
    problem, place = PROBLEMS[name](), list(PROBLEMS).index(name)
    program = program_of(problem, CPU, *DIVISIONS[(place + 2 * third) % len(DIVISIONS)])
    operands = make_operands(problem, seed=3)
    found = run(program, dict(prepare(problem).tensors), problem, operands, {})
    assert compare_exact(problem, found, exact_reference(problem, operands)).passed


@pytest.mark.parametrize("place", range(len(PROBLEMS)))
def test_exact_and_without_faults_under_the_interpreter(place):
    """Through calls of kernels, which launch all parts of a program."""
    problem = list(PROBLEMS.values())[place]()
    plan = divided(contraction_of(problem), INTERPRET, *DIVISIONS[place % len(DIVISIONS)])
    kernel = convloom.compile(problem, "interpret", plan_text(plan))
    assert check_problem(kernel, DataKind.INT).passed


@pytest.mark.parametrize("division", [(1, 2, 1), (3, 2, 2, PASSES), (50, 1, 1, ATOMIC)], ids=str)
def test_matrix_instructions(division):
    problem = layer(Direction.BWD_W, (F16, F16, F16), in_channels=16, out_channels=16)
    plan = divided(contraction_of(problem), INTERPRET, *division, row="mma.m16n8k16.f32.f16.f16")
    kernel = convloom.compile(problem, "interpret", plan_text(plan))
    assert check_problem(kernel, DataKind.INT).passed


@pytest.mark.parametrize("seed", range(12))
def test_sizes_of_the_call(seed):
    """One program for all sizes: the number of parts is fixed, what they cover is not."""
    drawn = draw(seed, FLOATS)
    device, target = (("cpu", CPU), ("interpret", INTERPRET))[seed % 2]
    program = program_of(drawn.dynamic, target, *DIVISIONS[seed // 2 % len(DIVISIONS)])
    operands = make_operands(drawn.static, seed=seed)
    names = dict(prepare(drawn.dynamic).tensors)
    found = run(program, names, drawn.static, operands, drawn.values, device_named(device))
    assert compare_exact(drawn.static, found, exact_reference(drawn.static, operands)).passed


def test_bits_do_not_depend_on_threads_or_order():
    """Real numbers whose sums round: parts are added in their order whoever computed them first."""
    problem = layer(Direction.BWD_W, batch=8, in_spatial=(20, 20))
    text = plan_text(divided(contraction_of(problem), CPU, 7, 1, 1, PASSES))
    random = np.random.default_rng(0)
    src, dst = (random.standard_normal(shape, np.float32) for shape in ((8, 6, 20, 20), (8, 10, 20, 20)))
    results = []
    for threads in (1, 2, 3, 2, 1):
        with scoped(threads=threads):
            results.append(convloom.compile(problem, "cpu", text, deterministic=True)(src, dst))
    small = layer(Direction.BWD_W)
    plan = plan_text(divided(contraction_of(small), INTERPRET, 4, 2, 1, PASSES))
    src, dst = src[:2, :, :9, :7].copy(), dst[:2, :, :9, :7].copy()
    orders = []
    for order in (None, 1, 2):
        with scoped(interpret_order=order):
            orders.append(convloom.compile(small, "interpret", plan, deterministic=True)(src, dst))
    for found in (results, orders):
        assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("how", [PASSES, ATOMIC])
def test_the_epilogue_acts_once_on_the_whole_sum(how):
    """Beta and bias per part, or rounding to f16 before the last addition, would show."""
    problem = layer(Direction.FWD, (F16, F16, F16), bias=F16, scaling=Scaling(True, True))
    kernel = convloom.compile(problem, "cpu", plan_text(divided(contraction_of(problem), CPU, 5, 1, 1, how)))
    random = np.random.default_rng(1)
    src, wei = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 6, 9, 7), (10, 6, 3, 3)))
    bias, old = (random.standard_normal(shape).astype(np.float16) for shape in ((10,), (2, 10, 9, 7)))
    whole = convloom.conv(src.astype(np.float64), wei.astype(np.float64), padding=1)
    expected = 0.5 * whole + 2.0 * old + bias[:, None, None]
    found = kernel(src, wei, bias, out=old.copy(), alpha=0.5, beta=2.0)
    assert np.abs(found - expected).max() <= np.abs(expected).max() * 2.0**-11


@pytest.mark.parametrize("how", [PASSES, ATOMIC])
@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_sums_of_nothing_and_of_less_than_a_term_per_part(device, how):
    k = dim("k", min=0)
    a, b, c = (TensorSpec(F32, dense(shape)) for shape in ((9, k), (k, 7), (9, 7)))
    problem = Gemm((), 9, 7, k, a, b, c)
    target = target_for(device_named(device))
    kernel = convloom.compile(problem, device, plan_text(divided(contraction_of(problem), target, 5, 2, 2, how)))
    for terms in (0, 1, 3, 50):
        found = kernel(np.ones((9, terms), np.float32), np.ones((terms, 7), np.float32))
        assert np.array_equal(found, np.full((9, 7), terms))
