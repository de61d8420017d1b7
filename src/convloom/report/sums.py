"""How the sum over K comes together, in words."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.expr import to_text
from convloom.plan.families import Plan
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from convloom.plan.workspace import adds_to_result, workspace_bytes
from convloom.problem.contraction import Contraction


def sum_lines(plan: Plan, contraction: Contraction, policy: Policy, preferred: Plan | None = None) -> Iterator[str]:
    """Parts of K over the grid and in a block, workspace and determinism; what the caller's wishes changed.

    `preferred`: the plan that would be taken without those wishes, if the plan was chosen.
    """
    yield _over_the_grid(plan, contraction)
    if plan.k_groups > 1:
        yield f"in a block {plan.k_groups} groups of threads share each K tile and add up in shared memory, in order"
    yield f"workspace of a call: {to_text(workspace_bytes(plan, contraction))} bytes{_limit(policy)}"
    yield _repeatability(plan, contraction)
    if preferred is not None and preferred != plan:
        needed = to_text(workspace_bytes(preferred, contraction))
        yield f"without the caller's wishes the plan would be split={preferred.split}, with {needed} bytes of workspace"


def _over_the_grid(plan: Plan, contraction: Contraction) -> str:
    if plan.split.how is Reduction.NONE:
        return "each block sums all of K"
    shared = f"{plan.split.parts} blocks share the K of one tile"
    if plan.split.how is Reduction.PASSES:
        return f"{shared}; a second launch adds their partial sums, in order"
    if adds_to_result(contraction):
        return f"{shared} and add to the result atomically; a launch before clears it"
    return f"{shared} and add to a workspace atomically; a launch before clears it, one behind runs the epilogue"


def _repeatability(plan: Plan, contraction: Contraction) -> str:
    if plan.split.how is Reduction.ATOMIC and contraction.acc.is_float:
        return "sums are added in the order in which blocks happen to run: bits may differ from call to call"
    return "equal calls give equal bits"


def _limit(policy: Policy) -> str:
    return "" if policy.max_workspace is None else f", at most {policy.max_workspace} allowed"
