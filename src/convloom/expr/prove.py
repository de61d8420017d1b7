"""The prover: whether a predicate holds for all values that facts and assumptions allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from convloom.expr.logic import all_of, as_truth, less_equal, negate
from convloom.expr.node import ONE, ZERO, Expr, ExprLike, Op, const, fold
from convloom.expr.polynomial import Polynomial, expand
from convloom.expr.positivity import THOROUGH, nonnegative
from convloom.expr.rebuild import substitute
from convloom.expr.simplify import simplify

_MAX_SPLITS = 2  # nested case distinctions over min, max, select


class Truth(Enum):
    """The answer of the prover: true for all values, false for all values, or not known."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def prove(p: ExprLike, assuming: Sequence[Expr] = ()) -> Truth:
    """Whether p is non-zero (YES) or zero (NO) for all values of its symbols that satisfy facts and assumptions.

    UNKNOWN means only that no proof was found. Values for which a divisor in p is zero are left out. If the
    assumptions contradict each other, any answer may come.
    """
    return _prove(simplify(as_truth(p)), tuple(assuming))


@lru_cache(maxsize=1 << 16)
def _prove(goal: Expr, assuming: tuple[Expr, ...]) -> Truth:
    hypotheses = _Hypotheses.of(assuming)
    return hypotheses.decide(goal)


@dataclass(frozen=True, slots=True)
class _Hypotheses:
    """What is assumed: predicates as they are, and those that are inequalities as polynomials >= 0."""

    predicates: frozenset[Expr]
    inequalities: tuple[Polynomial, ...]

    @staticmethod
    def of(assuming: Sequence[Expr]) -> _Hypotheses:
        """The hypotheses of some predicates, conjunctions taken apart."""
        whole = simplify(all_of(*assuming))
        parts = whole.args if whole.op is Op.AND else (whole,)
        inequalities = [expand(difference) for part in parts for difference in _differences(part)]
        return _Hypotheses(frozenset(parts), tuple(inequalities))

    def decide(self, goal: Expr) -> Truth:
        """YES, NO or UNKNOWN for a simplified predicate."""
        if goal is ONE or goal in self.predicates:
            return Truth.YES
        if goal is ZERO or negate(goal) in self.predicates:
            return Truth.NO
        step = _DECISIONS.get(goal.op)
        return Truth.UNKNOWN if step is None else step(self, goal)

    def exclude(self, parts: tuple[Expr, ...]) -> bool:
        """Whether the first part is shown to fail wherever the other parts hold."""
        facts = [expand(difference) for part in parts[1:] for difference in _differences(part)]
        inner = _Hypotheses(self.predicates.union(parts[1:]), (*self.inequalities, *facts))
        return parts[0].op is not Op.AND and inner.decide(parts[0]) is Truth.NO

    def holds(self, difference: Expr, splits: int = _MAX_SPLITS) -> bool:
        """Whether difference >= 0 is shown."""
        simple = simplify(difference)
        if nonnegative(simple, self.inequalities, THOROUGH):
            return True
        choice = _choice(simple) if splits else None
        if choice is None:
            return False
        return all(self._holds_in_case(simple, choice, case, splits - 1) for case in _cases(choice))

    def _holds_in_case(self, difference: Expr, choice: Expr, case: tuple[Expr, Expr], splits: int) -> bool:
        value, condition = case
        extra = [expand(fact) for part in _conjuncts(condition) for fact in _differences(part)]
        inner = _Hypotheses(self.predicates, (*self.inequalities, *extra))
        return inner.holds(substitute(difference, {choice: value}), splits)


def _conjuncts(p: Expr) -> tuple[Expr, ...]:
    return p.args if p.op is Op.AND else (p,)


def _differences(p: Expr) -> Iterator[Expr]:
    """Expressions that are >= 0 where the predicate holds; none for kinds that say nothing linear."""
    if p.op is Op.LT:
        yield p.args[1] - p.args[0] - 1
    elif p.op is Op.LE:
        yield p.args[1] - p.args[0]
    elif p.op is Op.EQ:
        yield p.args[1] - p.args[0]
        yield p.args[0] - p.args[1]
    else:
        yield from _truth_value(p)


def _truth_value(p: Expr) -> Iterator[Expr]:
    """A predicate that appears as a number elsewhere is at least 1."""
    if p is not ONE:
        yield p - 1


_CHOICES = frozenset((Op.MIN, Op.MAX, Op.SELECT))


def _choice(e: Expr) -> Expr | None:
    """An innermost minimum, maximum or select of the expression."""
    return fold(e, {}, lambda node, memo: _first_choice(node, [memo[arg][0] for arg in node.args]))[0]


def _first_choice(node: Expr, below: list[Expr | None]) -> tuple[Expr | None]:
    for found in below:
        if found is not None:
            return (found,)
    return (node if node.op in _CHOICES else None,)


def _cases(choice: Expr) -> list[tuple[Expr, Expr]]:
    """(value, condition) of each case; together the conditions cover everything."""
    if choice.op is Op.SELECT:
        condition, if_true, if_false = choice.args
        return [(if_true, condition), (if_false, negate(condition))]
    ordered: Callable[[Expr, Expr], Expr] = less_equal if choice.op is Op.MIN else lambda a, b: less_equal(b, a)
    return [(value, all_of(*[ordered(value, other) for other in choice.args])) for value in choice.args]


def _order(hypotheses: _Hypotheses, goal: Expr) -> Truth:
    distance = goal.args[1] - goal.args[0] - const(1 if goal.op is Op.LT else 0)
    if hypotheses.holds(distance):
        return Truth.YES
    return Truth.NO if hypotheses.holds(-distance - 1) else Truth.UNKNOWN


def _equality(hypotheses: _Hypotheses, goal: Expr) -> Truth:
    difference = goal.args[0] - goal.args[1]
    if simplify(difference) is ZERO or (hypotheses.holds(difference) and hypotheses.holds(-difference)):
        return Truth.YES
    if hypotheses.holds(difference - 1) or hypotheses.holds(-difference - 1):
        return Truth.NO
    return Truth.UNKNOWN


_OPPOSITE = {Truth.YES: Truth.NO, Truth.NO: Truth.YES, Truth.UNKNOWN: Truth.UNKNOWN}


def _negation(hypotheses: _Hypotheses, goal: Expr) -> Truth:
    return _OPPOSITE[hypotheses.decide(simplify(negate(goal)))]


def _conjunction(hypotheses: _Hypotheses, goal: Expr) -> Truth:
    answers = [hypotheses.decide(part) for part in goal.args]
    if Truth.NO in answers:
        return Truth.NO
    if Truth.UNKNOWN not in answers:
        return Truth.YES
    return Truth.NO if hypotheses.exclude(goal.args) else Truth.UNKNOWN


def _by_cases(hypotheses: _Hypotheses, goal: Expr) -> Truth:
    answers = {hypotheses.decide(value) for value in goal.args[1:]}
    return answers.pop() if len(answers) == 1 else Truth.UNKNOWN


_DECISIONS: dict[Op, Callable[[_Hypotheses, Expr], Truth]] = {
    Op.LT: _order,
    Op.LE: _order,
    Op.EQ: _equality,
    Op.NE: _negation,
    Op.AND: _conjunction,
    Op.OR: _negation,
    Op.SELECT: _by_cases,
}
