"""The fuzz: a bounded run, what it draws, that it finds planted faults, and that its command lines repeat them."""

import shlex
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from convloom.cli import app
from convloom.compiler import prepare
from convloom.frontend import fuzz_run
from convloom.frontend.device_run import run_on_device
from convloom.frontend.device_target import target_for
from convloom.frontend.fuzz_case import ConvSizes, FuzzCase, GemmSizes
from convloom.frontend.fuzz_draw import draw_case
from convloom.frontend.fuzz_run import Kind, run_case, shrink
from convloom.frontend.interpret_device import InterpretBuilt, InterpretDevice
from convloom.ir.interpret.options import Landing
from convloom.plan.check_plan import check_plan
from convloom.plan.families import parse_plan
from convloom.plan.policy import Policy
from convloom.problem.conv import Scaling
from convloom.problem.data import make_operands
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.fused_reference import fused_reference
from convloom.runtime.device import device_named
from convloom.target.arch import CPU, INTERPRET

SEEDS = range(60)


@pytest.fixture(scope="module")
def drawn():
    return [draw_case(Random(seed), INTERPRET) for seed in SEEDS]


def test_a_bounded_run_finds_nothing():
    result = CliRunner().invoke(
        app, ["fuzz", "--seconds", "6", "--cases", "60", "--device", "interpret", "--seed", "7"]
    )
    assert result.exit_code == 0, result.output
    assert "0 faults" in result.output


def test_a_bounded_run_on_the_cpu_finds_nothing():
    result = CliRunner().invoke(app, ["fuzz", "--seconds", "6", "--cases", "40", "--device", "cpu", "--seed", "7"])
    assert result.exit_code == 0, result.output
    assert "0 faults" in result.output


def test_cases_depend_on_their_seed_alone():
    assert draw_case(Random(3), INTERPRET) == draw_case(Random(3), INTERPRET)
    assert len({draw_case(Random(seed), CPU) for seed in range(10)}) == 10


def test_all_kinds_are_drawn(drawn):
    assert {case.direction for case in drawn} == {"fwd", "bwd_d", "bwd_w"}
    assert {type(case.sizes) for case in drawn} == {ConvSizes, GemmSizes}
    for name in ("bias", "dynamic", "plan", "order"):
        assert {bool(getattr(case, name)) for case in drawn} == {True, False}
    assert {case.scaling for case in drawn} >= {Scaling(True, False), Scaling(False, True), Scaling(False, False)}
    assert any("row=mma" in (case.plan or "") for case in drawn)
    assert {len(case.sizes.spatial) for case in drawn if isinstance(case.sizes, ConvSizes)} == {1, 2, 3}
    assert len({case.dtypes for case in drawn}) > 6
    assert {case.policy.deterministic for case in drawn} == {True, False}
    assert {case.policy.max_workspace for case in drawn} >= {None, 0}
    for way in ("none", "passes", "atomic"):
        assert any(f"split={way}" in (case.plan or "") for case in drawn)


def test_plans_of_the_hopper_family_are_drawn():
    drawn = [draw_case(Random(seed), INTERPRET) for seed in range(120)]
    plans = [parse_plan(case.plan) for case in drawn if (case.plan or "").startswith("hopper")]
    assert len(plans) > 4
    assert len({plan.stages for plan in plans}) > 1
    assert not any((case.plan or "").startswith("hopper") for case in [draw_case(Random(s), CPU) for s in range(30)])


def test_all_kinds_of_epilogues_are_drawn():
    drawn = [draw_case(Random(seed), INTERPRET).attributes for seed in range(400)]
    steps = {step.split(":")[0] for case in drawn for step in case.post_ops.split("+")}
    assert steps >= {
        "relu",
        "abs",
        "clip",
        "linear",
        "square",
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "sum",
        "prelu",
    }
    for name in ("src", "wei", "dst"):
        assert any(f"{name}:" in case.scales for case in drawn)
        assert any(f"{name}:" in case.zero_points for case in drawn)


def test_epilogues_keep_integers_exact_and_apart(drawn):
    """A comparison within a bound, or of a constant, would say too little."""
    fused = [case.called_problem() for case in drawn if not case.attributes.is_empty]
    found = [fused_reference(problem, make_operands(problem), exact=True) for problem in fused]
    exact = [bool((item.error == 0).all()) for item in found]
    many = [np.unique(item.value).size >= min(3, item.value.size) for item in found]
    assert len(fused) > 15
    assert np.mean(exact) > 0.9
    assert np.mean(many) > 0.8


def test_plans_obey_the_policy(drawn):
    for case in drawn:
        if case.plan is not None:
            contraction = prepare(case.compiled_problem()).contraction
            assert check_plan(parse_plan(case.plan), contraction, INTERPRET, case.policy) is None


def test_the_command_line_describes_the_same_problem(drawn, monkeypatch):
    seen = []

    def compiled(problem, device, plan, *, deterministic, max_workspace):
        seen.append((problem, plan, Policy(deterministic, max_workspace)))

    monkeypatch.setattr("convloom.cli.run.compile", compiled)
    for case in drawn:
        words = shlex.split(case.command("interpret"))
        start = words.index("convloom")
        assert words[:start] == ([] if case.order is None else ["env", f"CONVLOOM_INTERPRET_ORDER={case.order}"])
        CliRunner().invoke(app, words[start + 1 :])
        assert seen[-1] == (case.compiled_problem(), case.plan, case.policy)
    assert len(seen) == len(drawn)


def test_a_command_line_runs():
    case = FuzzCase(GemmSizes(1, 5, 7, 3, (True, False, True)), "fwd", "f16", bias="f16", dynamic=True)
    result = CliRunner().invoke(app, shlex.split(case.command("interpret"))[1:])
    assert result.exit_code == 0, result.output
    assert result.output.rstrip().endswith("passed")


# --- planted faults -------------------------------------------------------------------------------------------------


class Faulty(InterpretDevice):
    """Kernels whose text had a piece replaced."""

    name = "faulty"

    def __init__(self, old, new):
        super().__init__()
        self.replaced = old, new

    def _build(self, source):
        return InterpretBuilt(replace(source, text=source.text.replace(*self.replaced)), self)


CASE = FuzzCase(
    ConvSizes(2, 2, 3, 5, ((9, 3, 2, 1, 1, 5), (7, 3, 1, 2, 2, 7))), "fwd", "f16", ("axb", "axb", "abx"), "f32",
    Scaling(True, False),
)  # fmt: skip


def test_a_finding_is_a_fault_and_shrinks_to_its_core():
    device = Faulty("barrier\n", "# no barrier\n")
    fault = run_case(CASE, device)
    assert (fault.kind, fault.name) == (Kind.ERROR, "InterpretedFault")
    assert "data race" in fault.message
    smaller, same = shrink(CASE, fault, device)
    assert (same.kind, same.name) == (Kind.ERROR, "InterpretedFault")
    assert smaller.bias is None
    assert smaller.scaling == Scaling(False, False)
    assert (smaller.sizes.groups, smaller.sizes.batch) == (1, 1)
    assert len(smaller.sizes.spatial) == 1
    assert run_case(smaller, device) is not None
    assert run_case(smaller, device_named("interpret")) is None


def test_a_wrong_result_is_a_fault():
    device = Faulty("parameter(alpha, f32)", "const(3.0, f32, 1)")
    fault = run_case(CASE, device)
    assert fault.kind is Kind.WRONG
    smaller, _ = shrink(CASE, fault, device)
    assert smaller.scaling.alpha  # without it there is no fault


def test_a_case_runs_in_its_order(monkeypatch):
    seen = []

    def run(kernel, operands, *, problem):
        seen.append(kernel.device.options())
        return run_on_device(kernel, operands, problem=problem)

    monkeypatch.setattr(fuzz_run, "run_on_device", run)
    for order in (None, 5):
        assert run_case(replace(CASE, order=order), device_named("interpret")) is None
    assert [options.landing for options in seen] == [Landing.LATEST, Landing.SEEDED]
    assert [options.seed for options in seen] == [0, 5]
    assert "CONVLOOM_INTERPRET_ORDER=5" in replace(CASE, order=5).command("interpret")
    assert "ORDER" not in replace(CASE, order=5).command("cpu")


def test_a_fault_in_one_step_keeps_that_step_alone():
    device = Faulty("call(abs, ", "call(square, ")
    attributes = AttributeTexts("relu:0.5+abs+add:f32:per_oc+sum:0.5", "wei:per_oc:*+dst:common:2")
    case = replace(CASE, attributes=attributes, policy=Policy(True, 0))
    assert run_case(case, device_named("interpret")) is None
    fault = run_case(case, device)
    assert fault.kind is Kind.WRONG
    smaller, _ = shrink(case, fault, device)
    assert smaller.attributes == AttributeTexts("abs")
    assert smaller.policy == Policy()


def test_writing_outside_is_a_fault(monkeypatch):
    class Overrun:
        result, seconds, overrun = None, None, ("dst",)

    def run(kernel, operands, *, problem):
        from convloom.problem.reference import Arithmetic, reference

        found = Overrun()
        found.result = np.asarray(reference(problem, operands, Arithmetic.EXACT).value, problem.dst.dtype.numpy)
        return found

    monkeypatch.setattr(fuzz_run, "run_on_device", run)
    fault = run_case(replace(CASE, dtypes="f32", scaling=Scaling(False, False)), device_named("interpret"))
    assert fault.kind is Kind.OVERRUN


def test_the_command_reports_faults_once_and_fails(monkeypatch):
    monkeypatch.setattr("convloom.cli.fuzz.device_named", lambda name: Faulty("barrier\n", "# no barrier\n"))
    result = CliRunner().invoke(
        app, ["fuzz", "--seconds", "20", "--cases", "6", "--device", "interpret", "--seed", "1"]
    )
    assert result.exit_code == 1
    assert "InterpretedFault" in result.output
    lines = [line.strip() for line in result.output.splitlines() if line.strip().startswith("convloom run")]
    assert 1 <= len(lines) <= 2
    assert "--device interpret" in lines[0]


def test_targets_follow_the_device():
    assert target_for(device_named("interpret")) is INTERPRET


def test_minima_of_numbers_that_all_threads_share():
    """One block: tile numbers are Python's ints, which a minimum once made NumPy's, too small for a fast division."""
    plan = (
        "tiled block=4x8x3 thread=1x8 chunk=1x4 lanes=1 unroll=0 g=- m=n0 n=m1,m2,m0 serial=k0,k2 k=k1 a=row*1+1"
        " b=k*1+0 store=1 index=32 swap=1 row=fma stages=1 groups=1 split=none walk=8 fragments=1"
    )
    sizes = ConvSizes(1, 1, 1, 1, ((1, 2, 1, 1, 0, 1), (1, 2, 1, 1, 0, 1)))
    case = FuzzCase(sizes, "bwd_w", "f32", dynamic=True, plan=plan)
    assert run_case(case, device_named("interpret")) is None


def test_copies_of_a_part_of_the_block():
    """Threads beyond the last copy have addresses of no meaning; the interpreter once took them for the buffer's."""
    plan = (
        "tiled block=2x64x2 thread=2x4 chunk=2x4 lanes=1 unroll=0 g=g0 m=m0 n=n0 serial=- k=k0 a=row*1+2 b=row*1+4"
        " store=1 index=32 swap=0 row=fma stages=4 groups=1 split=none walk=1"
    )
    case = FuzzCase(GemmSizes(2, 2, 2, 2, (False, False, True)), "fwd", "f32", plan=plan)
    assert run_case(case, device_named("interpret")) is None
