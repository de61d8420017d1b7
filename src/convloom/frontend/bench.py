"""One problem of a benchmark: built, its result verified, then timed beside an anchor."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum

from convloom.errors import ConvloomError
from convloom.frontend.anchor import Anchor, Peaks, Placed
from convloom.frontend.compile import compile
from convloom.frontend.kernel import Kernel
from convloom.frontend.pick_plan import OpenStand, Picked
from convloom.frontend.race import Outcome, Tried
from convloom.problem.conv import Conv
from convloom.problem.data import DataKind, make_operands
from convloom.problem.notation import BatchLine
from convloom.problem.numerics import Comparison, compare
from convloom.problem.reached import touched_bytes
from convloom.problem.reference import Operands, Problem
from convloom.runtime.interface import Device
from convloom.runtime.pair_timing import Call, Effort, Pair, measure_pair
from convloom.runtime.timing import Timing

Choose = Callable[[OpenStand], Picked]
"""Gives the kernel of a problem; a measured pick uses the stand."""


class BenchVerdict(Enum):
    """What became of a problem: only a verified result has a time."""

    MEASURED = "measured"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One measured, failed or skipped problem. Times in seconds; `bound_ratio` is the error's share of its bound."""

    line: BatchLine
    verdict: BenchVerdict
    reason: str = ""
    plan: str = ""
    compile_seconds: float = 0.0  # planning, generating, building, of all candidates; short where binaries were cached
    tuning_seconds: float = 0.0  # verifying and timing candidates
    known: bool = False  # the tuning database had the plan
    tried: tuple[Tried, ...] = ()  # the candidates of a measured pick
    kernels: tuple[str, ...] = ()  # names, in the order of their launches
    anchor_kernels: tuple[str, ...] = ()  # where asked for
    clock_mhz: int | None = None  # of a GPU's multiprocessors, right after the timed calls
    anchor_seconds: float = 0.0  # the anchor's first call, with its own search
    bound_ratio: float = 0.0
    ops: int = 0
    nbytes: int = 0
    pair: Pair | None = None
    peaks: Peaks | None = None

    @property
    def wrong(self) -> tuple[Tried, ...]:
        """Candidates whose results are wrong: faults of the generator, also where another candidate won."""
        return tuple(item for item in self.tried if item.outcome is Outcome.WRONG)

    @property
    def direction(self) -> str:
        """Direction of a convolution; `gemm` for a product."""
        problem = self.line.problem
        return problem.direction.value if isinstance(problem, Conv) else "gemm"

    def roofline_share(self, timing: Timing) -> float:
        """The roofline's time divided by a measured one; 0 if nothing was measured."""
        return 0.0 if self.peaks is None else self.peaks.least_seconds(self.ops, self.nbytes) / timing.median


def bench_line(
    line: BatchLine,
    device: Device,
    anchor: Anchor,
    effort: Effort,
    choose: Choose | None = None,
    seed: int = 0,
    *,
    name_kernels: bool = False,
) -> BenchRow:
    """Measures one problem; what goes wrong with it is in the row, not raised. `choose`: None takes the model's.

    `name_kernels`: whether the anchor's kernels are found out, after the timed calls.
    """
    reason = anchor.refusal(line.problem)
    if reason:
        return BenchRow(line, BenchVerdict.SKIPPED, reason)
    try:
        chosen = choose or _compiled(line.problem, device)
        return _measured(line, anchor, effort, chosen, seed, name_kernels)
    except (ConvloomError, RuntimeError, MemoryError) as error:  # frameworks and drivers raise RuntimeError
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return BenchRow(line, BenchVerdict.FAILED, words)


def _compiled(problem: Problem, device: Device) -> Choose:
    def choose(_: OpenStand) -> Picked:
        begin = time.perf_counter()
        kernel = compile(problem, device)
        return Picked(kernel, compile_seconds=time.perf_counter() - begin)

    return choose


class AnchorStand:
    """A stand on the tensors that the anchor computes with, judged by the anchor's reference."""

    def __init__(self, problem: Problem, anchor: Anchor, placed: Placed, operands: Operands) -> None:
        self.timer = anchor.timer
        self._problem, self._anchor, self._placed = problem, anchor, placed
        self._expected = anchor.reference(problem, operands)

    def compare(self, kernel: Kernel) -> Comparison:
        """The result of one call against the reference, on a result that nobody has written."""
        self._anchor.poison(self._placed.result)
        self.call(kernel)()
        return compare(self._problem, self._anchor.logical(self._problem, self._placed.result), self._expected)

    def fault(self, kernel: Kernel) -> str:
        """See `Stand`."""
        return self.compare(kernel).fault

    def call(self, kernel: Kernel) -> Call:
        """See `Stand`."""
        placed = self._placed
        return lambda: kernel(placed.first, placed.second, out=placed.result)


def _measured(
    line: BatchLine, anchor: Anchor, effort: Effort, choose: Choose, seed: int, name_kernels: bool
) -> BenchRow:
    problem = line.problem
    operands = make_operands(problem, DataKind.REAL, seed)
    placed = anchor.place(problem, operands)
    theirs = anchor.call(problem, placed)
    begin = time.perf_counter()
    anchor.timer.seconds(theirs)
    anchor_seconds = time.perf_counter() - begin
    stand = AnchorStand(problem, anchor, placed, operands)
    picked = choose(lambda: nullcontext(stand))
    kernel = picked.kernel
    row = BenchRow(
        line,
        BenchVerdict.MEASURED,
        plan=kernel.plan,
        compile_seconds=picked.compile_seconds,
        tuning_seconds=picked.tuning_seconds,
        known=picked.known,
        tried=picked.tried,
        anchor_seconds=anchor_seconds,
    )
    found = stand.compare(kernel)
    row = replace(row, bound_ratio=found.max_ratio)
    if not found.passed:
        return replace(row, verdict=BenchVerdict.FAILED, reason=found.fault)
    pair = measure_pair(anchor.timer, stand.call(kernel), theirs, effort)
    return replace(
        row,
        pair=pair,
        clock_mhz=None if anchor.clocks is None else anchor.clocks.now(),
        kernels=tuple(source.name for source in kernel.variants[0].program.launches),
        anchor_kernels=anchor.kernels(theirs) if name_kernels else (),
        ops=problem.ops,
        nbytes=touched_bytes(problem),
        peaks=anchor.peaks(problem),
    )
