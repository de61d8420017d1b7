"""The estimate of registers against NVRTC's report, over fixed plans of every kind."""

from dataclasses import replace
from statistics import median

import pytest

from convloom.compiler import generate, prepare
from convloom.errors import UnsupportedTarget
from convloom.plan.choose import ranked_plans
from convloom.plan.tiled import parse_plan
from convloom.problem.notation.choose import parse_problem
from convloom.runtime import nvrtc
from convloom.target.arch import SM_90A

TILED = replace(SM_90A, group_multiply_adds=())  # without the family of roles

TOLERANCE = (0.55, 1.6)  # registers that a kernel takes, by the estimate
WORST = (0.4, 2.5)
LAYERS = ("mb8ic64ih56oc64oh56kh3ph1", "mb8ic128ih28oc256oh28kh1")
TYPES = ("f32", "tf32", "f16", "f64", "s8:s8:s32", "e4m3")


@pytest.fixture(scope="module")
def ratios():
    try:
        compiler = nvrtc.current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    found = []
    for number, types in enumerate(TYPES):
        tag = ("axb", "abx")[number % 2]
        for line in LAYERS:
            contraction = prepare(parse_problem(line, dtypes=types, stag=tag, wtag=tag, dtag=tag)).contraction
            plan = ranked_plans(contraction, TILED, 1)[0]
            log = compiler.compile(generate(contraction, TILED, plan).source).log
            words = contraction.acc.nbytes // 4
            found.append(nvrtc.resources_from_log(log).registers / (plan.registers() * words))
    return found


def test_the_estimate_is_near_what_the_compiler_reports(ratios):
    inside = [ratio for ratio in ratios if TOLERANCE[0] <= ratio <= TOLERANCE[1]]
    assert len(inside) >= 0.9 * len(ratios), ratios
    assert 0.7 <= median(ratios) <= 1.3
    assert WORST[0] <= min(ratios)
    assert max(ratios) <= WORST[1]


def test_accesses_are_counted_per_thread():
    plan = parse_plan(
        "tiled block=64x32x16 thread=4x4 chunk=4x4 lanes=1 unroll=0 g=- m=m0 n=n0 serial=- k=k0 a=k*4+0 b=row*1+0"
        " store=1 index=32 swap=0 row=fma stages=1 groups=1 split=none walk=1"
    )
    assert plan.threads == 128
    assert plan.accesses() == 2 + 4
