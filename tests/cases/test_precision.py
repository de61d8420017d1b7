"""Cases PREC: no hidden narrow arithmetic, one rounding to nearest even."""

import ml_dtypes
import numpy as np
import pytest

import convloom
from convloom.compiler import prepare
from convloom.dtypes import F16
from convloom.frontend.device_run import run_on_device
from convloom.frontend.device_target import target_for
from convloom.frontend.problem_check import judge
from convloom.plan.families import plan_text
from convloom.plan.split import Reduction
from convloom.problem.data import DataKind, make_operands
from convloom.problem.gemm_arguments import gemm_problem
from convloom.runtime.device import device_named
from tests.cases.convolution import ConvCase, Op, check
from tests.plan.dividing import divided


def test_prec_01_f32_is_f32():
    """PREC-01: an identity of weights gives every integer of 12 bits and more back."""
    x = (2049 + np.arange(64 * 32) % 2048).astype(np.float32).reshape(1, 64, 4, 8)
    w = np.eye(64, dtype=np.float32).reshape(64, 64, 1, 1)
    assert np.array_equal(convloom.conv(x, w), x)


def test_prec_02_identity_times_a_ramp():
    """PREC-02: a product of 46 x 46 with the identity keeps the last bit above 2048."""
    ramp = np.arange(46 * 46, dtype=np.float32).reshape(46, 46)
    assert np.array_equal(convloom.gemm(np.eye(46, dtype=np.float32), ramp), ramp)


def test_prec_04_a_large_window_in_f16():
    """PREC-04: 23 x 23 taps of one channel whose sum is 175."""
    x, w = np.zeros((1, 1, 48, 50), np.float16), np.zeros((1, 1, 23, 23), np.float16)
    w.reshape(-1)[: 7 * 5] = 5
    x[...] = 1
    assert (convloom.conv(x, w) == 175).all()


def test_prec_05_no_lossy_algorithm(device):
    """PREC-05: f16, 3 x 3, 64 to 128 channels: within the bound of one rounding; fewer pixels on the processor."""
    size = (128, 128) if device != "cpu" else (20, 20)
    case = ConvCase("prec-05", Op.CONV, 1, 64, 128, size, (3, 3), size, padding=1, types=("f16", "f16", "f16"))
    check(case, device)


@pytest.mark.parametrize("zeros", [False, True], ids=["both halves", "one half zero"])
@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC])
def test_prec_09_two_parts_of_a_sum_meet(how, zeros, device):
    """PREC-09: an f16 product whose K is in two parts, both non-zero or one of them 0."""
    problem = gemm_problem(m=128, n=128, k=256, dtypes=(F16, F16, F16))
    target = target_for(device_named(device))
    plan = plan_text(divided(prepare(problem).contraction, target, 2, how=how))
    operands = make_operands(problem, DataKind.REAL)
    if zeros:
        operands.a[:, 128:] = 0
    done = run_on_device(convloom.compile(problem, device, plan), operands)
    outcome = judge(problem, operands, done, DataKind.REAL)
    assert outcome.passed, outcome.reason


def test_prec_10_rounding_to_bf16():
    """PREC-10: to nearest, ties to even; a NaN whose payload is in the low half stays NaN."""
    x = np.array([0.2691408770292272, 3.14, 1.00390625, 0], np.float32)
    x.view(np.uint32)[3] = 0x7F800001
    out = np.zeros((1, 1, 1, 4), ml_dtypes.bfloat16)
    convloom.conv(x.reshape(1, 1, 1, 4), np.ones((1, 1, 1, 1), np.float32), out=out)
    found = out.astype(np.float32).reshape(-1)
    assert found[:3].tolist() == [0.26953125, 3.140625, 1.0]
    assert np.isnan(found[3])
