"""Candidates that the compiler spills are passed over: judged by NVRTC's report, without a GPU, and by made-up ones."""

from types import SimpleNamespace

import pytest

from convloom.artifact import Language
from convloom.compiler import prepare
from convloom.errors import InternalError, UnsupportedTarget
from convloom.frontend.kernel import Kernel
from convloom.frontend.reject_spills import first_without_spills
from convloom.plan.choose import choose_plan, ranked_plans
from convloom.plan.tiled import plan_text
from convloom.problem.notation.choose import parse_problem
from convloom.runtime import nvrtc
from convloom.runtime.interface import Built, Device
from convloom.target.arch import SM_90A

LINE = "mb8ic64ih56oc64oh56kh3ph1"


class CompiledOnly(Built):
    def _launcher(self, arguments):
        raise AssertionError("nothing runs here")


class CompilingDevice(Device):
    """Compiles for sm_90a and keeps the report."""

    name, language, arch = "compiler", Language.CUDA, "sm_90a"

    def __init__(self, compiler):
        super().__init__()
        self.compiler = compiler

    def _build(self, source):
        return CompiledOnly(source, nvrtc.resources_from_log(self.compiler.compile(source).log))

    def allocate(self, nbytes):
        raise AssertionError

    def synchronize(self, stream=None):
        raise AssertionError

    def time_once(self, call, stream=None):
        raise AssertionError

    def describe(self):
        raise AssertionError


@pytest.fixture(scope="module")
def device():
    try:
        return CompilingDevice(nvrtc.current_nvrtc())
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def test_the_kernel_taken_does_not_spill(device):
    """The first candidate of this problem spills with NVRTC 13; another compiler may do without."""
    problem = parse_problem(LINE, dtypes="f64", stag="nhwc", wtag="axb", dtag="nhwc")
    kernel = Kernel(problem, device, SM_90A)
    assert [launch.built.resources.spill_bytes for launch in kernel.variants[0].launches] == [0]
    for item in kernel.rejected:
        assert "spills" in item.reason
        assert plan_text(item.plan) != kernel.plan


def test_a_given_plan_is_used_as_it_is(device):
    problem = parse_problem(LINE, dtypes="f64", stag="nhwc", wtag="axb", dtag="nhwc")
    first = plan_text(choose_plan(Kernel(problem, device, SM_90A).contraction, SM_90A))
    kernel = Kernel(problem, device, SM_90A, first)
    assert kernel.plan == first
    assert kernel.rejected == ()


def variants(spills):
    """Plans by name, and what building them gives."""

    def build(plan):
        bytes_ = spills[plan]
        serialised = bytes_ == "serialised"
        nbytes = 0 if serialised else bytes_
        resources = None if bytes_ is None else SimpleNamespace(spill_bytes=nbytes, serialised=serialised)
        launches = (SimpleNamespace(built=SimpleNamespace(resources=resources)),)
        return SimpleNamespace(plan=plan, launches=launches)

    return list(spills), build


@pytest.mark.parametrize(
    ("spills", "taken", "rejected"),
    [
        ({"a": 0, "b": 0}, "a", []),
        ({"a": 16, "b": 0, "c": 0}, "b", ["a"]),
        ({"a": 16, "b": 8, "c": 24}, "b", ["a", "c"]),
        ({"a": None, "b": 0}, "a", []),
        ({"a": "serialised", "b": 0}, "b", ["a"]),
        ({"a": "serialised", "b": 64}, "b", ["a"]),
    ],
)
def test_the_first_that_does_not_spill_else_the_least(spills, taken, rejected):
    variant, passed_over = first_without_spills(*variants(spills))
    assert variant.plan == taken
    assert [item.plan for item in passed_over] == rejected


def test_plans_are_needed():
    with pytest.raises(InternalError, match="needs plans"):
        first_without_spills([], lambda plan: None)


def test_ranked_plans_begin_with_the_chosen_one():
    contraction = prepare(parse_problem(LINE)).contraction
    ranked = ranked_plans(contraction, SM_90A, 5)
    assert ranked[0] == choose_plan(contraction, SM_90A)
    assert len(set(ranked)) == 5
