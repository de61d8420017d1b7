"""Atomic additions in every dialect: their text, their machine code, and that none is lost."""

import re

import numpy as np
import pytest

import convloom
from convloom.compiler import generate
from convloom.dtypes import F32, F64, S8, S32
from convloom.errors import Infeasible, UnsupportedTarget
from convloom.plan.split import Reduction
from convloom.plan.tiled import plan_text
from convloom.problem.conv import TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.runtime import nvrtc
from convloom.settings import scoped
from convloom.target.arch import CPU, OPENCL, SM_90A
from tests.plan.dividing import contraction_of, divided

TYPES = {"f32": (F32, F32, F32), "f64": (F64, F64, F64), "s32": (S8, S8, S32)}
WORDS = {CPU: r"__atomic_", OPENCL: r"atomic_(cmpxchg|add)\(", SM_90A: r"atomicAdd\(p, v\)"}


def program(problem, target):
    contraction = contraction_of(problem)
    return generate(contraction, target, divided(contraction, target, 4, how=Reduction.ATOMIC)).program


def product(types):
    shapes = ((8, 999), (999, 8), (8, 8))
    specs = (TensorSpec(dtype, dense(shape)) for dtype, shape in zip(types, shapes, strict=True))
    return Gemm((), 8, 8, 999, *specs)


@pytest.mark.parametrize("target", WORDS, ids=lambda target: target.name)
@pytest.mark.parametrize("name", TYPES)
def test_texts(name, target):
    problem = product(TYPES[name])
    if (name, target) == ("f64", OPENCL):
        with pytest.raises(AssertionError, match=r"opencl adds numbers of \(32,\) bits atomically; sums are f64"):
            program(problem, target)
        return
    clear, tiled = program(problem, target).launches
    assert re.search(WORDS[target], tiled.text)
    assert "atomic" not in clear.text


@pytest.mark.parametrize("name", TYPES)
def test_machine_code_reduces_in_memory(name):
    try:
        compiler = nvrtc.current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    (_, tiled) = program(product(TYPES[name]), SM_90A).launches
    binary = compiler.compile(tiled)
    assert nvrtc.resources_from_log(binary.log).spill_bytes == 0
    code = compiler.machine_code(tiled, binary)
    if code.startswith("("):
        pytest.skip(code)
    assert re.search(r"\bRED(G)?\.E\.ADD", code)
    assert not re.search(r"\bATOMG?\.", code)


@pytest.mark.parametrize("name", TYPES)
def test_no_addition_is_lost_among_threads(name):
    """Many blocks on few numbers at the same time, exact data."""
    types = TYPES[name]
    problem = product(types)
    text = plan_text(divided(contraction_of(problem), CPU, 60, how=Reduction.ATOMIC))
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape).astype(types[0].numpy) for shape in ((8, 999), (999, 8)))
    expected = a.astype(np.int64) @ b.astype(np.int64)
    with scoped(threads=4):
        kernel = convloom.compile(problem, "cpu", text)
        for _ in range(30):
            assert np.array_equal(kernel(a, b), expected)


def test_deterministic_kernels_add_no_floats_atomically():
    floats, integers = product(TYPES["f32"]), product(TYPES["s32"])
    text = plan_text(divided(contraction_of(floats), CPU, 4, how=Reduction.ATOMIC))
    with pytest.raises(Infeasible, match=r"order that does not depend on time; split=atomic\*4 adds f32 atomically"):
        convloom.compile(floats, "cpu", text, deterministic=True)
    text = plan_text(divided(contraction_of(integers), CPU, 4, how=Reduction.ATOMIC))
    assert convloom.compile(integers, "cpu", text, deterministic=True).workspace_bytes() == 0
