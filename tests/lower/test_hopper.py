"""Hopper kernels: exact results without any finding in every order, and machine code without surprises."""

import pytest

from convloom.emit.cuda import print_cuda
from convloom.ir.interpret import Options
from convloom.ir.interpret.options import Landing
from convloom.ir.parse import parse_kernel
from convloom.ir.text import kernel_text
from convloom.plan.check_plan import check_plan
from convloom.plan.families import parse_plan, plan_text
from convloom.target.arch import SM_90A
from tests.ir.interpret.ordered.persistence import broken_laws
from tests.lower.hopper_cases import LAUNCHES, run

LANDINGS = tuple(Landing)
EVERY_ORDER = ("forward", "two consumers", "gradient of weights, K divided")


@pytest.fixture(scope="module", params=LAUNCHES, ids=str)
def launch(request):
    return LAUNCHES[request.param], LAUNCHES[request.param].case()


ORDERS = [(name, LANDINGS[number % 3]) for number, name in enumerate(LAUNCHES)]
ORDERS += [(name, landing) for name in EVERY_ORDER for landing in LANDINGS if (name, landing) not in ORDERS]


@pytest.mark.parametrize(("name", "landing"), ORDERS)
def test_exact_and_without_findings(name, landing):
    given = LAUNCHES[name]
    case = given.case()
    options = Options(landing=landing, seed=1, counted=True, multiprocessors=given.multiprocessors)
    outcomes, wrong = run(case, options)
    assert [str(finding) for outcome in outcomes for finding in outcome.findings] == []
    assert wrong == 0
    assert broken_laws(case.kernel, outcomes[0].counts) == []


@pytest.mark.parametrize("name", ["forward", "gradient of data, phases", "gradient of weights, K divided"])
@pytest.mark.parametrize("multiprocessors", [1, 2, 3])
def test_any_number_of_multiprocessors_gives_the_same(name, multiprocessors):
    outcomes, wrong = run(LAUNCHES[name].case(), Options(multiprocessors=multiprocessors, landing=Landing.SEEDED))
    assert [str(finding) for outcome in outcomes for finding in outcome.findings] == []
    assert wrong == 0


def test_text_reads_back(launch):
    _, case = launch
    for kernel in case.generated.kernels:
        assert parse_kernel(kernel_text(kernel)) == kernel


def test_plan_is_the_given_one(launch):
    given, case = launch
    assert parse_plan(plan_text(case.generated.plan)) == parse_plan(given.plan)
    assert check_plan(case.generated.plan, case.form.contraction, SM_90A) is None
    assert "tensor_map" in print_cuda(case.kernel)
