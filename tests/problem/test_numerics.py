"""Operands with exact sums, error bounds and comparisons."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8
from convloom.errors import IllegalProblem
from convloom.problem.conv import Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.data import (
    DataKind,
    check_nonzero_share,
    choose_fill,
    make_operands,
    nonzero_share,
    reachable_outputs,
)
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense, plain
from convloom.problem.numerics import compare, compare_exact, error_bound, round_to
from convloom.problem.reference import Arithmetic, Operands, Reference, operand_shapes, reference, result_shape

TYPES = [
    (F32, F32, F32),
    (F16, F16, F16),
    (BF16, BF16, BF16),
    (F64, F64, F64),
    (F16, F16, F32),
    (S8, S8, S32),
    (U8, S8, S8),
    (U8, U8, U8),
]


def gemm(m, n, k, dtypes, **rest):
    specs = [TensorSpec(d, dense(shape)) for d, shape in zip(dtypes, ((m, k), (k, n), (m, n)), strict=True)]
    return Gemm((), m, n, k, *specs, **rest)


@pytest.mark.parametrize("dtypes", TYPES)
@pytest.mark.parametrize("k", [1, 9, 600, 5000, 100_000])
def test_integer_data_sum_exactly_and_say_something(dtypes, k):
    problem = gemm(8, 40, k, dtypes)
    found = reference(problem, make_operands(problem), Arithmetic.EXACT, magnitude=True)
    assert found.magnitude.max() <= 2.0**problem.acc.digits
    assert nonzero_share(problem, found.value) >= 0.3
    if dtypes[2].is_float:
        assert np.abs(found.value).max() <= 2 ** dtypes[2].digits


def test_first_magnitudes_then_density_are_lowered():
    small, long, endless = (choose_fill(gemm(1, 1, k, (BF16, BF16, BF16))) for k in (4, 3000, 100_000))
    assert (small.a, small.b, small.density) == (4, 4, 1.0)
    assert (long.a, long.b, long.density) == (1, 1, 1.0)
    assert (endless.a, endless.b) == (1, 1)
    assert endless.density < 1


@pytest.mark.parametrize("direction", Direction)
def test_operands_have_the_types_of_their_roles(direction):
    dtypes = (BF16, F16, F32)
    conv = conv_problem(
        direction=direction, batch=2, in_channels=4, out_channels=6, in_spatial=(5,), kernel=(3,), dtypes=dtypes
    )
    operands = make_operands(conv, DataKind.REAL, 3)
    first, second, _ = conv.roles
    assert operands.a.dtype == conv.spec(first).dtype.numpy
    assert operands.b.dtype == conv.spec(second).dtype.numpy
    assert (operands.a.shape, operands.b.shape) == operand_shapes(conv)
    assert np.abs(operands.a.astype(float)).max() <= 1
    again = make_operands(conv, DataKind.REAL, 3)
    assert np.array_equal(operands.a, again.a)
    assert not np.array_equal(operands.a, make_operands(conv, DataKind.REAL, 4).a)


def test_scaling_and_bias_are_passed_where_declared():
    problem = gemm(3, 4, 5, (F32, F32, F32), bias=F32, scaling=Scaling(alpha=True, beta=True))
    operands = make_operands(problem)
    assert operands.alpha != 1
    assert operands.beta != 0
    assert operands.bias is not None
    assert operands.old is not None
    bare = make_operands(gemm(3, 4, 5, (F32, F32, F32)))
    assert (bare.alpha, bare.beta, bare.bias, bare.old) == (1.0, 0.0, None, None)


def test_elements_that_share_memory_are_equal():
    conv = conv_problem(
        batch=3, in_channels=2, out_channels=2, in_spatial=(4,), kernel=(2,), layouts=(plain((0, 4, 1)), None, None)
    )
    a = make_operands(conv).a
    assert np.array_equal(a[0], a[1])
    assert np.array_equal(a[0], a[2])


@given(
    st.sampled_from(Direction),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(-2, 5),
)
@settings(derandomize=True, max_examples=150, deadline=None)
def test_reachable_outputs_are_those_of_positive_data(direction, extent, outputs, kernel, stride, dilation, pad):
    base = conv_problem(batch=2, in_channels=2, out_channels=3, in_spatial=(extent,), kernel=(1,))
    conv = type(base)(
        direction, 2, 2, 3, 1, (extent,), (outputs,), (kernel,), (stride,), (dilation,), (pad,),
        *[TensorSpec(F32, dense(shape)) for shape in ((2, 2, extent), (3, 2, kernel), (2, 3, outputs))],
    )  # fmt: skip
    ones = Operands(*[np.ones(shape) for shape in operand_shapes(conv)])
    result = reference(conv, ones).value
    assert reachable_outputs(conv) == np.count_nonzero(result)
    assert nonzero_share(conv, result) == 1.0


def test_bias_makes_all_outputs_count():
    conv = conv_transpose_problem(
        batch=1, in_channels=1, out_channels=2, in_spatial=(3,), kernel=(1,), stride=4, bias=F32
    )
    assert reachable_outputs(conv) == 2 * 9


def test_too_few_nonzero_outputs_are_an_error():
    problem = gemm(2, 5, 3, (F32, F32, F32))
    with pytest.raises(IllegalProblem, match="30%"):
        check_nonzero_share(problem, np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]))
    check_nonzero_share(problem, np.ones((2, 5)))


@pytest.mark.parametrize("dtypes", [t for t in TYPES if t[2].is_float])
def test_rounded_reference_is_within_bound_and_exact(dtypes):
    problem = gemm(7, 9, 50, dtypes)
    found = reference(problem, make_operands(problem, DataKind.REAL), magnitude=True)
    result = round_to(dtypes[2], found.value)
    outcome = compare(problem, result, found)
    assert outcome.passed
    assert 0 < outcome.max_ratio <= 1 or dtypes[2] is F64
    assert compare_exact(problem, result, found).passed


@pytest.mark.parametrize("dtypes", [(F32, F32, F32), (F16, F16, F16), (BF16, BF16, BF16)])
def test_a_wrong_element_is_found(dtypes):
    problem = gemm(7, 9, 50, dtypes)
    found = reference(problem, make_operands(problem, DataKind.REAL), magnitude=True)
    result = round_to(dtypes[2], found.value)
    result[3, 4] += 1
    outcome = compare(problem, result, found)
    assert (outcome.mismatches, outcome.first_bad) == (1, (3, 4))
    assert outcome.max_ratio > 1
    assert outcome.given != outcome.expected


def test_bound_has_the_value_of_its_formula():
    problem = gemm(1, 1, 2, (F16, F16, F16))
    found = Reference(np.array([[3.0]]), np.array([[5.0]]), 2)
    assert error_bound(problem, found).item() == 2.0**-11 * 3 + 2.0**-25 + 2 * 2 * 2.0**-24 * 5
    assert error_bound(problem, found, factor=2).item() == 2 * error_bound(problem, found).item()


def test_integer_results_have_no_slack_without_float_operations():
    problem = gemm(2, 2, 4, (S8, S8, S32))
    found = reference(problem, make_operands(problem), magnitude=True)
    assert not error_bound(problem, found).any()
    assert error_bound(gemm(2, 2, 4, (S8, S8, S32), scaling=Scaling(alpha=True)), found).min() >= 0.5


def test_rounding_saturates_and_ties_to_even():
    assert round_to(S8, np.array([0.5, 1.5, -2.5, 300.0, -300.0])).tolist() == [0, 2, -2, 127, -128]
    assert round_to(U8, np.array([-1, 256, 7])).tolist() == [0, 255, 7]
    assert round_to(F16, np.array([2049.0, 2051.0, 1e6])).tolist() == [2048, 2052, np.inf]
    assert round_to(BF16, np.array([257, 259])).astype(float).tolist() == [256, 260]


def special(values, result):
    problem = gemm(1, len(values), 1, (F16, F16, F16))
    found = Reference(np.array([values]), np.abs(np.nan_to_num(np.array([values]), posinf=0, neginf=0)), 1)
    return compare(problem, np.array([result], np.float16), found)


def test_special_values_must_agree_in_kind():
    assert special([np.nan, np.inf, -np.inf, 1e6], [np.nan, np.inf, -np.inf, np.inf]).passed
    for wanted, given_value in (
        (np.nan, 0),
        (0, np.nan),
        (np.inf, -np.inf),
        (np.inf, 65504),
        (5, np.inf),
        (1e6, -np.inf),
    ):
        assert not special([wanted], [given_value]).passed


def test_comparison_of_nothing_and_of_another_shape():
    problem = gemm(0, 3, 4, (F32, F32, F32))
    found = reference(problem, make_operands(problem), magnitude=True)
    assert compare(problem, np.zeros((0, 3), np.float32), found).passed
    assert result_shape(problem) == (0, 3)
    with pytest.raises(IllegalProblem, match="shape"):
        compare(problem, np.zeros((1, 3), np.float32), found)


def test_bound_needs_magnitudes():
    problem = gemm(1, 1, 1, (F32, F32, F32))
    with pytest.raises(IllegalProblem, match="magnitude=True"):
        error_bound(problem, reference(problem, make_operands(problem)))
