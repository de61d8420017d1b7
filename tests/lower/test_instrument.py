"""The ladder of CONVLOOM_DEBUG and the dumps: each level shows what the one below shows, and one thing more."""

import pytest

from convloom import settings
from convloom.compiler import generate, plan_for, prepare
from convloom.problem.notation.choose import parse_problem
from convloom.runtime.c_compiler import current_compiler
from convloom.runtime.compiler import compile_cached
from convloom.target.arch import target_named

MARKS = ("convloom: plan tiled", "convloom: compiled ", "run_block", "final IR of ", "IR after lower_division")
LEVELS = {0: (), 1: MARKS[:1], 2: MARKS[:2], 3: MARKS[:3], 4: MARKS[:4], 5: (*MARKS[:3], MARKS[4])}


def printed(capfd, **changes):
    contraction, target = prepare(parse_problem("mb1ic4ih5oc4oh5kh3ph1")).contraction, target_named("cpu")
    plan = plan_for(contraction, target)
    with settings.scoped(cache_limit=0, verify=False, **changes):
        made = generate(contraction, target, plan)
        compile_cached(current_compiler(), made.source)
    return capfd.readouterr().err


@pytest.mark.parametrize("level", LEVELS)
def test_levels_of_the_ladder(capfd, level):
    text = printed(capfd, debug=level)
    assert tuple(mark for mark in MARKS if mark in text) == LEVELS[level]


def test_a_dump_holds_plan_ir_after_each_pass_source_and_binary(capfd, tmp_path):
    printed(capfd, dump=tmp_path)
    suffixes = {file.suffix for file in tmp_path.iterdir()}
    assert {".plan", ".ir", ".c", ".bin", ".log"} <= suffixes
    passes = {file.stem.rsplit("_", 1)[-1] for file in tmp_path.glob("*.ir")}
    assert {"build", "division", "arguments", "items"} <= passes
