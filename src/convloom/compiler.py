"""The facade: (problem, target, plan) -> source text with its launch arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from convloom.artifact import (
    Access,
    BufferParam,
    KernelSource,
    Language,
    Program,
    Requirement,
    ScalarKind,
    ScalarParam,
    TensorMapParam,
)
from convloom.dtypes import F64
from convloom.emit.c import print_c
from convloom.emit.cuda import print_cuda
from convloom.emit.opencl import print_opencl
from convloom.expr import Expr, free_symbols, to_text
from convloom.ir.ops import Kernel, LaunchScalar, MapParameter
from convloom.ir.rewrite import statement_expressions, statements_in
from convloom.ir.shared_space import shared_bytes
from convloom.ir.text import kernel_text
from convloom.ir.verify import bound_symbols
from convloom.lower.build import build_kernels, main_launch
from convloom.lower.instrument import observe, observe_final, observe_plan
from convloom.lower.passes import Observer, run_passes
from convloom.plan.choose import choose_plan, given_plan
from convloom.plan.families import Plan, plan_text
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.requirements import PlanRequirement, plan_requirements
from convloom.plan.workspace import workspace_bytes
from convloom.problem.contract_conv import contract_conv
from convloom.problem.contract_gemm import contract_gemm
from convloom.problem.contraction import Contraction
from convloom.problem.conv import Conv
from convloom.problem.gemm import Gemm
from convloom.problem.normal_form import NormalForm, normal_form
from convloom.target.arch import Target

Problem = Conv | Gemm

_PRINTERS: dict[Language, Callable[[Kernel], str]] = {
    Language.C: print_c,
    Language.OPENCL: print_opencl,
    Language.CUDA: print_cuda,
    Language.IR: kernel_text,
}


@dataclass(frozen=True, slots=True)
class Generated:
    """Everything that was derived for one kernel."""

    contraction: Contraction
    plan: Plan
    kernels: tuple[Kernel, ...]
    program: Program

    @property
    def kernel(self) -> Kernel:
        """The kernel that multiplies."""
        return self.kernels[self.program.main]

    @property
    def source(self) -> KernelSource:
        """The source of the kernel that multiplies."""
        return self.program.launches[self.program.main]


def contract(problem: Problem) -> Contraction:
    """The problem as a contraction over views."""
    return contract_conv(problem) if isinstance(problem, Conv) else contract_gemm(problem)


@lru_cache(maxsize=1024)
def prepare(problem: Problem) -> NormalForm:
    """The contraction in normal form, which plans and kernels are made for, and the tensors behind its operands."""
    return normal_form(contract(problem))


def plan_for(contraction: Contraction, target: Target, text: str | None = None, policy: Policy = ANYTHING) -> Plan:
    """The plan given as text, or the one the cost model prefers among those that the caller allows."""
    if text is None:
        return choose_plan(contraction, target, policy=policy)
    return given_plan(text, contraction, target, policy)


def generate(
    contraction: Contraction,
    target: Target,
    plan: Plan,
    observe: Observer = observe,
    policy: Policy = ANYTHING,
) -> Generated:
    """Builds, lowers and prints the kernels of one plan."""
    observe_plan(plan_text(plan))
    kernels = tuple(
        run_passes(kernel, _problem_symbols(kernel), target, observe) for kernel in build_kernels(contraction, plan)
    )
    for kernel in kernels:
        observe_final(kernel)
    requirements = plan_requirements(plan, contraction, target, policy)
    launches = tuple(
        _source(kernel, target, _PRINTERS[target.language](kernel), _concerning(requirements, kernel, kernels))
        for kernel in kernels
    )
    program = Program(launches, to_text(workspace_bytes(plan, contraction)), main_launch(plan))
    return Generated(contraction, plan, kernels, program)


def _concerning(
    requirements: tuple[PlanRequirement, ...], kernel: Kernel, kernels: tuple[Kernel, ...]
) -> tuple[PlanRequirement, ...]:
    """The requirements that one launch checks: those on its own addresses, and for the first one those on sizes."""
    names = {buffer.name for buffer in kernel.buffers}
    first = kernel is kernels[0]
    return tuple(item for item in requirements if (item.operand in names if item.on_address else first))


def _problem_symbols(kernel: Kernel) -> frozenset[Expr]:
    """Every symbol that the kernel uses without binding it."""
    used: set[Expr] = set(free_symbols(kernel.blocks))
    for statement in statements_in(kernel.body):
        for expression in statement_expressions(statement):
            used |= free_symbols(expression)
    return frozenset(used) - bound_symbols(kernel)


def _source(kernel: Kernel, target: Target, text: str, requirements: tuple[PlanRequirement, ...]) -> KernelSource:
    buffers = tuple(
        BufferParam(buffer.name, str(buffer.dtype), Access.READ_WRITE if buffer.written else Access.READ)
        for buffer in kernel.buffers
    )
    return KernelSource(
        kernel.name,
        target.language,
        target.arch,
        text,
        buffers,
        tuple(_scalar(scalar) for scalar in kernel.scalars),
        (to_text(kernel.blocks), "1", "1"),
        (kernel.threads, 1, 1),
        shared_bytes(kernel) if target.language is Language.CUDA else 0,
        tuple(Requirement(to_text(item.condition), item.reason) for item in requirements),
        tuple(map(_tensor_map, kernel.maps)),
    )


def _tensor_map(item: MapParameter) -> TensorMapParam:
    return TensorMapParam(
        item.name,
        item.buffer.name,
        str(item.buffer.dtype),
        tuple(map(to_text, item.sizes)),
        tuple(map(to_text, item.strides)),
        to_text(item.offset),
        item.steps,
        item.swizzle.value,
        item.box,
        item.lower,
        item.upper,
        item.channels,
        item.pixels,
    )


def _scalar(scalar: LaunchScalar) -> ScalarParam:
    if isinstance(scalar.value, str):
        return ScalarParam(scalar.name, scalar.value, ScalarKind.F64 if scalar.dtype is F64 else ScalarKind.F32)
    return ScalarParam(scalar.name, to_text(scalar.value), ScalarKind.I64)


def source_digest(source: KernelSource | Program) -> str:
    """The identity of a kernel, or of all kernels of a call: a hash of text and launch recipe."""
    return hashlib.sha256(repr(source).encode()).hexdigest()[:16]
