"""What a plan relies on: proved, or stated as a condition that holds exactly where it is needed."""

from dataclasses import replace

import pytest

from convloom.compiler import contract, generate, plan_for, prepare
from convloom.dtypes import F32
from convloom.expr import evaluate, sym
from convloom.plan.choose import choose_plan
from convloom.plan.requirements import address_symbol, fits_32_bits, plan_requirements
from convloom.problem.conv import Direction, TensorSpec
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense, plain
from convloom.problem.normal_form import normal_form
from convloom.runtime.launch_expression import evaluate as launch_value
from convloom.target.arch import CPU, OPENCL, SM_90A
from tests.problem.drawing import draw

LIMIT = 2**31 - 2**16


def product(m, n, k, strides=None):
    shapes = ((m, k), (k, n), (m, n))
    layouts = [dense(shape) for shape in shapes] if strides is None else [plain(pair) for pair in strides]
    return prepare(Gemm((), m, n, k, *[TensorSpec(F32, layout) for layout in layouts])).contraction


def requirements(contraction, target=CPU, **changes):
    plan = replace(choose_plan(contraction, target), **changes)
    return plan_requirements(plan, contraction, target)


def test_small_constant_sizes_need_nothing_on_the_cpu():
    assert requirements(product(64, 64, 64)) == ()


def test_large_constant_sizes_take_64_bits():
    large = product(2**20, 64, 4096)
    assert not fits_32_bits(large)
    assert choose_plan(large, CPU).index_bits == 64
    assert requirements(large) == ()
    assert choose_plan(product(2**18, 64, 4096), CPU).index_bits == 32


def test_large_strides_take_64_bits():
    assert not fits_32_bits(product(64, 64, 64, ((2**26, 1), (64, 1), (64, 1))))


def test_large_counts_with_small_offsets_take_64_bits():
    """Sums over an axis that both factors repeat: the offsets are small, the flat index is not."""
    assert not fits_32_bits(product(4, 4, 2**31, ((1, 0), (0, 1), (4, 1))))


def test_dynamic_sizes_state_where_32_bits_end():
    m, n, k = (sym(name, lo=1) for name in "mnk")
    found = requirements(product(m, n, k), index_bits=32)
    assert {"32 bits" in item.reason for item in found} == {True}

    def hold(**sizes):
        return all(int(evaluate(item.condition, sizes)) for item in found)

    assert hold(m=1024, n=1024, k=1024)
    assert not hold(m=2**16, n=1, k=2**15)
    assert not hold(m=1, n=2**16, k=2**15)
    assert not hold(m=2**16, n=2**15, k=1)
    assert not hold(m=1, n=1, k=LIMIT + 1)


def test_facts_prove_what_they_can():
    m, n, k = (sym(name, lo=1, hi=1000) for name in "mnk")
    assert requirements(product(m, n, k), index_bits=32) == ()


def test_vectors_need_aligned_pointers_on_gpus():
    contraction = product(64, 64, 64)
    plan = choose_plan(contraction, SM_90A)
    widths = {"a": plan.a.vector, "b": plan.b.vector, "c": plan.store}
    found = {str(item.condition) for item in plan_requirements(plan, contraction, SM_90A)}
    assert found
    for item in plan_requirements(plan, contraction, SM_90A):
        symbol = address_symbol(item.operand)
        assert widths[item.operand] > 1
        assert int(evaluate(item.condition, {symbol.name: 256}))
        assert not int(evaluate(item.condition, {symbol.name: 256 + 4}))
    assert plan_requirements(plan, contraction, OPENCL) == ()


def test_a_family_states_conditions_of_each_phase():
    """No condition mentions a phase's parameter, which no host knows."""
    found = 0
    for seed in range(24):
        drawn = draw(seed)
        if getattr(drawn.dynamic, "direction", None) is not Direction.BWD_D:
            continue
        contraction = prepare(drawn.dynamic).contraction
        source = generate(contraction, CPU, replace(plan_for(contraction, CPU), index_bits=32)).source
        for item in source.requirements:
            assert launch_value(item.condition, drawn.values) in (0, 1)
            found += bool(contraction.phases)
    assert found > 8


@pytest.mark.parametrize("direction", list(Direction))
def test_offsets_of_every_operand_count(direction):
    size = sym("size", lo=1)
    problem = conv_problem(
        direction=direction, batch=size, in_channels=8, out_channels=8, in_spatial=(64,), kernel=(3,), padding=1
    )
    contraction = normal_form(contract(problem)).contraction
    found = requirements(contraction, index_bits=32)
    holding = [all(int(evaluate(item.condition, {"size": n})) for item in found) for n in (1, 2**20, 2**22)]
    assert holding == [True, True, False]
