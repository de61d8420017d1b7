"""The whole way of one problem in words: contraction, views, plan, requirements, source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from convloom.artifact import KernelSource, Program
from convloom.compiler import Generated, contract, prepare
from convloom.expr import local_sym, to_text
from convloom.plan.families import Plan, plan_text
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.bias_gradient import bias_gradient_problem
from convloom.problem.contraction import Contraction, Operand
from convloom.problem.conv import Conv
from convloom.problem.epilogue import Accumulator, expression_text
from convloom.problem.reference import Problem
from convloom.problem.stride_key import key_text
from convloom.report.problem_text import problem_text
from convloom.report.sums import sum_lines
from convloom.view import View, structure

_SHOWN = 16  # values of a phase parameter
_LONG_LIST = re.compile(rf"((?:-?\d+,){{{_SHOWN}}})(?:-?\d+,)*-?\d+")


def explanation(
    problem: Problem, generated: Generated, policy: Policy = ANYTHING, preferred: Plan | None = None
) -> str:
    """Everything that was decided for a problem, one fact a line.

    `policy` is what the caller allowed; `preferred` the plan that would have been chosen without it.
    """
    plan = generated.plan
    return "\n".join(
        [
            f"problem       {problem_text(problem)}",
            *_section("contraction", contraction_lines(contract(problem))),
            *_section("normal form", normal_form_lines(problem)),
            f"plan          {plan_text(plan)}",
            *_bias_gradient_lines(problem),
            *_section("sums", sum_lines(plan, generated.contraction, policy, preferred)),
            *_section("requirements", _requirement_lines(generated.program)),
            *(line for source in generated.program.launches for line in _section("source", _source_lines(source))),
        ]
    )


def _bias_gradient_lines(problem: Problem) -> list[str]:
    """What is launched beside the weight gradient."""
    if not isinstance(problem, Conv) or problem.bias_grad is None:
        return []
    return [f"bias gradient {key_text(prepare(bias_gradient_problem(problem)).contraction)}, in launches of its own"]


def contraction_lines(contraction: Contraction) -> Iterator[str]:
    """Axes, then each operand with its structure per axis and its masks, then the phases of a family."""
    axes = [f"{axis.name}:{to_text(axis.extent)} ({axis.kind.value.upper()})" for axis in contraction.axes]
    yield "axes    " + "  ".join(axes)
    for role, operand in _operands(contraction):
        yield f"{role:<8}{operand.name} {operand.dtype}: {_structure_text(operand.view)}"
        for condition in _conditions(operand.view):
            yield f"        valid where {condition}"
    yield f"sums in {contraction.acc}"
    for parameter in contraction.phases:
        values = " ".join(map(str, parameter.values[:_SHOWN]))
        rest = f" .. ({len(parameter.values)} in all)" if len(parameter.values) > _SHOWN else ""
        yield f"phases  {to_text(parameter.symbol)} = {values}{rest}"
    factors = [name for name in ("alpha", "beta") if getattr(contraction.scaling, name)]
    if factors:
        yield f"scaled  by {' and '.join(factors)}"
    yield from _epilogue_lines(contraction)


def _epilogue_lines(contraction: Contraction) -> Iterator[str]:
    """What becomes of a sum: the operands that scale it, the expression with operands by name."""
    steps = contraction.steps
    if steps.factors:
        yield f"times   {' and '.join(contraction.extras[number].name for number in steps.factors)}"
    if not isinstance(steps.expression, Accumulator):
        text = expression_text(steps.expression)
        names = {f"in{number}": operand.name for number, operand in enumerate(contraction.extras)}
        yield "stored  " + re.sub(r"\bin\d+\b", lambda found: names[found.group()], text)


def normal_form_lines(problem: Problem) -> Iterator[str]:
    """The stride key, long lists shortened, whose axes the plan names, and the tensors behind its operands."""
    normal = prepare(problem)
    yield _LONG_LIST.sub(r"\1..", key_text(normal.contraction))
    yield "where " + ", ".join(f"{operand} is {tensor}" for operand, tensor in normal.tensors)


def _operands(contraction: Contraction) -> list[tuple[str, Operand]]:
    """By role: those that are multiplied, the result, then what the epilogue reads."""
    found = [("A", contraction.a), ("B", contraction.b), ("C", contraction.c)]
    given = (("bias", contraction.bias), ("A less", contraction.zero_a), ("B less", contraction.zero_b))
    extras = [("fused", operand) for operand in contraction.extras]
    return [*found, *((role, operand) for role, operand in given if operand is not None), *extras]


def _structure_text(view: View) -> str:
    """`axis extent:stride,..` per axis that moves the offset, digits outermost first."""
    parts: list[str] = []
    for axis, digits in structure(view).items():
        if digits is None:
            parts.append(f"{axis} (not a list of strides)")
        elif any(to_text(stride) != "0" for _, stride in digits):
            text = ",".join(f"{to_text(extent)}:{to_text(stride)}" for extent, stride in digits)
            parts.append(f"{axis} {text}")
    return "  ".join(parts) or "one element"


def _conditions(view: View) -> list[str]:
    coordinates = {axis.name: local_sym(axis.name, lo=0) for axis in view.axes}
    return [to_text(condition) for condition in view.access(coordinates).conditions]


def _requirement_lines(program: Program) -> Iterator[str]:
    requirements = [item for source in program.launches for item in source.requirements]
    if not requirements:
        yield "none: everything the plan relies on is proved"
    for requirement in requirements:
        yield f"{requirement.condition}    ({requirement.reason})"


def _source_lines(source: KernelSource) -> Iterator[str]:
    yield f"{source.name}: {source.language.value}, {source.text.count(chr(10))} lines, {len(source.text)} bytes"
    yield f"grid {' x '.join(source.grid)} blocks of {' x '.join(map(str, source.block))} threads"
    yield "arguments " + ", ".join(
        [*(f"{buffer.name} ({buffer.dtype} {buffer.access.value})" for buffer in source.buffers)]
        + [f"{scalar.name} = {scalar.expression}" for scalar in source.scalars]
    )


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Lines behind a title, the title once."""
    for position, line in enumerate(lines):
        yield f"{title if position == 0 else '':<14}{line}"
