"""Runs a problem on generated data and compares the result with the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from convloom.frontend.device_run import DeviceRun, run_on_device
from convloom.frontend.host_memory import check_fits_memory
from convloom.frontend.kernel import Kernel
from convloom.problem.bias_gradient import bias_gradient_problem, gradient_operands
from convloom.problem.conv import Conv
from convloom.problem.data import DataKind, make_operands, nonzero_share
from convloom.problem.fused_reference import compare_fused, deciding_share, fused_reference
from convloom.problem.numerics import Comparison, compare, compare_exact
from convloom.problem.reference import Arithmetic, Operands, Problem, reference

LEAST_NONZERO_SHARE = 0.3  # below it a comparison says too little and counts as failed


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Outcome of one check: the comparison, the share of outputs that say something, time, what lies out of bounds."""

    comparison: Comparison
    nonzero_share: float
    seconds: float | None
    overrun: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """True if every element is right, nothing else was written, and the data could have shown a fault."""
        return self.reason == ""

    @property
    def reason(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        if not self.comparison.passed:
            return self.comparison.fault
        if self.overrun:
            return f"memory outside {', '.join(self.overrun)} was written"
        if self.nonzero_share < LEAST_NONZERO_SHARE:
            return f"only {self.nonzero_share:.1%} of the outputs are non-zero, or other than without any products"
        return ""


def check_problem(
    kernel: Kernel, kind: DataKind, *, problem: Problem | None = None, seed: int = 0, measure_seconds: float = 0.0
) -> CheckOutcome:
    """Runs the kernel on data of this kind; integers must be equal bit for bit, reals within the bound.

    Where an epilogue rounds on the way (exp, inexact scales ..) integers too are compared within its bound.

    `problem`: the sizes of the call where the kernel's are dims. Raises IllegalProblem for symbolic sizes, and for
    tensors that do not fit the machine's memory.
    """
    called = kernel.problem if problem is None else problem
    check_fits_memory(called)
    operands = make_operands(called, kind, seed)
    run = run_on_device(kernel, operands, problem=called, measure_seconds=measure_seconds)
    return judge(called, operands, run, kind)


def judge(problem: Problem, operands: Operands, run: DeviceRun, kind: DataKind) -> CheckOutcome:
    """Compares a run with the reference; the share of non-zero outputs matters for integers only.

    Of a problem with a bias gradient both results must be right: what is told is that of the wrong one.
    """
    return Judge(problem, operands, kind)(run)


class Judge:
    """Compares any number of runs on the same operands with their reference, which is computed once."""

    def __init__(self, problem: Problem, operands: Operands, kind: DataKind) -> None:
        self._compare = _comparer(problem, operands, kind)
        self._compare_sums: Callable[[DeviceRun], CheckOutcome] | None = None
        if isinstance(problem, Conv) and problem.bias_grad is not None:
            sums = bias_gradient_problem(problem)
            self._compare_sums = _comparer(sums, gradient_operands(problem, operands), kind)

    def __call__(self, run: DeviceRun) -> CheckOutcome:
        """See `judge`."""
        found = self._compare(run)
        if not found.passed or run.bias_grad is None or self._compare_sums is None:
            return found
        told = self._compare_sums(replace(run, result=run.bias_grad, bias_grad=None))
        told = replace(told, nonzero_share=1.0)  # a handful of sums may be 0
        return found if told.passed else told


def _comparer(problem: Problem, operands: Operands, kind: DataKind) -> Callable[[DeviceRun], CheckOutcome]:
    if not problem.epilogue.is_empty:
        fused = fused_reference(problem, operands, exact=kind is DataKind.INT)
        share = deciding_share(problem, fused) if kind is DataKind.INT else 1.0
        return lambda run: CheckOutcome(compare_fused(problem, run.result, fused), share, run.seconds, run.overrun)
    if kind is DataKind.INT:
        exact = reference(problem, operands, Arithmetic.EXACT)
        share = nonzero_share(problem, exact.value)
        return lambda run: CheckOutcome(compare_exact(problem, run.result, exact), share, run.seconds, run.overrun)
    expected = reference(problem, operands, magnitude=True)
    return lambda run: CheckOutcome(compare(problem, run.result, expected), 1.0, run.seconds, run.overrun)
