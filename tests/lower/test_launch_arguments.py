"""What the host knows leaves the kernel: division by multiplication, launch arguments; before and after, and values."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.compiler import generate, plan_for, prepare
from convloom.expr import Op, const, evaluate, free_symbols, sym
from convloom.ir.ops import Kernel, Let
from convloom.ir.rewrite import statement_expressions, statements_in
from convloom.ir.symbols import BLOCK_ID, thread_id
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify
from convloom.lower.hoist_launch_arguments import hoist_launch_arguments
from convloom.lower.lower_division import lower_division
from convloom.lower.separate import separate, separate_conditions
from convloom.runtime.launch_expression import evaluate as launch_value
from convloom.target.arch import CPU, OPENCL, SM_90A
from tests.problem.drawing import TYPES, draw

THREADS = 8
TID = thread_id(THREADS)
N, K = sym("n", lo=1), sym("k", lo=1, divisor=16)
SIZES = frozenset((N, K))


def kernel_of(*expressions, index_bits=32):
    """A kernel that binds x0, x1 .. to the expressions."""
    body = tuple(Let(sym(f"x{place}"), expression) for place, expression in enumerate(expressions))
    return Kernel("tiny", (), (), THREADS, const(1), index_bits, body)


def values_of(kernel):
    return [statement.value for statement in kernel.body]


def operations(expression):
    return {expression.op}.union(*(operations(argument) for argument in expression.args))


# --- division -------------------------------------------------------------------------------------------------------


def test_division_by_a_size_becomes_a_multiplication():
    before = kernel_of(BLOCK_ID // N, BLOCK_ID % N, (BLOCK_ID * 8 + TID) % (N * K + 1))
    for expression in values_of(lower_division(before, SIZES)):
        assert Op.FAST_DIV in operations(expression)
        assert not {Op.FLOORDIV, Op.MOD} & operations(expression)


@pytest.mark.parametrize(
    "expression",
    [BLOCK_ID // 7, TID % 4, N // 3, (N * K) % 5 + TID, (TID - 3) // N],
    ids=["number", "remainder by a number", "host", "host in a sum", "negative dividend"],
)
def test_other_divisions_stay(expression):
    before = kernel_of(expression)
    assert lower_division(before, SIZES) == before


def test_wide_index_math_keeps_divisions():
    before = kernel_of(BLOCK_ID // N, index_bits=64)
    assert lower_division(before, SIZES) == before


def test_a_divisor_of_zero_is_taken_as_one():
    """Sums over nothing have index math too; wide index math as well."""
    empty = sym("empty", lo=0)
    for bits in (32, 64):
        lowered = values_of(
            lower_division(kernel_of(BLOCK_ID // empty, BLOCK_ID % empty, index_bits=bits), frozenset((empty,)))
        )
        for by in (0, 1, 5):
            found = [int(evaluate(expression, {"bid": 13, "empty": by})) for expression in lowered]
            assert found == [13 // max(by, 1), 13 % max(by, 1)] if by else found[0] == 13


EDGES = (
    1,
    2,
    3,
    5,
    7,
    8,
    9,
    31,
    32,
    33,
    63,
    64,
    65,
    641,
    1000,
    65535,
    65536,
    65537,
    6700417,
    2**30,
    2**31 - 2,
    2**31 - 1,
)


@given(st.sampled_from(EDGES) | st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**15))
@settings(derandomize=True, max_examples=500, deadline=None)
def test_values_stay_for_all_dividends_below_two_to_the_31(by, dividend, multiple):
    lowered = values_of(lower_division(kernel_of(BLOCK_ID // N, BLOCK_ID % N), SIZES))
    near = [min(max(multiple * by + step, 0), 2**31 - 1) for step in (-1, 0, 1)]
    for value in (dividend, *near, 0, 2**31 - 1):
        found = [int(evaluate(expression, {"bid": value, "n": by})) for expression in lowered]
        assert found == [value // by, value % by]


# --- launch arguments -----------------------------------------------------------------------------------------------


def hoisted_values(kernel, sizes):
    """Values of launch arguments by name."""
    return {scalar.name: int(evaluate(scalar.value, sizes)) for scalar in kernel.scalars}


HOISTED = (
    BLOCK_ID % ((N + 63) // 64),
    TID * (N * K) + BLOCK_ID * (N * K),
    BLOCK_ID + N * 3 + K * N + 5,
    (TID + N - 1).lt(K),
    (BLOCK_ID * 4 + TID) % (N * 2) + (BLOCK_ID // (N * 2)) * K,
    N,
)


def test_no_size_is_left_and_equal_parts_are_shared():
    after = hoist_launch_arguments(kernel_of(*HOISTED), SIZES)
    assert not any(free_symbols(expression) & SIZES for expression in values_of(after))
    assert len({scalar.value for scalar in after.scalars}) == len(after.scalars)
    assert len({scalar.name for scalar in after.scalars}) == len(after.scalars)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1021])
@pytest.mark.parametrize("k", [16, 4096])
def test_values_stay(n, k):
    before = kernel_of(*HOISTED)
    after = hoist_launch_arguments(before, SIZES)
    arguments = hoisted_values(after, {"n": n, "k": k})
    for bid, tid in ((0, 0), (1, 7), (77, 3)):
        places = {"bid": bid, "tid": tid}
        expected = [int(evaluate(expression, {**places, "n": n, "k": k})) for expression in values_of(before)]
        assert [int(evaluate(expression, {**places, **arguments})) for expression in values_of(after)] == expected


def test_arguments_carry_facts():
    after = hoist_launch_arguments(kernel_of(BLOCK_ID * K), SIZES)
    (argument,) = free_symbols(values_of(after)[0]) - {BLOCK_ID}
    assert (argument.facts.lo, argument.facts.divisor) == (16, 16)


def test_nothing_to_do_without_sizes():
    before = kernel_of(BLOCK_ID // 3 + TID)
    assert hoist_launch_arguments(before, frozenset()) is before


def test_arguments_are_named_apart_from_types():
    """A kernel with many arguments: none may be called s8 or s32."""
    sizes = [sym(f"z{place}", lo=1) for place in range(40)]
    after = hoist_launch_arguments(kernel_of(*(TID * size for size in sizes)), frozenset(sizes))
    assert len(after.scalars) == 40
    assert not {scalar.name for scalar in after.scalars} & {"s8", "u8", "s32", "f16", "f32", "f64", "bf16"}


# --- the whole pipeline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CPU, OPENCL, SM_90A], ids=lambda target: target.name)
@pytest.mark.parametrize("seed", range(12))
def test_dynamic_kernels_depend_on_sizes_through_arguments_alone(seed, target):
    drawn = draw(seed, TYPES)
    contraction = prepare(drawn.dynamic).contraction
    made = generate(contraction, target, plan_for(contraction, target))
    names = {scalar.name for scalar in made.kernel.scalars} | {"bid", "tid"}
    verify(made.kernel, "the pipeline")
    for statement in statements_in(made.kernel.body):
        for expression in statement_expressions(statement):
            assert not {symbol.name for symbol in free_symbols(expression)} & set(drawn.values) - names
    for scalar in made.source.scalars:
        if scalar.name.startswith("arg"):
            assert launch_value(scalar.expression, drawn.values) == int(
                evaluate(next(s.value for s in made.kernel.scalars if s.name == scalar.name), drawn.values)
            )


def test_constant_kernels_take_no_index_arguments():
    for seed in range(12):
        contraction = prepare(draw(seed).static).contraction
        source = generate(contraction, CPU, plan_for(contraction, CPU)).source
        assert all(scalar.name in ("alpha", "beta") for scalar in source.scalars)


def test_golden(golden):
    before = kernel_of(*HOISTED)
    divided = lower_division(before, SIZES)
    after = hoist_launch_arguments(divided, SIZES)
    texts = [kernel_text(replace(kernel, blocks=const(1))) for kernel in (before, divided, after)]
    golden(
        "launch_arguments.txt",
        "\n".join(
            f"--- {name}\n{text}"
            for name, text in zip(("before", "lower_division", "hoist_launch_arguments"), texts, strict=True)
        ),
    )


# --- splitting by loop ----------------------------------------------------------------------------------------------

STEP, ROW = sym("step", lo=0), sym("row", lo=0, hi=63)
MOVING = frozenset((STEP,))


def test_sums_are_split_by_what_the_loop_changes():
    parts = separate(ROW * 8 + STEP * 4 + (STEP + ROW) // 3 + 7, MOVING)
    assert parts.fixed is ROW * 8
    assert parts.moving is STEP * 4 + (STEP + ROW) // 3 + 7
    assert parts.fixed + parts.moving is ROW * 8 + STEP * 4 + (STEP + ROW) // 3 + 7


CONDITIONS = (ROW.lt(5), (ROW * 2 + STEP - 3).ge(0), (ROW * 2 + STEP - 3).lt(14), (STEP % 3).eq(ROW % 3))


def test_both_sides_of_a_window_share_the_fixed_part():
    split = separate_conditions(CONDITIONS, MOVING)
    assert split.fixed is ROW.lt(5)
    assert len({comparison.fixed for comparison in split.comparisons}) == 1
    assert split.others == (CONDITIONS[3],)


def test_split_conditions_say_the_same():
    split = separate_conditions(CONDITIONS, MOVING)
    rebuilt = [split.fixed, *(c.rebuilt(c.fixed) for c in split.comparisons), *split.others]
    grid = {"row": np.arange(20)[:, None], "step": np.arange(20)}

    def all_hold(conditions):
        return np.all([np.broadcast_to(evaluate(c, grid), (20, 20)) for c in conditions], axis=0)

    assert np.array_equal(all_hold(rebuilt), all_hold(CONDITIONS))
    assert all_hold(CONDITIONS).any()
