"""The scratch memory that a plan takes for partial sums, and whether a caller allows the plan."""

from __future__ import annotations

from convloom.expr import Expr, Truth, const, prove, simplify
from convloom.plan.flat_axis import merged_axis
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, exchange


def workspace_numbers(plan: TiledPlan, contraction: Contraction) -> Expr:
    """Numbers of the accumulator's type in the workspace: whole tiles of C, for every part of K."""
    if plan.split.how is Reduction.NONE:
        return const(0)
    oriented = exchange(contraction) if plan.swap else contraction
    m = merged_axis(oriented, "M", plan.m, plan.block_m)
    n = merged_axis(oriented, "N", plan.n, plan.block_n)
    g = merged_axis(oriented, "G", plan.g)
    tiles = m.tiles * n.tiles * g.extent * oriented.phase_count
    return simplify(tiles * (plan.block_m * plan.block_n * plan.split.parts))


def workspace_bytes(plan: TiledPlan, contraction: Contraction) -> Expr:
    """Bytes of the workspace of one call, over the problem's symbols."""
    return simplify(workspace_numbers(plan, contraction) * contraction.acc.nbytes)


def workspace_condition(plan: TiledPlan, contraction: Contraction, policy: Policy) -> Expr:
    """Whether a call's workspace stays within the caller's limit."""
    if policy.max_workspace is None:
        return const(1)
    return workspace_bytes(plan, contraction).le(policy.max_workspace)


def refused_by(policy: Policy, plan: TiledPlan, contraction: Contraction) -> str | None:
    """The reason why a caller does not allow a plan, whatever the sizes; None if it may run."""
    if prove(workspace_condition(plan, contraction, policy)) is Truth.NO:
        needed = workspace_bytes(plan, contraction)
        return f"a call may use {policy.max_workspace} bytes of workspace; this plan needs {needed}"
    return None
