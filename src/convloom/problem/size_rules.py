"""Rules of an operation about its sizes: decided where the sizes are known, else checked at every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, Op, Truth, prove, substitute, to_text


@dataclass(frozen=True, slots=True)
class SizeRule:
    """A condition over sizes, the rule in words, and what to do where it is broken."""

    condition: Expr
    rule: str
    remedy: str

    @property
    def text(self) -> str:
        """The condition in the language of `artifact`, a lower limit of a sum as `sum >= limit`."""
        if self.condition.op is Op.LT and self.condition.args[0].is_const:
            limit, size = self.condition.args
            return f"{to_text(size)} >= {limit.value + 1}"
        return to_text(self.condition)

    def bind(self, values: Mapping[Expr, ExprLike]) -> SizeRule:
        """The rule with symbols replaced."""
        return SizeRule(substitute(self.condition, values), self.rule, self.remedy)


def open_rules(rules: Iterable[SizeRule]) -> tuple[SizeRule, ...]:
    """The rules that the sizes' facts and the rules before them leave open.

    IllegalProblem for a rule that no allowed sizes keep.
    """
    found: dict[Expr, SizeRule] = {}
    for rule in rules:
        truth = prove(rule.condition, assuming=tuple(found))
        if truth is Truth.NO:
            raise IllegalProblem(f"{rule.rule}; got sizes that break it; {rule.remedy}")
        if truth is Truth.UNKNOWN:
            found.setdefault(rule.condition, rule)
    return tuple(found.values())
