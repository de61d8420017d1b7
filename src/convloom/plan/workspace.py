"""The scratch memory that a plan takes for partial sums, and whether a caller allows the plan."""

from __future__ import annotations

from convloom.expr import Expr, Truth, const, prove, simplify
from convloom.plan.flat_axis import merged_axis
from convloom.plan.grid_plan import GridPlan
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from convloom.problem.contraction import Contraction, exchange
from convloom.problem.conv import NO_SCALING


def workspace_numbers(plan: GridPlan, contraction: Contraction) -> Expr:
    """Numbers of the accumulator's type in the workspace: whole tiles of C, for every part of K that has its own."""
    if plan.split.how is Reduction.NONE or (plan.split.how is Reduction.ATOMIC and adds_to_result(contraction)):
        return const(0)
    oriented = exchange(contraction) if plan.swap else contraction
    m = merged_axis(oriented, "M", plan.m, plan.block_m)
    n = merged_axis(oriented, "N", plan.n, plan.block_n)
    g = merged_axis(oriented, "G", plan.g)
    tiles = m.tiles * n.tiles * g.extent * oriented.phase_count
    copies = plan.split.parts if plan.split.how is Reduction.PASSES else 1
    return simplify(tiles * (plan.block_m * plan.block_n * copies))


def adds_to_result(contraction: Contraction) -> bool:
    """Whether atomic sums need no workspace: C has the accumulator's type, and nothing happens to it after the sum."""
    bare = Contraction(
        contraction.axes,
        contraction.a,
        contraction.b,
        contraction.c,
        contraction.acc,
        None,
        NO_SCALING,
        contraction.phases,
    )
    return contraction.c.dtype is contraction.acc and contraction == bare


def workspace_bytes(plan: GridPlan, contraction: Contraction) -> Expr:
    """Bytes of the workspace of one call, over the problem's symbols."""
    return simplify(workspace_numbers(plan, contraction) * contraction.acc.nbytes)


def workspace_condition(plan: GridPlan, contraction: Contraction, policy: Policy) -> Expr:
    """Whether a call's workspace stays within the caller's limit."""
    if policy.max_workspace is None:
        return const(1)
    return workspace_bytes(plan, contraction).le(policy.max_workspace)


def refused_by(policy: Policy, plan: GridPlan, contraction: Contraction) -> str | None:
    """The reason why a caller does not allow a plan, whatever the sizes; None if it may run."""
    if plan.split.how is Reduction.ATOMIC and policy.deterministic and contraction.acc.is_float:
        return (
            f"deterministic sums are added in an order that does not depend on time; split={plan.split} adds "
            f"{contraction.acc} atomically"
        )
    if prove(workspace_condition(plan, contraction, policy)) is Truth.NO:
        needed = workspace_bytes(plan, contraction)
        return f"a call may use {policy.max_workspace} bytes of workspace; this plan needs {needed}"
    return None
