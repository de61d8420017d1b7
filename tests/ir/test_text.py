"""The text form of kernels reads back to an equal kernel; broken text is refused with the line that breaks it."""

import pytest

from convloom.compiler import generate, plan_for, prepare
from convloom.errors import IllegalProblem
from convloom.ir.parse import parse_kernel
from convloom.ir.text import kernel_text
from convloom.plan.split import Reduction
from convloom.problem.conv import Direction
from convloom.problem.notation import parse_problem
from convloom.target.arch import INTERPRET, target_named
from tests.plan.dividing import divided

LINES = (
    "mb2ic16ih14oc32oh14kh3ph1",
    "g4mb2ic16ih15oc32oh8kh3ph1sh2",
    "mb2ic3id7oc5od4kd3sd2pd1",
)


def kernel(line, direction=Direction.FWD, target="interpret"):
    contraction, machine = prepare(parse_problem(line, direction=direction)).contraction, target_named(target)
    return generate(contraction, machine, plan_for(contraction, machine)).kernel


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("target", ["interpret", "cpu", "sm_90a"])
@pytest.mark.parametrize("line", LINES)
def test_generated_kernels_read_back_equal(line, direction, target):
    made = kernel(line, direction, target)
    assert parse_kernel(kernel_text(made)) == made


def test_the_artifact_of_the_interpreter_is_the_text():
    contraction, machine = prepare(parse_problem(LINES[0])).contraction, target_named("interpret")
    generated = generate(contraction, machine, plan_for(contraction, machine))
    assert generated.source.text == kernel_text(generated.kernel)
    assert parse_kernel(generated.source.text) == generated.kernel


def test_dynamic_sizes_stand_in_the_header():
    import convloom
    from convloom.dtypes import F32
    from convloom.problem.gemm import Gemm

    n, k = convloom.dim("n", divisible=16), convloom.dim("k", min=3, max=1000)
    problem = _gemm(Gemm, n, k, F32)
    contraction, machine = prepare(problem).contraction, target_named("interpret")
    made = generate(contraction, machine, plan_for(contraction, machine)).kernel
    text = kernel_text(made)
    assert "size n[" in text
    assert "%16" in text
    assert parse_kernel(text) == made


def _gemm(gemm, n, k, dtype):
    from convloom.problem.conv import Scaling, TensorSpec
    from convloom.problem.layout import dense

    def spec(*shape):
        return TensorSpec(dtype, dense(shape, range(len(shape))))

    return gemm((), 32, n, k, spec(32, k), spec(k, n), spec(32, n), None, Scaling(True, True))


def test_atomic_additions_read_back():
    contraction, machine = prepare(parse_problem(LINES[0], direction=Direction.BWD_W)).contraction, INTERPRET
    made = generate(contraction, machine, divided(contraction, machine, 3, how=Reduction.ATOMIC)).kernel
    assert "\n  add c[" in kernel_text(made)
    assert parse_kernel(kernel_text(made)) == made


GOOD = kernel_text(kernel(LINES[0]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("threads ", "thread ", "needs a line that starts with 'threads'"),
        ("blocks ", "block ", "starts with 'blocks'"),
        ("barrier", "barier", "needs one of let, shared"),
        ("= read(", "= raed(", "a value is one of const"),
        ("shared ", "shared = ", "an allocation is written name"),
        (" unrolled", "", "for name"),
    ],
)
def test_broken_text_names_rule_and_line(old, new, message):
    assert old in GOOD
    with pytest.raises(IllegalProblem, match=message):
        parse_kernel(GOOD.replace(old, new, 1))
