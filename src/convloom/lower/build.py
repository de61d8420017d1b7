"""The kernels of a plan of any family."""

from __future__ import annotations

from convloom.ir.ops import Kernel
from convloom.lower.build_hopper import build_hopper
from convloom.lower.build_tiled import build_tiled
from convloom.plan.families import Plan
from convloom.plan.hopper import HopperPlan
from convloom.plan.split import Reduction
from convloom.problem.contraction import Contraction


def build_kernels(contraction: Contraction, plan: Plan) -> tuple[Kernel, ...]:
    """The kernels in the order of their launches; see the families' builders."""
    return build_hopper(contraction, plan) if isinstance(plan, HopperPlan) else build_tiled(contraction, plan)


def main_launch(plan: Plan) -> int:
    """The place of the kernel that multiplies among those of `build_kernels`: behind one that clears memory."""
    return 1 if plan.split.how is Reduction.ATOMIC else 0
