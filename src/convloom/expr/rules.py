"""The table of rewriting rules, as data: an equation, the condition under which it holds, and who finds instances.

The equations are over all integers (floor semantics); tests prove every row and evaluate it on a box of integers. A
matcher looks at a node and returns values for the row's variables for which it has established the condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from convloom.expr import match_divisions, match_orders, match_sums
from convloom.expr.node import Expr, Op, sym
from convloom.expr.rebuild import substitute
from convloom.expr.text import parse

Binding = tuple[Expr, ...]  # values of the variables, in their order
Matcher = Callable[[Expr], Binding | None]


@dataclass(frozen=True)
class Rule:
    """`lhs == rhs` for all integer values of `variables` that satisfy `when` and keep every divisor from zero.

    `match` is tried on nodes of the operators `ops`.
    """

    ops: tuple[Op, ...]
    variables: str
    lhs: str
    rhs: str
    when: str
    match: Matcher

    @cached_property
    def symbols(self) -> tuple[Expr, ...]:
        """The variables as symbols without facts."""
        return tuple([sym(name) for name in self.variables.split()])

    @cached_property
    def right(self) -> Expr:
        """The right side over `symbols`."""
        return self.read(self.rhs)

    def read(self, text: str) -> Expr:
        """A text of the row as an expression over `symbols`."""
        return parse(text, {symbol.name: symbol for symbol in self.symbols})

    def apply(self, node: Expr) -> Expr | None:
        """The node rewritten, or None if the rule does not match it."""
        binding = self.match(node)
        if binding is None:
            return None
        return substitute(self.right, dict(zip(self.symbols, binding, strict=True)))


_SUM = (Op.ADD,)
_QUOTIENT = (Op.FLOORDIV,)
_MODULUS = (Op.MOD,)
_LESS = (Op.LT,)
_LESS_EQUAL = (Op.LE,)
_SAME = (Op.EQ,)

RULES: tuple[Rule, ...] = (
    # quotients
    Rule(_QUOTIENT, "x c", "x // c", "0", "0 <= x and x < c", match_divisions.remainder_itself),
    Rule(_QUOTIENT, "x c r", "(x * c + r) // c", "x + r // c", "c != 0", match_divisions.multiple_and_rest),
    Rule(
        _QUOTIENT,
        "x r c g",
        "(x + r) // c",
        "x // c",
        "g > 0 and c > 0 and x % g == 0 and c % g == 0 and 0 <= r and r < g",
        match_divisions.fine_part,
    ),
    Rule(_QUOTIENT, "x c g", "(g * x) // (g * c)", "x // c", "g != 0 and c != 0", match_divisions.shared_factor),
    Rule(_QUOTIENT, "x c d", "(x // c) // d", "x // (c * d)", "c != 0 and d > 0", match_divisions.quotient_of_quotient),
    Rule(
        _QUOTIENT,
        "x c y d",
        "(x // c + y) // d",
        "(x + y * c) // (c * d)",
        "c != 0 and d > 0",
        match_divisions.quotient_of_shifted_quotient,
    ),
    Rule(
        _QUOTIENT,
        "x c d",
        "(x % (c * d)) // c",
        "(x // c) % d",
        "c > 0 and d > 0",
        match_divisions.quotient_of_remainder,
    ),
    # remainders
    Rule(_MODULUS, "x c", "x % c", "x", "0 <= x and x < c", match_divisions.remainder_itself),
    Rule(_MODULUS, "x c k", "x % c", "x - k * c", "k * c <= x and x < (k + 1) * c", match_divisions.known_quotient),
    Rule(_MODULUS, "x c r", "(x * c + r) % c", "r % c", "c != 0", match_divisions.multiple_and_rest),
    Rule(
        _MODULUS,
        "k x m y c",
        "(k * (x % m) + y) % c",
        "(k * x + y) % c",
        "m != 0 and c != 0 and (k * m) % c == 0",
        match_divisions.inner_remainder,
    ),
    Rule(
        _MODULUS,
        "x r c g",
        "(x + r) % c",
        "x % c + r",
        "g > 0 and c > 0 and x % g == 0 and c % g == 0 and 0 <= r and r < g",
        match_divisions.fine_part,
    ),
    Rule(_MODULUS, "x c g", "(g * x) % (g * c)", "g * (x % c)", "g != 0 and c != 0", match_divisions.shared_factor),
    # sums
    Rule(
        _SUM,
        "k x c y",
        "k * c * (x // c) + k * (x % c) + y",
        "k * x + y",
        "c != 0",
        match_sums.quotient_and_remainder,
    ),
    Rule(
        _SUM,
        "k x c d y",
        "k * c * ((x // c) % d) + k * (x % c) + y",
        "k * (x % (c * d)) + y",
        "c > 0 and d > 0",
        match_sums.digits,
    ),
    Rule(
        _SUM,
        "k x c y",
        "k * x - k * c * (x // c) + y",
        "k * (x % c) + y",
        "c != 0",
        match_sums.excess,
    ),
    Rule(
        (Op.ADD, Op.MUL),
        "k x c y",
        "k * c * (x // c) + y",
        "k * x + y",
        "c != 0 and x % c == 0",
        match_sums.exact_quotient,
    ),
    # minimum and maximum
    Rule((Op.MIN,), "x y z", "min(x, y, z)", "min(x, z)", "x <= y", match_orders.smaller_part),
    Rule((Op.MAX,), "x y z", "max(x, y, z)", "max(x, z)", "y <= x", match_orders.larger_part),
    # comparisons
    Rule(_LESS, "x y", "x < y", "1", "x < y", match_orders.certain),
    Rule(_LESS, "x y", "x < y", "0", "y <= x", match_orders.impossible),
    Rule(_LESS_EQUAL, "x y", "x <= y", "1", "x <= y", match_orders.certain),
    Rule(_LESS_EQUAL, "x y", "x <= y", "0", "y < x", match_orders.impossible),
    Rule(_SAME, "x y", "x == y", "0", "x != y", match_orders.different),
    Rule((Op.NE,), "x y", "x != y", "1", "x != y", match_orders.different),
    Rule(_LESS, "x c y", "x // c < y", "x < y * c", "c > 0", match_orders.quotient_left),
    Rule(_LESS, "x c y", "y < x // c", "(y + 1) * c <= x", "c > 0", match_orders.quotient_right),
    Rule(_LESS_EQUAL, "x c y", "x // c <= y", "x < (y + 1) * c", "c > 0", match_orders.quotient_left),
    Rule(_LESS_EQUAL, "x c y", "y <= x // c", "y * c <= x", "c > 0", match_orders.quotient_right),
    Rule(_SAME, "x c", "x // c == 0", "x < c", "0 <= x and c > 0", match_orders.quotient_zero),
    Rule((Op.NE,), "x c", "x // c != 0", "c <= x", "0 <= x and c > 0", match_orders.quotient_zero),
    Rule(
        _LESS,
        "x r y g",
        "x + r < y",
        "x < y",
        "g > 0 and x % g == 0 and y % g == 0 and 0 <= r and r < g",
        match_orders.fine_part,
    ),
    Rule(
        _LESS_EQUAL,
        "x r y g",
        "x + r + 1 <= y",
        "x < y",
        "g > 0 and x % g == 0 and y % g == 0 and 0 <= r and r < g",
        match_orders.fine_part,
    ),
    Rule(_LESS, "x y g", "g * x < g * y", "x < y", "g > 0", match_orders.shared_factor),
    Rule(_LESS_EQUAL, "x y g", "g * x <= g * y", "x <= y", "g > 0", match_orders.shared_factor),
    Rule(_SAME, "x y g", "g * x == g * y", "x == y", "g != 0", match_orders.shared_factor),
    Rule((Op.NE,), "x y g", "g * x != g * y", "x != y", "g != 0", match_orders.shared_factor),
    # conjunctions (p: the remaining parts)
    Rule((Op.AND,), "x y k p", "x < y and x < y + k and p", "x < y and p", "k >= 0", match_orders.implied_part),
    Rule((Op.AND,), "x y k p", "x < y and y < x + k and p", "0", "k <= 1", match_orders.contradiction),
    Rule((Op.OR,), "x y k p", "x < y or y < x + k or p", "1", "k >= 1", match_orders.exhaustion),
)


def _by_operator() -> dict[Op, tuple[Rule, ...]]:
    return {op: tuple([rule for rule in RULES if op in rule.ops]) for op in Op}


RULES_OF = _by_operator()
