"""Hopper plans: text, legality with reasons, and what the planner makes of layers that were measured on an H200."""

import re
from dataclasses import replace

import pytest

from convloom.compiler import prepare
from convloom.errors import Infeasible
from convloom.plan.bulk_copy import CopyKind
from convloom.plan.check_plan import check_plan
from convloom.plan.choose import choose_plan, ranked_plans
from convloom.plan.families import parse_plan, plan_text
from convloom.plan.hopper import HopperPlan, Output
from convloom.plan.hopper_candidates import hopper_candidates
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.requirements import plan_requirements
from convloom.plan.split import Reduction, Split
from convloom.problem.notation.choose import parse_line
from convloom.target.arch import SM_80, SM_90A
from tests.notations import defaults

LAYER = "mb64ic256ih14iw14oc256oh14ow14_kh3kw3sh1sw1ph1pw1dh0dw0"
TEXT = (
    "hopper block=192x128x64 consumers=3 stages=4 g=- m=n0,n1,n2 n=m0 serial=k0,k1 k=k2 a=columns b=tile"
    " row=wgmma.m64n128k16.f32.f16.f16.ss store=2 out=shared swap=1"
)


def contraction(line=LAYER, direction="fwd", dtypes="f16", tag="axb"):
    return prepare(parse_line(line, defaults(direction, dtypes, tag))).contraction


GOOD, PLAIN = parse_plan(TEXT), contraction()


def test_text_reads_back():
    assert parse_plan(plan_text(GOOD)) == GOOD
    assert check_plan(GOOD, PLAIN, SM_90A) is None
    for plan, _ in list(hopper_candidates(PLAIN, SM_90A, ANYTHING))[::7]:
        assert parse_plan(plan_text(plan)) == plan


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (" out=shared", "", r"missing \['out'\]"),
        ("a=columns", "a=pictures", "a must be one of tile, columns; got 'pictures'"),
        ("wgmma.m64n128k16.f32.f16.f16.ss", "mma.m16n8k16.f32.f16.f16", "row must be an asynchronous multiply"),
        ("stages=4", "stages=0", "stages must be a positive integer; got '0'"),
        ("hopper", "hoper", "begins with its family"),
    ],
)
def test_texts_that_are_no_plan(old, new, words):
    with pytest.raises(Infeasible, match=words):
        parse_plan(TEXT.replace(old, new))


ROW = "wgmma.m64n{}k16.f32.{}.{}.ss".format
BROKEN = {
    "axes": ({"m": ("n0", "n1")}, r"the m axes of a plan are those of the contraction, .* got \['n0', 'n1'\]"),
    "types": ({"row": ROW(128, "bf16", "bf16")}, "is multiplied by wgmma.m64n128k16.f32.f16.f16.ss; got"),
    "a from registers": ({"row": "wgmma.m64n128k16.f32.f16.f16.rs"}, "is multiplied by .*ss; got .*rs"),
    "rows": ({"block_m": 128}, "compute a multiple of 192 x 128; got 128x128"),
    "columns": ({"block_n": 64}, "compute a multiple of 192 x 128; got 192x64"),
    "consumers": ({"consumers": 4, "block_m": 256}, "1 to 3 consumers; got 4"),
    "depth": ({"block_k": 32}, "a K tile has 128 bytes; got 32 of f16"),
    "one stage": ({"stages": 1}, "there are 2 or more; got 1"),
    "index": ({"index_bits": 64}, "coordinates of 32 bits; got index=64"),
    "shared memory": ({"stages": 5}, "232448 bytes of shared memory on sm_90a; this plan needs"),
    "registers": ({"block_m": 384, "stages": 2}, "152 registers; this plan needs about 168"),
    "atomic sums": (
        {"split": Split(Reduction.ATOMIC, 2), "output": Output.REGISTERS},
        "added by a second launch; got split=atomic",
    ),
    "parts through shared memory": ({"split": Split(Reduction.PASSES, 2)}, "go to the workspace from registers"),
    "copy": ({"a": CopyKind.TILE}, "tiles of a are fetched as columns; the plan says tile"),
    "order of K": ({"serial": ("k1", "k2"), "merged": ("k0",)}, "no tensor copy fetches tiles of a: "),
    "store": ({"store": 4, "output": Output.REGISTERS}, "a thread holds 2 neighbouring columns; got store=4"),
    "pairs": ({"store": 1}, "matrix stores take pairs of columns; got store=1"),
    "turned": ({"output": Output.TURNED}, "out=turned is not for this C: its lines do not lie"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_reasons(name):
    changes, words = BROKEN[name]
    found = check_plan(replace(GOOD, **changes), PLAIN, SM_90A)
    assert found is not None
    assert re.search(words, found.reason), found.reason


def test_other_machines_and_types_have_no_such_plans():
    assert "sm_80 has no instruction" in check_plan(GOOD, PLAIN, SM_80).reason
    assert not list(hopper_candidates(PLAIN, SM_80, ANYTHING))
    assert not list(hopper_candidates(contraction(dtypes="f32"), SM_90A, ANYTHING))


def test_addresses_are_aligned_for_tensor_maps():
    reasons = {
        item.named({"a": "wei", "b": "src", "c": "dst"}).operand for item in plan_requirements(GOOD, PLAIN, SM_90A)
    }
    assert reasons >= {"src", "wei", "dst"}
    for item in plan_requirements(GOOD, PLAIN, SM_90A):
        if item.on_address:
            assert "% 16" in str(item.condition)


@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
@pytest.mark.parametrize("line", [LAYER, "mb64ic512ih7iw7oc2048oh7ow7_kh1kw1sh1sw1ph0pw0dh0dw0"])
def test_layers_of_a_network_take_this_family(line, direction):
    assert isinstance(choose_plan(contraction(line, direction), SM_90A), HopperPlan)


def test_no_workspace_no_split():
    bare = contraction(direction="bwd_w")
    assert choose_plan(bare, SM_90A).split.how is Reduction.PASSES
    for plan in ranked_plans(bare, SM_90A, 20, policy=Policy(max_workspace=0)):
        assert plan.split.how is not Reduction.PASSES


def test_phases_of_a_strided_gradient_leave_in_pieces():
    plan = choose_plan(contraction(LAYER.replace("oh14ow14_kh3kw3sh1sw1", "oh7ow7_kh3kw3sh2sw2"), "bwd_d"), SM_90A)
    assert isinstance(plan, HopperPlan)
    assert plan.output is Output.PIECES


def test_channels_first_are_left_to_the_other_family():
    assert not isinstance(choose_plan(contraction(tag="abx"), SM_90A), HopperPlan)
