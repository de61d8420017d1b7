"""From a problem to a kernel on a device, for the commands."""

from __future__ import annotations

from convloom.artifact import Language
from convloom.compiler import Generated, generate, plan_for, prepare
from convloom.problem.reference import Problem
from convloom.runtime.interface import Built, Device
from convloom.target.arch import CPU, OPENCL, Target, target_named


def target_of(device: Device) -> Target:
    """What code for this device is planned for."""
    return {Language.C: CPU, Language.OPENCL: OPENCL}.get(device.language) or target_named(device.arch)


def generate_for(problem: Problem, target: Target, plan: str | None = None) -> Generated:
    """Contraction, plan, IR and source of a problem; `plan` is a plan's text, None lets the planner choose."""
    contraction = prepare(problem).contraction
    return generate(contraction, target, plan_for(contraction, target, plan))


def build_for(problem: Problem, device: Device, plan: str | None = None) -> Built:
    """The problem's kernel, compiled and loaded."""
    return device.build(generate_for(problem, target_of(device), plan).source)
