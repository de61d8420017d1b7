"""Every size that the declared facts allow, through one kernel per plan shape; the shapes with fixed sizes too."""

import dataclasses
import itertools

import numpy as np
import pytest

from convloom import Direction, Gemm, TensorSpec, conv_problem, dim
from convloom import compile as compile_kernel
from convloom.dtypes import F32
from convloom.frontend.device_target import target_for
from convloom.frontend.operand_terms import problem_terms
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.choose import choose_plan
from convloom.plan.tiled import plan_text
from convloom.problem.layout import dense
from convloom.problem.reference import Arithmetic, Operands, operand_shapes, reference, result_shape
from convloom.runtime.device import device_named

DRAWS = 200
FIXED = 2  # of the draws are also compiled with fixed sizes
PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)


def conv(direction, rank=1, **changes):
    n, c, k, h = dim("n"), dim("c"), dim("k"), dim("h", min=3)
    arguments = {
        "direction": direction,
        "batch": n,
        "in_channels": c,
        "out_channels": k,
        "in_spatial": (h, *(dim("w", min=2),) * (rank - 1)),
        "kernel": (3, 2)[:rank],
        "stride": 1,
        "padding": ((1, 0), (0, 1))[:rank],
    }
    return conv_problem(**{**arguments, **changes})


def gemm():
    b, m, n, k = dim("b"), dim("m"), dim("n"), dim("k", divisible=4)
    specs = (TensorSpec(F32, dense(shape)) for shape in ((b, m, k), (b, k, n), (b, m, n)))
    return Gemm((b,), m, n, k, *specs, bias=F32)


PROBLEMS = {
    "gemm": gemm,
    "forward": lambda: conv(Direction.FWD, rank=2, bias=F32),
    "strided": lambda: conv(Direction.FWD, stride=2, dilation=2, padding=2),
    "weights": lambda: conv(Direction.BWD_W, rank=2),
    "data": lambda: conv(Direction.BWD_D, rank=2),
    "phases": lambda: conv(Direction.BWD_D, stride=2),
    "groups": lambda: conv(Direction.FWD, in_channels=dim("g") * 2, out_channels=dim("g") * dim("k"), groups=dim("g")),
}


def plan_shapes(kernel, count=2):
    """The chosen plan, the one for calls that break its conditions, and plans far apart in the planner's list."""
    found = arrangements(kernel.contraction, kernel.target)
    every = [plan for plan, _ in candidates(kernel.contraction, kernel.target, found)]
    spread = [every[place * len(every) // count] for place in range(count)]
    general = choose_plan(kernel.contraction, kernel.target, general=True)
    return list(dict.fromkeys([kernel.plan, *map(plan_text, (general, *spread))]))


def symbols_of(problem):
    return problem_terms(problem).symbols


def draw_sizes(problem, random, count):
    """Sizes within the declared facts: the least, then primes and anything up to 33 by turns; few elements in total."""
    symbols = symbols_of(problem)
    most = 12 if len(symbols) > 3 else 33
    primes = [prime for prime in PRIMES if prime <= most]
    for number in range(count):
        pool = [1] if number == 0 else primes if number % 2 else range(1, most)
        drawn = random.choice(pool, len(symbols)).tolist()
        yield {symbol: legal(symbol.facts, value) for symbol, value in zip(symbols, drawn, strict=True)}


def legal(facts, value):
    value = -(-value // facts.divisor) * facts.divisor
    return max(value, facts.lo or 0)


def random_integers(random, shape):
    return random.integers(-3, 4, shape).astype(np.float32)


def operands_of(problem, random):
    a, b = (random_integers(random, shape) for shape in operand_shapes(problem))
    bias = random_integers(random, (problem.bias_extent.value,)) if problem.bias is not None else None
    return Operands(a, b, bias)


def call(kernel, problem, operands):
    """The result, and whether it is exactly right; memory around it must stay as it was."""
    shape = result_shape(problem)
    storage = np.full(int(np.prod(shape)) + 32, np.nan, np.float32)
    out = storage[16:-16].reshape(shape)
    kernel(operands.a, operands.b, operands.bias, out)
    assert np.isnan(storage[:16]).all()
    assert np.isnan(storage[-16:]).all()
    return out


def expected(problem, operands):
    return reference(problem, operands, Arithmetic.EXACT).value


@pytest.mark.parametrize("name", PROBLEMS)
def test_one_kernel_per_plan_shape_serves_all_sizes(name):
    problem = PROBLEMS[name]()
    chosen = compile_kernel(problem)
    random = np.random.default_rng(len(name))
    sizes = list(draw_sizes(problem, random, DRAWS))
    for plan in plan_shapes(chosen):
        kernel = compile_kernel(problem, plan=plan)
        for values in sizes:
            bound = problem.bind(values)
            operands = operands_of(bound, random)
            result = call(kernel, bound, operands)
            assert np.array_equal(result, expected(bound, operands)), (plan, values)


@pytest.mark.parametrize("name", PROBLEMS)
def test_plan_shapes_with_fixed_sizes(name):
    problem = PROBLEMS[name]()
    random = np.random.default_rng(7)
    for values in itertools.islice(draw_sizes(problem, random, DRAWS), FIXED):
        bound = problem.bind(values)
        operands = operands_of(bound, random)
        exact = expected(bound, operands)
        for plan in plan_shapes(compile_kernel(bound)):
            assert np.array_equal(call(compile_kernel(bound, plan=plan), bound, operands), exact), (plan, values)


def test_empty_extents_at_run_time():
    """A dim with min=0: an empty reduction leaves bias, an empty result launches nothing."""
    m, n, k = (dim(name, min=0) for name in "mnk")
    specs = (TensorSpec(F32, dense(shape)) for shape in ((m, k), (k, n), (m, n)))
    problem = Gemm((), m, n, k, *specs, bias=F32)
    kernel = compile_kernel(problem)
    for sizes in itertools.product((0, 1, 5), repeat=3):
        a, b = np.ones((sizes[0], sizes[2]), np.float32), np.ones((sizes[2], sizes[1]), np.float32)
        bias = np.arange(sizes[1], dtype=np.float32)
        assert np.array_equal(kernel(a, b, bias), a @ b + bias), sizes


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("empty", ["n", "c", "k"])
def test_empty_convolutions_at_run_time(direction, empty):
    symbols = {name: dim(name, min=0) for name in "nck"}
    problem = conv(direction, batch=symbols["n"], in_channels=symbols["c"], out_channels=symbols["k"])
    kernel = compile_kernel(problem)
    values = {symbol: 0 if name == empty else 2 for name, symbol in symbols.items()} | {dim("h", min=3): 5}
    bound = problem.bind(values)
    operands = operands_of(bound, np.random.default_rng(0))
    assert np.array_equal(call(kernel, bound, operands), expected(bound, operands))


def test_strides_are_solved_too():
    """A leading dimension that is a dim; where a row is alone its stride does not matter."""
    m, n, lda = dim("m"), dim("n"), dim("lda", divisible=4)
    a = TensorSpec(F32, dataclasses.replace(dense((m, 8)), strides=(lda, dense((m, 8)).strides[1])))
    problem = Gemm((), m, n, 8, a, TensorSpec(F32, dense((8, n))), TensorSpec(F32, dense((m, n))))
    kernel = compile_kernel(problem)
    storage = random_integers(np.random.default_rng(1), (9, 20))
    right = random_integers(np.random.default_rng(2), (8, 5))
    for rows in (1, 3, 9):
        assert np.array_equal(kernel(storage[:rows, :8], right), storage[:rows, :8] @ right)
    assert np.array_equal(kernel(storage[4:5, 3:11], right), storage[4:5, 3:11] @ right)


def test_the_target_is_the_machine_s():
    target = target_for(device_named("cpu"))
    assert target.vector_bits in (128, 256, 512)
    assert target.language is device_named("cpu").language
