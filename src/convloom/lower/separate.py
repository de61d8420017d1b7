"""Splits index expressions into the part that a loop changes and the part it does not."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.expr import Expr, Op, all_of, const, free_symbols, linear_form


@dataclass(frozen=True, slots=True)
class Parts:
    """`fixed + moving` is the expression; `fixed` mentions no moving symbol and has no constant term."""

    fixed: Expr
    moving: Expr


def separate(expression: Expr, moving_symbols: frozenset[Expr]) -> Parts:
    """Splits a sum by whether its terms mention one of the moving symbols; the constant goes with the moving part."""
    form = linear_form(expression)
    fixed, moving = const(0), const(form.constant)
    for atom, coefficient in form.terms:
        if free_symbols(atom) & moving_symbols:
            moving = moving + atom * coefficient
        else:
            fixed = fixed + atom * coefficient
    return Parts(fixed, moving)


@dataclass(frozen=True, slots=True)
class SplitCondition:
    """The comparison `sign * fixed + moving < 0` (strict) or `<= 0`.

    The first term of fixed has a positive coefficient, so that the two sides of a window share one fixed part.
    """

    fixed: Expr
    moving: Expr
    sign: int
    strict: bool

    def rebuilt(self, fixed: Expr) -> Expr:
        """The comparison with another expression (a cached value) in place of the fixed part."""
        left, right = (fixed, -self.moving) if self.sign > 0 else (self.moving, fixed)
        return left.lt(right) if self.strict else left.le(right)


@dataclass(frozen=True, slots=True)
class SplitConditions:
    """Conditions sorted by how a loop meets them: never changed by it, comparisons that it changes, anything else."""

    fixed: Expr
    comparisons: tuple[SplitCondition, ...]
    others: tuple[Expr, ...]


def separate_conditions(conditions: tuple[Expr, ...], moving_symbols: frozenset[Expr]) -> SplitConditions:
    """Sorts 0/1-valued expressions by whether and how they depend on the moving symbols."""
    fixed: list[Expr] = []
    comparisons: list[SplitCondition] = []
    others: list[Expr] = []
    for condition in _conjuncts(conditions):
        if not free_symbols(condition) & moving_symbols:
            fixed.append(condition)
        elif condition.op in (Op.LT, Op.LE):
            comparisons.append(_split(condition, moving_symbols))
        else:
            others.append(condition)
    return SplitConditions(all_of(*fixed), tuple(comparisons), tuple(others))


def _split(condition: Expr, moving_symbols: frozenset[Expr]) -> SplitCondition:
    left, right = condition.args
    parts = separate(left - right, moving_symbols)
    terms = linear_form(parts.fixed).terms
    sign = -1 if terms and terms[0][1] < 0 else 1
    return SplitCondition(parts.fixed * sign, parts.moving, sign, condition.op is Op.LT)


def _conjuncts(conditions: tuple[Expr, ...]) -> list[Expr]:
    flat: list[Expr] = []
    for condition in conditions:
        flat += _conjuncts(condition.args) if condition.op is Op.AND else [condition]
    return flat
