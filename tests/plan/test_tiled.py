"""The text form of plans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.errors import Infeasible
from convloom.plan.split import NO_SPLIT, Reduction, Split
from convloom.plan.tiled import SCALAR, Along, TiledPlan, Transfer, parse_plan, plan_text

SHARED_SUMS = [item for item in Reduction if item is not Reduction.NONE]
SIZE = st.integers(1, 4096)
NAMES = st.lists(st.from_regex(r"[gmnk][0-9]{1,2}", fullmatch=True), max_size=4, unique=True).map(tuple)
TRANSFERS = st.builds(Transfer, st.sampled_from(Along), SIZE, st.integers(0, 64))
PLANS = st.builds(
    TiledPlan,
    *[SIZE] * 8,
    st.booleans(),
    *[NAMES] * 5,
    TRANSFERS,
    TRANSFERS,
    SIZE,
    st.sampled_from((32, 64)),
    st.booleans(),
    st.sampled_from((SCALAR, "mma.m16n8k16.f32.f16.f16")),
    st.integers(1, 6),
    SIZE,
    st.one_of(st.just(NO_SPLIT), st.builds(Split, st.sampled_from(SHARED_SUMS), st.integers(2, 512))),
    SIZE,
    st.integers(1, 2),
)

TEXT = (
    "tiled block=16x32x8 thread=2x4 chunk=1x4 lanes=4 unroll=0 g=- m=m0,m1 n=n0 serial=k1 k=k0"
    " a=k*4+0 b=row*4+8 store=4 index=32 swap=1 row=fma stages=1 groups=1 split=none walk=1 fragments=2 collect=0"
)


@given(PLANS)
@settings(derandomize=True, max_examples=200, deadline=None)
def test_text_reads_back(plan):
    assert parse_plan(plan_text(plan)) == plan
    assert hash(parse_plan(plan_text(plan))) == hash(plan)


def test_text_of_a_plan():
    plan = parse_plan(TEXT)
    assert plan_text(plan) == TEXT
    assert (plan.units_m, plan.units_n, plan.threads) == (8, 8, 64)
    assert plan.fragments == 2
    assert plan.merged == ("k0",)
    assert plan.a == Transfer(Along.K, 4, 0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tiled ", "direct ", "family"),
        (TEXT, "", "family"),
        (" swap=1", "", r"missing .'swap'"),
        ("swap=1", "swap=1 colour=3", "unknown .'colour'"),
        ("block=16x32x8", "block=16x32", "block must be 3 positive integers"),
        ("block=16x32x8", "block=16x0x8", "block must be 3 positive integers"),
        ("thread=2x4", "thread=2x-4", "thread must be 2 positive integers"),
        ("stages=1", "stages=0", "stages"),
        ("groups=1", "groups=0", "groups"),
        ("split=none", "split=passes", "split must look like none or passes.8"),
        ("split=none", "split=passes*1", "2 parts or more"),
        ("split=none", "split=none*2", "split must look like"),
        ("walk=1", "walk=0", "walk must be a positive integer"),
        ("row=fma", "row=unheard_of", "unheard_of"),
        ("lanes=4", "lanes=x", "lanes must be a positive integer"),
        ("lanes=4", "lanes=0", "lanes must be a positive integer"),
        ("swap=1", "swap=2", "swap must be 0 or 1"),
        ("a=k*4+0", "a=k*0+0", "a must look like"),
        ("a=k*4+0", "a=q*4+0", "a must look like"),
        ("b=row*4+8", "b=row*4", "b must look like"),
    ],
)
def test_malformed_text(old, new, words):
    assert old in TEXT
    with pytest.raises(Infeasible, match=words):
        parse_plan(TEXT.replace(old, new))


def test_sets_of_fragments_may_be_left_out():
    assert parse_plan(TEXT.replace(" fragments=2", "")).fragments == 1
    assert parse_plan(TEXT.replace(" collect=0", "")).collect == 0
