"""Every function of element values, in each dialect: accuracy over a sweep, special values, compilation for GPUs."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

import convloom
from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import F32, F64
from convloom.errors import UnsupportedTarget
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.epilogue import (
    ACCUMULATOR,
    Binary,
    BinaryKind,
    Eltwise,
    EltwiseKind,
    Epilogue,
    EpilogueOperand,
    Input,
    Number,
    Select,
)
from convloom.problem.epilogue.bounded import Bounded, Evaluation, evaluate
from convloom.problem.fused_reference import FusedReference, compare_fused
from convloom.runtime.nvrtc import current_nvrtc
from convloom.target.arch import target_named

KINDS = tuple(EltwiseKind)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-38, -1e-38, 1e-20, 88.0, -88.0, 200.0, -200.0, 1e30, -1e30]


def choice(kinds):
    """One channel per kind: nested selections by the channel's number."""
    nodes = [Eltwise(kind, ACCUMULATOR, 0.75, 1.5) for kind in kinds]
    chosen = reduce(
        lambda rest, item: Select(Binary(BinaryKind.EQ, Input(0), Number(float(item[0]))), item[1], rest),
        enumerate(nodes),
        ACCUMULATOR,
    )
    return nodes, Epilogue((EpilogueOperand("which", F32, 2),), expression=chosen)


def sweep(dtype):
    dense = np.concatenate([np.linspace(-12, 12, 1500), np.geomspace(1e-6, 80, 250), -np.geomspace(1e-6, 80, 250)])
    return np.concatenate([dense, SPECIAL]).astype(dtype)


def one_tap(size, dtype, count):
    return conv_problem(
        batch=1, in_channels=1, out_channels=count, in_spatial=(size,), kernel=(1,), dtypes=(dtype, dtype, dtype)
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("device", ["cpu", "interpret", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_every_kind_within_its_bound(device, dtype):
    nodes, epilogue = choice(KINDS)
    values = sweep(dtype.numpy)
    problem = replace(one_tap(len(values), dtype, len(nodes)), epilogue=epilogue)
    result = run(problem, device, values, len(nodes))
    x = values.astype(np.float64)
    at = Evaluation(Bounded(x, np.zeros_like(x)), None, dtype, (), dtype)
    for number, node in enumerate(nodes):
        expected = evaluate(node, at)
        defined = ~np.isnan(expected.value) | np.isnan(x)  # 0 * inf, and powers and logarithms of negative numbers
        value = expected.value[defined]
        within = FusedReference(value, expected.error[defined], np.zeros_like(value))
        found = compare_fused(problem, result[0, number][defined], within)
        assert found.passed, f"{node.kind}: {found}"


def run(problem, device, values, count):
    try:
        kernel = convloom.compile(problem, "interpret" if device == "opencl" else device)
        if device == "opencl":
            return on_opencl(problem, values, count)
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    x, w = values.reshape(1, 1, -1), np.ones((count, 1, 1), values.dtype)
    return kernel(x, w, operands=(np.arange(count, dtype=np.float32).reshape(1, -1, 1),))


def on_opencl(problem, values, count):
    from convloom.frontend.device_run import run_on_device
    from convloom.problem.reference import Operands

    extras = (np.arange(count, dtype=np.float32).reshape(1, -1, 1),)
    operands = Operands(values.reshape(1, 1, -1), np.ones((count, 1, 1), values.dtype), extras=extras)
    return run_on_device(convloom.compile(problem, "opencl"), operands).result


def test_special_values_pass_through():
    """NaN stays NaN in relu and clip; relu of -inf is 0; saturation ends the range."""
    problem = one_tap(4, F32, 1)
    x, w = np.array([np.nan, -np.inf, np.inf, -0.0], np.float32).reshape(1, 1, 4), np.ones((1, 1, 1), np.float32)
    relu = convloom.compile(problem, "interpret", epilogue=convloom.relu)(x, w).reshape(-1)
    assert np.isnan(relu[0])
    assert relu[1:].tolist() == [0, np.inf, 0]
    clip = convloom.compile(problem, "interpret", epilogue=lambda acc: convloom.clip(acc, -1, 6))(x, w).reshape(-1)
    assert np.isnan(clip[0])
    assert clip[1:].tolist() == [-1, 6, 0]
    largest = convloom.compile(problem, "interpret", epilogue=lambda acc: convloom.maximum(0, acc))(x, w).reshape(-1)
    assert np.isnan(largest[0])


def test_every_function_compiles_for_cuda():
    try:
        nvrtc = current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    nodes, epilogue = choice(KINDS)
    both = reduce(lambda left, kind: Binary(kind, left, Input(0)), BinaryKind, epilogue.expression)
    problem = replace(one_tap(64, F32, len(nodes)), epilogue=replace(epilogue, expression=both))
    contraction, target = prepare(problem).contraction, target_named("sm_90")
    generated = generate(contraction, target, plan_for(contraction, target))
    assert nvrtc.compile(generated.source).payload
