"""Plans that divide sums over K, made from those of the planner."""

from dataclasses import replace

from convloom.compiler import prepare
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.check_plan import check_plan
from convloom.plan.estimate import estimate
from convloom.plan.split import NO_SPLIT, Reduction, Split

_MOST_SUMS = 2048  # of a block: small kernels compile and are interpreted fast


def undivided(contraction, target, row=None, most=2**30):
    """The best plan that sums all of K in one place, with this row if one is given and at most so many sums a block."""
    every = candidates(contraction, target, arrangements(contraction, target))
    fitting = (found for found in every if row in (None, found[0].row) and found[0].block_m * found[0].block_n <= most)
    return min(fitting, key=lambda found: estimate(found[0], found[1].work, target).seconds)[0]


def divided(contraction, target, parts=1, k_groups=1, walk=1, how=Reduction.PASSES, *, row=None):
    """The same with K split into parts and groups; the K tile grows to what the groups can share."""
    plan = undivided(contraction, target, row, most=_MOST_SUMS)
    depth = k_groups * (1 if plan.instruction is None else plan.instruction.shape[2])
    plan = replace(
        plan,
        block_k=-(-plan.block_k // depth) * depth,
        k_groups=k_groups,
        split=NO_SPLIT if parts == 1 else Split(how, parts),
        collect=plan.collect if parts == 1 else 0,
        walk=walk,
    )
    refused = check_plan(plan, contraction, target)
    assert refused is None, refused
    return plan


def contraction_of(problem):
    """The contraction that plans are made for."""
    return prepare(problem).contraction
