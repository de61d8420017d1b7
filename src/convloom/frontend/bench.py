"""One problem of a benchmark: built, its result verified, then timed beside an anchor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from convloom.errors import ConvloomError
from convloom.frontend.anchor import Anchor, Peaks, Placed
from convloom.frontend.compile import compile
from convloom.frontend.kernel import Kernel
from convloom.problem.conv import Conv
from convloom.problem.data import DataKind, make_operands
from convloom.problem.notation import BatchLine
from convloom.problem.numerics import compare
from convloom.problem.reached import touched_bytes
from convloom.problem.reference import Problem
from convloom.runtime.interface import Device
from convloom.runtime.pair_timing import Call, Effort, Pair, measure_pair
from convloom.runtime.timing import Timing

Build = Callable[[Problem, Device], Kernel]


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
    compile_seconds: float = 0.0  # planning, generating, building; short where the binary was cached
    anchor_seconds: float = 0.0  # the anchor's first call, with its own search
    bound_ratio: float = 0.0
    ops: int = 0
    nbytes: int = 0
    pair: Pair | None = None
    peaks: Peaks | None = None

    @property
    def direction(self) -> str:
        """Direction of a convolution; `gemm` for a product."""
        problem = self.line.problem
        return problem.direction.value if isinstance(problem, Conv) else "gemm"

    def roofline_share(self, timing: Timing) -> float:
        """The roofline's time divided by a measured one; 0 if nothing was measured."""
        return 0.0 if self.peaks is None else self.peaks.least_seconds(self.ops, self.nbytes) / timing.median


def bench_line(
    line: BatchLine, device: Device, anchor: Anchor, effort: Effort, build: Build = compile, seed: int = 0
) -> BenchRow:
    """Measures one problem; what goes wrong with it is in the row, not raised."""
    reason = anchor.refusal(line.problem)
    if reason:
        return BenchRow(line, BenchVerdict.SKIPPED, reason)
    try:
        return _measured(line, device, anchor, effort, build, seed)
    except (ConvloomError, RuntimeError, MemoryError) as error:  # frameworks and drivers raise RuntimeError
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return BenchRow(line, BenchVerdict.FAILED, words)


def _measured(line: BatchLine, device: Device, anchor: Anchor, effort: Effort, build: Build, seed: int) -> BenchRow:
    problem = line.problem
    begin = time.perf_counter()
    kernel = build(problem, device)
    row = BenchRow(line, BenchVerdict.MEASURED, plan=kernel.plan, compile_seconds=time.perf_counter() - begin)
    operands = make_operands(problem, DataKind.REAL, seed)
    placed = anchor.place(problem, operands)
    theirs = anchor.call(problem, placed)
    begin = time.perf_counter()
    anchor.timer.seconds(theirs)
    row = replace(row, anchor_seconds=time.perf_counter() - begin)
    ours = _our_call(kernel, placed)
    ours()
    found = compare(problem, anchor.logical(problem, placed.result), anchor.reference(problem, operands))
    row = replace(row, bound_ratio=found.max_ratio)
    if not found.passed:
        wrong = f"{found.mismatches} elements wrong, the first at {found.first_bad}"
        values = f"{found.given:.9g} instead of {found.expected:.9g}"
        return replace(row, verdict=BenchVerdict.FAILED, reason=f"{wrong}: {values}")
    return replace(
        row,
        pair=measure_pair(anchor.timer, ours, theirs, effort),
        ops=problem.ops,
        nbytes=touched_bytes(problem),
        peaks=anchor.peaks(problem),
    )


def _our_call(kernel: Kernel, placed: Placed) -> Call:
    return lambda: kernel(placed.first, placed.second, out=placed.result)
