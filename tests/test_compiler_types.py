"""Mixtures of element types, in the directions in which they are used: exact on the cpu and interpret devices."""

import numpy as np
import pytest

from convloom.dtypes import E4M3, E5M2, F16, F32, F64, S32, accumulator, dtype_named
from convloom.frontend.compile import compile
from convloom.frontend.problem_check import check_problem
from convloom.problem.data import DataKind
from convloom.problem.notation.choose import parse_problem
from convloom.problem.numerics import round_to

LINE = "mb2ic6ih5oc10oh5kh3ph1"
FORWARD = (  # src:wei:dst; the bias of each is the last word
    ("f32:f32:f32", "f32"),
    ("f32:f32:u8", None),
    ("f32:f32:s8", "f32"),
    ("f16:f16:f32", "f16"),
    ("f16:f16:u8", None),
    ("f16:f16:s8", "f32"),
    ("bf16:bf16:f32", "bf16"),
    ("bf16:bf16:s8", None),
    ("u8:s8:u8", "s32"),
    ("u8:s8:s8", "s8"),
    ("s8:s8:s32", "u8"),
    ("u8:s8:f32", "f32"),
    ("s8:u8:f16", "f16"),
    ("u8:u8:bf16", "bf16"),
    ("e4m3:e4m3:e4m3", "f32"),
    ("e5m2:e4m3:f16", "f16"),
    ("e4m3:e5m2:bf16", None),
    ("e5m2:e5m2:f32", None),
    ("f64:f64:f64", "f64"),
    ("tf32", "f32"),
)
BACKWARD_DATA = (
    ("f32:bf16:bf16", None),
    ("bf16:bf16:bf16", None),
    ("f32:f16:f16", None),
    ("u8:s8:u8", "s32"),
    ("s8:s8:u8", None),
    ("e5m2:e4m3:e5m2", None),
    ("f64:f64:f64", None),
)
BACKWARD_WEIGHTS = (
    ("bf16:f32:bf16", None),
    ("f16:f16:f16", None),
    ("e5m2:f32:e5m2", None),
    ("e4m3:bf16:e4m3", None),
    ("f64:f64:f64", None),
)
CASES = [
    (direction, types, bias)
    for direction, cases in (("fwd", FORWARD), ("bwd_d", BACKWARD_DATA), ("bwd_w", BACKWARD_WEIGHTS))
    for types, bias in cases
]


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize(("direction", "types", "bias"), CASES)
def test_mixture(device, direction, types, bias):
    number = CASES.index((direction, types, bias))
    tag = ("abx", "axb")[number % 2]
    named = None if bias is None else dtype_named(bias)
    problem = parse_problem(LINE, direction=direction, dtypes=types, bias=named, stag=tag, wtag=tag, dtag=tag)
    outcome = check_problem(compile(problem, device), DataKind.INT, seed=number)
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize("types", ["tf32", "e4m3:e5m2:e4m3", "e5m2:e5m2:e5m2", "f16:f16:f32", "bf16:bf16:bf16", "f64"])
def test_reals_stay_within_the_bound(types):
    problem = parse_problem(LINE, dtypes=types)
    outcome = check_problem(compile(problem, "interpret"), DataKind.REAL)
    assert outcome.passed, outcome.reason


def test_sums_are_wider_than_factors():
    for a, b, acc in ((E4M3, E5M2, F32), (F16, F16, F32), (F64, F64, F64)):
        assert accumulator(a, b) is acc
    assert accumulator(dtype_named("u8"), dtype_named("s8")) is S32


def test_8_bit_floats_saturate_and_keep_nan():
    values = np.array([460.0, 464.0, 1e9, -np.inf, np.nan, 2.0**-10, 3 * 2.0**-10])
    assert round_to(E4M3, values).astype(float).tolist()[:4] == [448.0, 448.0, 448.0, -448.0]
    assert np.isnan(round_to(E4M3, values)[4])
    assert round_to(E4M3, values).astype(float).tolist()[5:] == [0.0, 2.0**-8]
    assert round_to(E5M2, values).astype(float).tolist()[:4] == [448.0, 448.0, 57344.0, -57344.0]


def test_tf32_is_asked_for_by_name_and_printed():
    problem = parse_problem(LINE, dtypes="tf32")
    assert problem.tf32
    assert problem.src.dtype is F32
    assert not parse_problem(LINE).tf32
    assert parse_problem("--attr-fpmath=tf32 " + LINE).tf32
    assert not parse_problem("--attr-fpmath=strict " + LINE, dtypes="tf32").tf32
    with pytest.raises(TypeError, match="tf32 stands for products of f32; got f16 and f16"):
        parse_problem("--attr-fpmath=tf32 --dt=f16 " + LINE)
