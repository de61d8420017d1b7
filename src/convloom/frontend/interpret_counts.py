"""Runs a problem's kernel for any GPU target under the interpreter, with counting."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convloom.artifact import Language
from convloom.compiler import prepare
from convloom.errors import IllegalProblem
from convloom.frontend.interpret_device import InterpretBuilt, InterpretDevice
from convloom.frontend.interpret_kernel import InterpretKernel
from convloom.frontend.problem_check import CheckOutcome, check_problem
from convloom.ir.interpret import Options, Outcome
from convloom.plan.families import Plan
from convloom.plan.predicted import Predicted, predicted
from convloom.problem.data import DataKind
from convloom.problem.reference import Problem
from convloom.target.arch import Target


@dataclass(frozen=True, slots=True)
class Interpretation:
    """What a kernel did, what the cost model takes its plan to do (None: no estimate), and the check of its result."""

    plan: Plan
    outcome: Outcome
    predicted: Predicted | None
    check: CheckOutcome


def interpret_counted(problem: Problem, target: Target, plan: str | None = None) -> Interpretation:
    """Interprets one launch on integer data.

    IllegalProblem for the cpu target (its kernels are serialised), symbolic sizes and empty results; InterpretedFault
    for a faulty kernel.
    """
    if target.language is Language.C:
        raise IllegalProblem(
            f"the interpreter runs kernels of GPU targets; got target {target.name}; choose interpret or sm_90a"
        )
    device = InterpretDevice(Options(counted=True))
    kernel = InterpretKernel(problem, device, replace(target, language=Language.IR, arch=device.arch), plan)
    check = check_problem(kernel, DataKind.INT)
    built = next((variant.launches[variant.program.main].built for variant in kernel.variants), None)
    if not isinstance(built, InterpretBuilt) or built.last is None:
        raise IllegalProblem("an interpretation needs a result that is not empty; got an empty one; use larger sizes")
    contraction = prepare(problem).contraction
    chosen = kernel.variants[0].plan
    return Interpretation(chosen, built.last, predicted(chosen, contraction, target), check)
