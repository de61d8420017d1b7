"""The same random problems and plans through OpenCL, where a platform is found."""

import random
from dataclasses import replace

import pytest

from convloom.compiler import generate, plan_for, prepare
from convloom.errors import UnsupportedTarget
from convloom.problem.data import make_operands
from convloom.problem.layout_memory import buffer_origin
from convloom.problem.numerics import compare_exact
from convloom.runtime.device import device_named
from convloom.target.arch import OPENCL
from tests.lower.running import exact_reference, images, run
from tests.plan.drawing import draw_plan
from tests.problem.drawing import TYPES, draw

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def device():
    try:
        return device_named("opencl")
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def seeds(count):
    """Problems whose tensors begin at their first byte: parts of OpenCL buffers begin at multiples of 128."""
    found = []
    for seed in range(10 * count):
        problem = draw(seed, TYPES).static
        tensors = images(problem, make_operands(problem)).values()
        if all(buffer_origin(tensor.layout, tensor.shape) == 0 for tensor in tensors):
            found.append(seed)
    return found[:count]


@pytest.mark.parametrize("seed", seeds(10))
def test_random_plans(device, seed):
    drawn = draw(seed, TYPES)
    operands = make_operands(drawn.static, seed=seed)
    problem, sizes = ((drawn.static, {}), (drawn.dynamic, drawn.values))[seed % 2]
    form = prepare(problem)
    plan = replace(draw_plan(random.Random(seed), form.contraction, OPENCL), unroll_k=False)
    program = generate(form.contraction, OPENCL, plan).program
    found = run(program, dict(form.tensors), drawn.static, operands, sizes, device)
    assert compare_exact(drawn.static, found, exact_reference(drawn.static, operands)).passed


@pytest.mark.parametrize("seed", seeds(13)[10:])
def test_chosen_plans(device, seed):
    drawn = draw(seed, TYPES)
    operands = make_operands(drawn.static, seed=seed)
    form = prepare(drawn.static)
    program = generate(form.contraction, OPENCL, plan_for(form.contraction, OPENCL)).program
    found = run(program, dict(form.tensors), drawn.static, operands, {}, device)
    assert compare_exact(drawn.static, found, exact_reference(drawn.static, operands)).passed
