"""How the sum over K comes together, in words."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.expr import to_text
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from convloom.plan.tiled import TiledPlan
from convloom.plan.workspace import workspace_bytes
from convloom.problem.contraction import Contraction


def sum_lines(
    plan: TiledPlan, contraction: Contraction, policy: Policy, preferred: TiledPlan | None = None
) -> Iterator[str]:
    """Parts of K over the grid and in a block, workspace and determinism; what the caller's wishes changed.

    `preferred`: the plan that would be taken without those wishes, if the plan was chosen.
    """
    yield _over_the_grid(plan)
    if plan.k_groups > 1:
        yield f"in a block {plan.k_groups} groups of threads share each K tile and add up in shared memory, in order"
    yield f"workspace of a call: {to_text(workspace_bytes(plan, contraction))} bytes{_limit(policy)}"
    yield "equal calls give equal bits"
    if preferred is not None and preferred != plan:
        needed = to_text(workspace_bytes(preferred, contraction))
        yield f"without the caller's wishes the plan would be split={preferred.split}, with {needed} bytes of workspace"


def _over_the_grid(plan: TiledPlan) -> str:
    if plan.split.how is Reduction.NONE:
        return "each block sums all of K"
    return f"{plan.split.parts} blocks share the K of one tile; a second launch adds their partial sums, in order"


def _limit(policy: Policy) -> str:
    return "" if policy.max_workspace is None else f", at most {policy.max_workspace} allowed"
