"""Picks the plan of a kernel: the cost model's, the tuning database's, or the fastest of some that are measured."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from convloom.compiler import prepare
from convloom.errors import BuildFailed, ConvloomError, Infeasible, NotYetSupported, UnsupportedTarget
from convloom.frontend.device_stand import DeviceStand, Stand
from convloom.frontend.device_target import target_for
from convloom.frontend.kernel import Kernel
from convloom.frontend.operand_terms import problem_terms
from convloom.frontend.race import RACE_EFFORT, Outcome, Race, Tried, race
from convloom.plan.choose import given_plan
from convloom.plan.families import generator_text
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.reference import Problem
from convloom.problem.stride_key import key_text
from convloom.runtime.interface import Device
from convloom.runtime.pair_timing import Effort
from convloom.tune.build_jobs import Build, Compiled, Proposal, Rank, Ranked, perform, separate_compiler
from convloom.tune.build_pool import BuildPool
from convloom.tune.database import Circumstances, Measurement, Winner, current_database
from convloom.tune.pick import Pick, PickHow

Item = TypeVar("Item")

SPACE = "outlines"
"""The name, in the database, of the candidates that `plan.choose.diverse_plans` finds."""

OpenStand = Callable[[], AbstractContextManager[Stand]]


@dataclass(frozen=True, slots=True)
class Picked:
    """A kernel and how it was found. Seconds of planning and compiling, in all processes together, and of measuring.

    `tried`: every candidate of a measured pick, those of an earlier measurement too; `known`: the database had it.
    """

    kernel: Kernel
    tried: tuple[Tried, ...] = ()
    known: bool = False
    compile_seconds: float = 0.0
    tuning_seconds: float = 0.0


@dataclass(slots=True)
class Pending:
    """A problem whose candidates are being found and compiled; `known`: the winner that the database has."""

    problem: Problem
    circumstances: Circumstances | None = None
    known: Winner | None = None
    ranked: Future[Ranked] = field(default_factory=Future[Ranked])
    builds: Future[list[Future[Compiled]]] = field(default_factory=Future[list[Future[Compiled]]])


class Picker:
    """Finds the plans of any number of problems for one device, with one way to pick and one policy.

    `begin` lets the pool's processes rank and compile candidates, `finish` measures them here, one at a time. Without a
    pool, and for devices whose compiler needs the opened device, everything happens in `finish`. `build_known`: whether
    the pool compiles what the database knows, too. `effort`: of a race.
    """

    def __init__(
        self,
        device: Device,
        pick: Pick,
        policy: Policy = ANYTHING,
        *,
        pool: BuildPool | None = None,
        build_known: bool = True,
        effort: Effort = RACE_EFFORT,
    ) -> None:
        self.device = device
        self.pick = pick
        self._policy, self._effort = policy, effort
        self._target = target_for(device)
        self._database = current_database()
        self._build_known, self._described = build_known, device.describe()
        self._pool = pool if pool is not None and separate_compiler(device.language) is not None else None
        if pick.how is PickHow.MEASURED and not self._described.hardware:
            raise UnsupportedTarget(
                f"a measured pick needs a device that keeps time; got {device.name}; pick the model's"
            )

    def begin(self, problem: Problem) -> Pending:
        """Looks the problem up, else starts the search for its candidates. What goes wrong is raised by `finish`."""
        pending = Pending(problem)
        try:
            self._start(pending)
        except ConvloomError as error:
            pending.ranked.set_exception(error)
        return pending

    def finish(self, pending: Pending, open_stand: OpenStand) -> Picked:
        """The kernel; a measured pick opens the stand and stores what it finds.

        Raises what planning and building raise, and BuildFailed if no candidate gives the right result.
        """
        if pending.circumstances is None and not pending.ranked.done():
            return self._untouched(pending.problem)
        if pending.known is not None:
            return self._known(pending, pending.known)
        ranked = self._ranked(pending)
        compiled = ranked.seconds + self._waited(pending)
        if self.pick.how is PickHow.MODEL:
            begin = time.perf_counter()
            kernel = self._kernel(pending.problem, tuple(item.plan for item in ranked.proposals))
            return Picked(kernel, compile_seconds=compiled + time.perf_counter() - begin)
        return self._measured(pending, ranked.proposals, compiled, open_stand)

    # --- searching --------------------------------------------------------------------------------------------------

    def _start(self, pending: Pending) -> None:
        terms = problem_terms(pending.problem)
        if terms.empty:
            return
        measured = self.pick.how is PickHow.MEASURED
        if measured and terms.symbols:
            names = ", ".join(symbol.name for symbol in terms.symbols)
            raise NotYetSupported(f"a measured pick needs sizes; got the dims {names}; leave pick out, or give sizes")
        pending.circumstances = self._circumstances(pending.problem)
        if measured:
            pending.known = self._look_up(pending.problem, pending.circumstances)
        if self._pool is None:
            return
        if pending.known is not None:
            known = [pending.known.plan] if self._build_known else []
            pending.builds.set_result([self._pool.submit(self._build(pending, plan)) for plan in known])
            return
        pending.ranked = self._pool.submit(self._rank(pending))
        pending.ranked.add_done_callback(lambda ranked: self._submit_builds(pending, ranked))

    def _submit_builds(self, pending: Pending, ranked: Future[Ranked]) -> None:
        """Called in a thread of the pool when the candidates are there, or will never be."""
        if self._pool is None or ranked.cancelled() or ranked.exception() is not None:
            pending.builds.set_result([])
            return
        wanted = ranked.result().proposals[: self.pick.count]
        try:
            pending.builds.set_result([self._pool.submit(self._build(pending, item.plan)) for item in wanted])
        except RuntimeError:  # the pool was closed meanwhile: nobody waits
            pending.builds.set_result([])

    def _waited(self, pending: Pending) -> float:
        """Seconds that all builds took together. What one raises is raised again where its kernel is made."""
        if self._pool is None:
            return 0.0
        total = 0.0
        for build in pending.builds.result():
            try:
                total += build.result().seconds
            except ConvloomError:
                continue
        return total

    def _ranked(self, pending: Pending) -> Ranked:
        if self._pool is None and not pending.ranked.done():
            found = perform(self._rank(pending))
            assert isinstance(found, Ranked)
            return found
        return pending.ranked.result()

    def _circumstances(self, problem: Problem) -> Circumstances:
        described, limit = self._described, self._policy.max_workspace
        policy = f"deterministic={int(self._policy.deterministic)} max_workspace={'any' if limit is None else limit}"
        key = key_text(prepare(problem).contraction)
        return Circumstances(key, described.hardware, generator_text(), described.compiler, policy)

    def _look_up(self, problem: Problem, circumstances: Circumstances) -> Winner | None:
        found = self._database.winner(circumstances, SPACE, self.pick.count)
        if found is not None:
            try:
                given_plan(found.plan, prepare(problem).contraction, self._target, self._policy)
            except Infeasible:  # written by a state of the generator that had no version of its own
                return None
        return found

    def _rank(self, pending: Pending) -> Rank:
        assert pending.circumstances is not None
        return Rank(pending.circumstances.key, self._target, self._policy, self.pick)

    def _build(self, pending: Pending, plan: str) -> Build:
        assert pending.circumstances is not None
        return Build(pending.circumstances.key, self._target, self._policy, plan)

    # --- kernels ----------------------------------------------------------------------------------------------------

    def _kernel(self, problem: Problem, proposed: tuple[str, ...]) -> Kernel:
        return Kernel(problem, self.device, self._target, None, self._policy, proposed)

    def _untouched(self, problem: Problem) -> Picked:
        begin = time.perf_counter()
        return Picked(self._kernel(problem, ()), compile_seconds=time.perf_counter() - begin)

    def _known(self, pending: Pending, winner: Winner) -> Picked:
        assert pending.circumstances is not None
        compiled = self._waited(pending)
        begin = time.perf_counter()
        kernel = self._kernel(pending.problem, (winner.plan,))
        latest = {item.plan: item for item in self._database.measurements(pending.circumstances)}
        tried = tuple(
            Tried(item.plan, item.predicted, Outcome(item.verdict), item.reason, item.seconds, item.spread)
            for item in latest.values()
        )
        return Picked(kernel, tried, known=True, compile_seconds=compiled + time.perf_counter() - begin)

    def _measured(
        self, pending: Pending, proposals: tuple[Proposal, ...], compiled: float, open_stand: OpenStand
    ) -> Picked:
        assert pending.circumstances is not None
        begin, made = time.perf_counter(), [compiled]

        def make(plan: str) -> Kernel:
            start = time.perf_counter()
            try:
                return self._kernel(pending.problem, (plan,))
            finally:
                made.append(time.perf_counter() - start)

        with open_stand() as stand:
            found = race(proposals, make, stand, self._effort)
        self._store(pending.circumstances, found)
        kernel = found.kernel or self._least_rejected(pending.problem, found)
        here = sum(made[1:])
        return Picked(kernel, found.tried, False, sum(made), time.perf_counter() - begin - here)

    def _least_rejected(self, problem: Problem, found: Race) -> Kernel:
        """What the model's pick would take where the compiler is content with no candidate."""
        rejected = tuple(item.plan for item in found.tried if item.outcome is Outcome.REJECTED)
        if not rejected:
            words = "; ".join(f"{item.outcome.value}: {item.reason}" for item in found.tried)
            raise BuildFailed(f"a measured pick needs one candidate whose result is right; got {words}; report this")
        return self._kernel(problem, rejected)

    def _store(self, circumstances: Circumstances, found: Race) -> None:
        measurements = tuple(
            Measurement(item.plan, item.predicted, item.outcome.value, item.reason, item.seconds, item.spread)
            for item in found.tried
        )
        winner = None
        best = found.fastest
        if best is not None and best.seconds is not None and best.spread is not None:
            winner = Winner(best.plan, best.seconds, best.spread, SPACE, self.pick.count)
        self._database.store(circumstances, measurements, winner)


def pick_measured(problem: Problem, device: Device, policy: Policy, pick: Pick) -> Kernel:
    """The kernel of the fastest of the first candidates, measured now on random reals unless the database knows it."""
    with BuildPool() as pool:
        picker = Picker(device, pick, policy, pool=pool, build_known=False)
        return picker.finish(picker.begin(problem), lambda: DeviceStand(problem, device)).kernel


def begin_ahead(items: Iterable[tuple[Item, Problem]], picker: Picker, ahead: int) -> Iterator[tuple[Item, Pending]]:
    """Each item, in order, with its pending pick; those of `ahead` more are begun by then."""
    waiting: deque[tuple[Item, Pending]] = deque()
    for item, problem in items:
        waiting.append((item, picker.begin(problem)))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting
