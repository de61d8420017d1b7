"""Build processes: the same candidates and sources as in this process, into the cache; errors and deaths are told."""

import os
import signal
from concurrent.futures import CancelledError

import pytest

from convloom import settings
from convloom.compiler import generate, plan_for, prepare
from convloom.errors import BuildFailed, Infeasible
from convloom.plan.choose import choose_plan, diverse_plans
from convloom.plan.families import plan_text
from convloom.plan.policy import ANYTHING
from convloom.problem.notation.choose import parse_problem
from convloom.problem.stride_key import key_text
from convloom.runtime import c_compiler
from convloom.runtime.compiler import compile_cached
from convloom.runtime.disk_cache import current_cache
from convloom.target.arch import CPU, SM_90A
from convloom.tune.build_jobs import Build, Rank
from convloom.tune.build_pool import BuildPool
from convloom.tune.pick import MODEL, parse_pick

CONTRACTION = prepare(parse_problem("mb2ic8ih9oc8oh9kh3ph1")).contraction
KEY = key_text(CONTRACTION)


@pytest.fixture
def pool():
    with BuildPool(1) as found:
        yield found


@pytest.mark.parametrize("target", [CPU, SM_90A], ids=lambda target: target.name)
def test_candidates_are_those_of_this_process(pool, target):
    measured = pool.submit(Rank(KEY, target, ANYTHING, parse_pick("measured:4"))).result()
    here = diverse_plans(CONTRACTION, target, 4)
    assert [(item.plan, item.predicted) for item in measured.proposals] == [(plan_text(p), s) for p, s in here]
    assert measured.seconds > 0
    model = pool.submit(Rank(KEY, target, ANYTHING, MODEL)).result()
    assert model.proposals[0].plan == plan_text(choose_plan(CONTRACTION, target))


def test_a_build_fills_the_cache_that_this_process_reads(tmp_path, monkeypatch):
    plan = choose_plan(CONTRACTION, CPU)
    with settings.scoped(cache_dir=tmp_path):
        with BuildPool(1) as pool:
            assert pool.submit(Build(KEY, CPU, ANYTHING, plan_text(plan))).result().seconds > 0
        entries = current_cache().entries()
        (source,) = generate(CONTRACTION, CPU, plan_for(CONTRACTION, CPU, plan_text(plan))).program.launches
        assert source.name in [entry.name for entry in entries]
        compiler = c_compiler.current_compiler()
        monkeypatch.setattr(c_compiler.CCompiler, "compile", lambda *_: pytest.fail("compiled again"))
        compile_cached(compiler, source)


def test_what_a_job_raises_is_raised_here(pool):
    with pytest.raises(Infeasible, match="a plan text begins with its family"):
        pool.submit(Build(KEY, CPU, ANYTHING, "nonsense")).result()
    assert pool.submit(Rank(KEY, CPU, ANYTHING, MODEL)).result().proposals  # the process goes on


def test_a_dead_process_is_told_and_replaced(pool):
    pool.submit(Rank(KEY, CPU, ANYTHING, MODEL)).result()
    (process,) = pool._processes
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    with pytest.raises(BuildFailed, match="a build process must answer"):
        pool.submit(Rank(KEY, CPU, ANYTHING, MODEL)).result()
    assert pool.submit(Rank(KEY, CPU, ANYTHING, MODEL)).result().proposals


def test_leaving_gives_up_what_is_not_finished():
    with BuildPool(1) as pool:
        jobs = [pool.submit(Rank(KEY, SM_90A, ANYTHING, MODEL)) for _ in range(50)]
        jobs[0].result()
        processes = list(pool._processes)
    assert all(process.returncode is not None for process in processes)
    with pytest.raises((CancelledError, BuildFailed)):
        jobs[-1].result()
