"""NaN, infinity, zeros with a sign and subnormal numbers."""

import numpy as np
import pytest

import convloom
from convloom.problem.reference import Operands
from tests.cases.convolution import ConvCase, Op, call_guarded, integers, run
from tests.cases.memory import BFLOAT16, Guarded

F32 = np.float32
SPV_03 = ConvCase("SPV-03", Op.CONV, 1, 8, 8, (8, 8), (3, 3), (8, 8), padding=1)


def with_one(shape, place, value, seed):
    array = integers(shape, seed=seed)
    array[place] = value
    return array


# --- SPV-03: NaN is seen exactly where it is used -------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=lambda value: f"SPV-03-{value}")
def test_a_bad_input_is_in_every_window_around_it(value):
    x = with_one((1, 8, 8, 8), (0, 3, 4, 4), value, 0)
    w = np.ones((8, 8, 3, 3), F32)
    y = call_guarded(SPV_03, Operands(x, w))
    expected = np.zeros((8, 8), bool)
    expected[3:6, 3:6] = True
    assert np.array_equal(~np.isfinite(y), np.broadcast_to(expected, y.shape))
    assert np.array_equal(y[..., expected], np.full((1, 8, 9), value), equal_nan=True)


@pytest.mark.parametrize("tap", [(1, 1), (0, 0), (2, 1)], ids=lambda tap: f"SPV-03-weight-{tap[0]}{tap[1]}")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_weight_is_in_its_whole_output_channel(tap, value):
    """Padding is an exact zero that is multiplied: 0 * NaN and 0 * infinity are NaN there too."""
    x = np.abs(integers((1, 8, 8, 8))) + F32(1)
    w = with_one((8, 8, 3, 3), (2, 3, *tap), value, 1)
    y = call_guarded(SPV_03, Operands(x, w))
    bad = ~np.isfinite(y)
    assert bad[:, 2].all()
    assert not np.delete(bad, 2, axis=1).any()
    rows, columns = (
        np.array([0 <= out + offset - 1 < 8 for out in range(8)]) for offset in tap
    )  # fmt: skip
    inside = np.outer(rows, columns)
    assert np.isnan(y[0, 2][~inside]).all()
    assert np.array_equal(y[0, 2][inside], np.full(inside.sum(), value), equal_nan=True)


@pytest.mark.parametrize("case", ["SPV-03-gradients"])
def test_a_bad_gradient_is_in_both_results(case):
    dy = with_one((1, 8, 8, 8), (0, 3, 4, 4), np.nan, 0)
    x, w = integers((1, 8, 8, 8), seed=1), integers((8, 8, 3, 3), seed=2)
    dx = convloom.conv_input_grad(x.shape, w, dy, padding=1)
    expected = np.zeros((8, 8), bool)
    expected[3:6, 3:6] = True
    assert np.array_equal(np.isnan(dx), np.broadcast_to(expected, dx.shape))
    dw = convloom.conv_weight_grad(x, w.shape, dy, padding=1)
    assert np.isnan(dw[3]).all()
    assert not np.isnan(np.delete(dw, 3, axis=0)).any()


# --- SPV-04: beta = 0 does not read -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"beta": 0.0}, {"accumulate": False}, {"alpha": 2.0, "beta": 0.0}], ids=["SPV-04", "SPV-04-beta", "SPV-04-accumulate", "SPV-04-alpha"])  # fmt: skip  # noqa: E501
def test_the_old_result_does_not_matter_without_beta(options):
    a, b = integers((64, 64)), integers((64, 64), seed=1)
    out = Guarded((64, 64), F32)
    assert np.isnan(out.array).all()
    convloom.gemm(a, b, out=out.array, **options)
    assert np.array_equal(out.array, options.get("alpha", 1) * (a @ b))
    x, w, y = integers((2, 3, 9, 9)), integers((4, 3, 3, 3), seed=1), Guarded((2, 4, 7, 7), F32)
    convloom.conv(x, w, out=y.array, **options)
    assert np.array_equal(y.array, F32(options.get("alpha", 1)) * convloom.conv(x, w))


@pytest.mark.parametrize("case", ["SPV-04-beta-1"])
def test_the_old_result_matters_with_beta(case):
    a, b, old = integers((64, 64)), integers((64, 64), seed=1), integers((64, 64), seed=2)
    old[5, 6] = np.nan
    out = Guarded((64, 64), F32, values=old)
    convloom.gemm(a, b, out=out.array, accumulate=True)
    assert np.array_equal(out.array, a @ b + old, equal_nan=True)
    assert np.isnan(out.array).sum() == 1


# --- SPV-06: signed zeros -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["SPV-06"])
def test_a_rectified_result_is_a_zero(case):
    """The sign of a zero is not fixed (docs/numerics.md compares zeros as equal), that of a rectified negative is."""
    x = np.array([[[[-0.0, -3.0]]]], F32)
    y = convloom.conv(x, np.ones((1, 1, 1, 1), F32))
    assert y.ravel().tolist() == [0.0, -3.0]
    rectified = np.maximum(y, F32(0))
    assert np.all(rectified == 0)
    assert not np.signbit(rectified[0, 0, 0, 1])


# --- SPV-07: subnormal numbers are numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["SPV-07"])
def test_subnormal_halves_are_not_flushed(case):
    a, b = np.ones((64, 64), np.float16), np.full((64, 64), 2.0**-15, np.float16)
    assert 0 < b[0, 0] < np.finfo(np.float16).tiny
    assert np.all(convloom.gemm(a, b) == 2.0**-9)
    assert np.all(convloom.gemm(b, a) == 2.0**-9)


SUBNORMAL_STEPS = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}
TYPES = {"f16": np.float16, "bf16": BFLOAT16, "f32": F32, "f64": np.float64}


@pytest.mark.parametrize("op", [Op.CONV, Op.INPUT_GRAD, Op.WEIGHT_GRAD], ids=lambda op: f"SPV-07-{op.value}")
@pytest.mark.parametrize("dtype", TYPES)
def test_results_scale_down_to_the_smallest_numbers(op, dtype, device):
    """Small integers times the smallest positive number give those integers' result times that number, exactly."""
    case = ConvCase("SPV-07", op, 1, 2, 2, (6, 5), (3, 3), (6, 5), padding=1, types=(dtype,) * 3)
    kind, step = TYPES[dtype], SUBNORMAL_STEPS[dtype]
    shapes = {Op.CONV: ((1, 2, 6, 5), (2, 2, 3, 3)), Op.INPUT_GRAD: ((1, 2, 6, 5), (2, 2, 3, 3))}
    first, second = shapes.get(op, ((1, 2, 6, 5), (1, 2, 6, 5)))
    a, b = integers(first, np.float64, 2), integers(second, np.float64, 1, seed=1)
    whole = run(case.problem(), Operands(a.astype(kind), b.astype(kind)), device).astype(np.float64)
    tiny = run(case.problem(), Operands((a * step).astype(kind), b.astype(kind)), device).astype(np.float64)
    assert np.count_nonzero(whole) > whole.size / 2
    assert np.abs(whole).max() < 127
    assert np.array_equal(tiny, whole * step)
