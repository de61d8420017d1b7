"""What another process does for a tuner: it ranks plans, and compiles kernels into the disk cache."""

from __future__ import annotations

import time
from dataclasses import dataclass

from convloom.artifact import Language
from convloom.compiler import generate, plan_for
from convloom.plan.choose import diverse_plans, ranked_candidates
from convloom.plan.families import plan_text
from convloom.plan.policy import Policy
from convloom.problem.stride_key import parse_key
from convloom.runtime import c_compiler, nvrtc
from convloom.runtime.compiler import Compiler, compile_cached
from convloom.target.arch import Target
from convloom.tune.pick import Pick, PickHow

_RANKED = 8
"""Plans that stand ready where the cost model picks, in case the compiler spills the first of them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate's plan as text with its predicted seconds."""

    plan: str
    predicted: float


@dataclass(frozen=True, slots=True)
class Rank:
    """To find a problem's candidates, the one with the least predicted time first. `key`: its stride key."""

    key: str
    target: Target
    policy: Policy
    pick: Pick


@dataclass(frozen=True, slots=True)
class Build:
    """To compile the kernels of one plan into the disk cache."""

    key: str
    target: Target
    policy: Policy
    plan: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates, and the seconds that it took to find them."""

    proposals: tuple[Proposal, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Compiled:
    """The seconds that generating and compiling took; little where the cache had the kernels."""

    seconds: float


Job = Rank | Build


def perform(job: Job) -> Ranked | Compiled:
    """Does a job in this process. Raises what planning, generating and compiling raise."""
    begin = time.perf_counter()
    if isinstance(job, Rank):
        proposals = propose(job)
        return Ranked(proposals, time.perf_counter() - begin)
    contraction = parse_key(job.key)
    plan = plan_for(contraction, job.target, job.plan, job.policy)
    compiler = separate_compiler(job.target.language)
    assert compiler is not None, "who asks for a build knows that the language has a compiler of its own"
    for source in generate(contraction, job.target, plan, policy=job.policy).program.launches:
        compile_cached(compiler, source)
    return Compiled(time.perf_counter() - begin)


def propose(job: Rank) -> tuple[Proposal, ...]:
    """The candidates of a problem: different ones to be measured, else the cost model's first few."""
    contraction = parse_key(job.key)
    if job.pick.how is PickHow.MODEL:
        found = ranked_candidates(contraction, job.target, _RANKED, policy=job.policy)
    else:
        found = diverse_plans(contraction, job.target, job.pick.count, policy=job.policy)
    return tuple(Proposal(plan_text(item.plan), item.seconds) for item in found)


def separate_compiler(language: Language) -> Compiler | None:
    """The vendor's compiler where it works without the device; None where only an opened device compiles.

    UnsupportedTarget if it is not installed.
    """
    if language is Language.C:
        return c_compiler.current_compiler()
    return nvrtc.current_nvrtc() if language is Language.CUDA else None
