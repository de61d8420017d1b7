"""Picks the plan of a contraction: given as text, else the cheapest candidate by the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from convloom.errors import Infeasible, InternalError
from convloom.plan.candidates import Arrangement, arrangements, candidates
from convloom.plan.check_plan import check_plan
from convloom.plan.choose_walk import choose_walk
from convloom.plan.estimate import estimate
from convloom.plan.families import Plan, parse_plan, plan_outline
from convloom.plan.hopper_candidates import hopper_candidates
from convloom.plan.hopper_estimate import estimate_hopper
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.requirements import fits_32_bits
from convloom.problem.contraction import Contraction
from convloom.target.arch import Target

_SAMPLE = 17  # every 17th shape stands for all when arrangements are compared
_KEPT = 2  # arrangements whose shapes are all looked at


class RankedPlan(NamedTuple):
    """A candidate of any family with the seconds that the cost model predicts."""

    plan: Plan
    seconds: float


def choose_plan(contraction: Contraction, target: Target, *, general: bool = False, policy: Policy = ANYTHING) -> Plan:
    """The candidate with the least predicted time among those that the caller allows; see `ranked_plans`."""
    return ranked_plans(contraction, target, 1, general=general, policy=policy)[0]


def ranked_plans(
    contraction: Contraction, target: Target, count: int, *, general: bool = False, policy: Policy = ANYTHING
) -> tuple[Plan, ...]:
    """Up to `count` candidates among those that the caller allows, the one with the least predicted time first.

    Arrangements (orientation, order of axes) are ranked by a sample of tile shapes first, then all shapes of the best
    few are costed. 64-bit index math only where 32 bits are known not to do. `general`: plans that rely on nothing,
    with 64-bit index math, one number per access and no workspace, for calls that break the requirements of the
    preferred one.
    """
    return tuple(item.plan for item in ranked_candidates(contraction, target, count, general=general, policy=policy))


def ranked_candidates(
    contraction: Contraction, target: Target, count: int, *, general: bool = False, policy: Policy = ANYTHING
) -> tuple[RankedPlan, ...]:
    """The plans of `ranked_plans` with their predicted times."""
    best = nsmallest(count, _costed(contraction, target, general, policy), key=_order)
    _check_found(best, contraction, target)
    if general:
        return tuple(RankedPlan(item.plan, item.seconds) for item in best)
    return tuple(_walked(item, target) for item in best)


def diverse_plans(
    contraction: Contraction, target: Target, count: int, *, policy: Policy = ANYTHING
) -> tuple[RankedPlan, ...]:
    """Up to `count` candidates worth measuring, the one with the least predicted time first: the model's own choice.

    The cost model errs alike for plans that are nearly alike, so one of them says what all would. Of each outline
    (`families.plan_outline`: what multiplies, how C is tiled, how K is divided) the best is taken, in the order of
    predicted time; only where outlines run out, the next best of any.
    """
    costed = sorted(_costed(contraction, target, False, policy), key=_order)
    _check_found(costed, contraction, target)
    leaders = list({plan_outline(item.plan): item for item in reversed(costed)}.values())
    taken = nsmallest(count, leaders, key=_order)
    if len(taken) < count:
        first = {item.plan for item in taken}
        taken += [item for item in costed if item.plan not in first][: count - len(taken)]
    return tuple(_walked(item, target) for item in sorted(taken, key=_order))


def _walked(item: _Costed, target: Target) -> RankedPlan:
    return RankedPlan(choose_walk(item.plan, item.arrangement.work, target), item.seconds)


def _check_found(found: Sequence[_Costed], contraction: Contraction, target: Target) -> None:
    if not found:
        raise InternalError(
            f"a contraction has a legal plan; none found on {target.name} for {contraction}; report this"
        )


def _costed(contraction: Contraction, target: Target, general: bool, policy: Policy) -> Iterator[_Costed]:
    """Every candidate that is looked at closely, of all families."""
    index_bits = 32 if not general and fits_32_bits(contraction) else 64
    allowed = None if general else policy

    def costed(among: tuple[Arrangement, ...], every: int) -> Iterator[_Costed]:
        options = candidates(
            contraction, target, among, index_bits=index_bits, vectors=not general, every=every, splits=allowed
        )
        for place, (plan, arrangement) in enumerate(options):
            yield _Costed(estimate(plan, arrangement.work, target).seconds, place, plan, arrangement)

    ranked: list[tuple[float, int, Arrangement]] = []
    for place, arrangement in enumerate(arrangements(contraction, target)):
        found = min(costed((arrangement,), _SAMPLE), default=None, key=_order)
        found = found or min(costed((arrangement,), 1), default=None, key=_order)
        if found is not None:
            ranked.append((found[0], place, arrangement))
    kept = tuple(item[2] for item in sorted(ranked, key=lambda item: item[:2])[:_KEPT])
    return chain(costed(kept, 1), () if general else _costed_hopper(contraction, target, policy))


class _Costed(NamedTuple):
    """A candidate with its predicted time; of equal ones the first counts."""

    seconds: float
    place: int
    plan: Plan
    arrangement: Arrangement


def _costed_hopper(contraction: Contraction, target: Target, policy: Policy) -> Iterator[_Costed]:
    for place, (plan, arrangement) in enumerate(hopper_candidates(contraction, target, policy)):
        cost = estimate_hopper(plan, arrangement.work, target, contraction.a.dtype.name)
        yield _Costed(cost.seconds, place, plan, arrangement)


def _order(item: _Costed) -> tuple[float, int]:
    return item[:2]


def given_plan(text: str, contraction: Contraction, target: Target, policy: Policy = ANYTHING) -> Plan:
    """The plan of a text; Infeasible with the reason if it cannot be built here or the caller does not allow it."""
    plan = parse_plan(text)
    infeasible = check_plan(plan, contraction, target, policy)
    if infeasible is not None:
        raise Infeasible(f"{infeasible.reason}; in the plan {text!r}; change the plan or leave it out")
    return plan
