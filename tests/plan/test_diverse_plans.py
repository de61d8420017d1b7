"""Candidates worth measuring: the model's own first, of different outlines, of every family, legal."""

import pytest

from convloom.compiler import prepare
from convloom.plan.check_plan import check_plan
from convloom.plan.choose import choose_plan, diverse_plans, ranked_candidates, ranked_plans
from convloom.plan.families import VERSIONS, Plan, generator_text, parse_plan, plan_outline, plan_text
from convloom.plan.hopper import HopperPlan
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.tiled import TiledPlan
from convloom.problem.notation.choose import parse_problem
from convloom.target.arch import CPU, OPENCL, SM_80, SM_90A

LAYER = "mb8ic64ih56oc64oh56kh3ph1"
LAST = {"dtypes": "f16", "stag": "nhwc", "wtag": "axb", "dtag": "nhwc"}


def contraction(text=LAYER, **keywords):
    return prepare(parse_problem(text, **keywords)).contraction


@pytest.mark.parametrize("target", [CPU, OPENCL, SM_80, SM_90A], ids=lambda target: target.name)
@pytest.mark.parametrize("keywords", [{}, LAST], ids=["f32", "f16 channels last"])
def test_the_models_choice_comes_first_and_outlines_differ(target, keywords):
    found = contraction(**keywords)
    plans = diverse_plans(found, target, 6)
    assert plans[0].plan == choose_plan(found, target)
    assert len({plan_outline(item.plan) for item in plans}) == 6
    assert [item.seconds for item in plans] == sorted(item.seconds for item in plans)
    assert all(check_plan(item.plan, found, target, ANYTHING) is None for item in plans)
    assert plans == diverse_plans(found, target, 6)


def test_each_is_the_best_of_its_outline():
    found = contraction(**LAST)
    best = {}
    for item in ranked_candidates(found, SM_90A, 10**6):
        best.setdefault(plan_outline(item.plan), item)
    for item in diverse_plans(found, SM_90A, 6):
        assert item == best[plan_outline(item.plan)]


def test_where_outlines_run_out_the_next_best_follow():
    """Results so small that only a few tiles fit."""
    found = contraction("mb1ic4ih1oc4oh1kh1ph0")
    outlines = {plan_outline(plan) for plan in ranked_plans(found, CPU, 10**6)}
    plans = diverse_plans(found, CPU, len(outlines) + 3)
    assert len({plan_outline(item.plan) for item in plans}) == len(outlines)
    assert len({item.plan for item in plans}) == len(outlines) + 3


def test_no_more_than_there_are():
    found = contraction("mb1ic4ih1oc4oh1kh1ph0")
    assert len(diverse_plans(found, CPU, 10**6)) == len(ranked_plans(found, CPU, 10**6))


def test_families_stand_in_one_list():
    families = {type(item.plan) for item in diverse_plans(contraction(**LAST), SM_90A, 40)}
    assert families == {HopperPlan, TiledPlan}


def test_the_policy_holds():
    weights = contraction("mb8ic64ih28oc64oh28kh3ph1", direction="bwd_w")
    for item in diverse_plans(weights, SM_90A, 20, policy=Policy(deterministic=True, max_workspace=0)):
        assert check_plan(item.plan, weights, SM_90A, Policy(deterministic=True, max_workspace=0)) is None


def test_every_family_has_a_version():
    assert {plan_text(item.plan).split()[0] for item in diverse_plans(contraction(**LAST), SM_90A, 40)} == set(VERSIONS)
    assert generator_text() == " ".join(f"{name}={VERSIONS[name]}" for name in sorted(VERSIONS))
    for item in diverse_plans(contraction(**LAST), SM_90A, 8):
        assert isinstance(parse_plan(plan_text(item.plan)), Plan)
