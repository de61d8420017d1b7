"""Every row of the rule table is proved by z3, checked on a box of integers, and seen to fire."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.expr import Expr, Op, const, evaluate, parse, simplify, sym, to_text
from convloom.expr.rules import RULES, RULES_OF, Rule
from tests.expr.trees import SYMBOLS, Undefined, build, sample_values, trees, value
from tests.expr.z3_terms import translate

BY_TEXT = [pytest.param(rule, id=f"{rule.lhs} -> {rule.rhs} ({rule.ops[0].name})") for rule in RULES]


def nodes_of(root: Expr) -> set[Expr]:
    seen, stack = set(), [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return seen


def fixed_symbols(rule: Rule) -> list[Expr]:
    """The variables that z3 gets as numbers: divisors, and all but one factor of each product (x, y, r, z last)."""
    fixed: set[Expr] = set()
    expressions = [rule.read(text) for text in (rule.lhs, rule.rhs, rule.when)]
    for node in set().union(*[nodes_of(e) for e in expressions]):
        if node.op in (Op.FLOORDIV, Op.MOD):
            fixed |= {each for each in nodes_of(node.args[1]) if each.op is Op.SYM}
        elif node.op is Op.MUL and not node.args[-1].is_const:
            names = sorted({each for arg in node.args for each in nodes_of(arg) if each.op is Op.SYM}, key=rank)
            fixed |= set(names[1:])
    return sorted(fixed, key=lambda symbol: symbol.name)


def rank(symbol: Expr) -> int:
    return "xyrzkp".find(symbol.name) if symbol.name in "xyrzkp" else 9


def grid(count: int) -> list[int]:
    return {0: [], 1: [-7, -4, -2, -1, 1, 2, 3, 4, 6, 16], 2: [-4, -3, -1, 1, 2, 4, 6]}.get(count, [-3, -1, 1, 2, 4])


def counterexample(rule: Rule) -> str | None:
    """None if z3 proves the rule for every number of the grid, all other variables being arbitrary integers."""
    fixed = fixed_symbols(rule)
    proved = 0
    for numbers in itertools.product(grid(len(fixed)), repeat=len(fixed)):
        values = {symbol: z3.Int(symbol.name) for symbol in rule.symbols} | dict(zip(fixed, numbers, strict=True))
        divisors: list = []
        try:
            when, left, right = (
                translate(rule.read(text), values, divisors) for text in (rule.when, rule.lhs, rule.rhs)
            )
        except ZeroDivisionError:
            continue
        if isinstance(when, int) and not when:
            continue
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(when != 0, z3.IntVal(left) != right if isinstance(left, int) else left != right)
        answer = solver.check()
        if answer != z3.unsat:
            return f"{answer} at {numbers}: {solver.model() if answer == z3.sat else ''}"
        proved += 1
    return None if proved else "the condition never holds on the grid"


@pytest.mark.parametrize("rule", BY_TEXT)
def test_z3_proves_the_rule(rule):
    assert counterexample(rule) is None


@pytest.mark.parametrize(
    ("left", "when"),
    [("x // c", "0 <= x and x < c"), ("(x // c) // d", "c != 0 and d > 0"), ("x // c < y", "c > 0")],
)
def test_z3_refutes_a_rule_without_its_condition(left, when):
    rule = next(rule for rule in RULES if (rule.lhs, rule.when) == (left, when))
    assert "sat at" in counterexample(replace(rule, when="c != 0"))


@pytest.mark.parametrize("rule", BY_TEXT)
def test_the_rule_holds_on_a_box(rule):
    count = len(rule.symbols)
    radius = {1: 64, 2: 40, 3: 16, 4: 8, 5: 5}[count]
    axes = np.meshgrid(*[np.arange(-radius, radius + 1)] * count, indexing="ij", sparse=False)
    values = {symbol.name: axis.reshape(-1) for symbol, axis in zip(rule.symbols, axes, strict=True)}
    keep = np.ones(values[rule.symbols[0].name].shape, bool)
    texts = [rule.read(text) for text in (rule.when, rule.lhs, rule.rhs)]
    for node in set().union(*[nodes_of(e) for e in texts]):
        if node.op in (Op.FLOORDIV, Op.MOD):
            keep &= evaluate(node.args[1], {name: np.where(keep, each, 1) for name, each in values.items()}) != 0
            values = {name: each[keep] for name, each in values.items()}
            keep = np.ones(values[rule.symbols[0].name].shape, bool)
    applies = np.broadcast_to(evaluate(texts[0], values) != 0, keep.shape)
    assert applies.sum() > 50
    left, right = (np.broadcast_to(evaluate(e, values), keep.shape)[applies] for e in texts[1:])
    np.testing.assert_array_equal(left, right)


@given(trees(), st.integers(0, 2**32))
@settings(derandomize=True, max_examples=1500, deadline=None)
def test_matchers_return_instances_that_satisfy_the_condition(tree, seed):
    values = sample_values(seed)
    try:
        value(tree, values)
    except Undefined:
        return
    for node in nodes_of(build(tree)):
        for rule in RULES_OF[node.op]:
            check_instance(rule, node, values)


def check_instance(rule, node, values):
    binding = rule.match(node)
    if binding is None:
        return
    bound = {symbol.name: evaluate(e, values) for symbol, e in zip(rule.symbols, binding, strict=True)}
    assert evaluate(rule.read(rule.when), bound), (rule, node, bound)
    assert evaluate(rule.read(rule.lhs), bound) == evaluate(node, values), (rule, node, bound)


S = {
    **SYMBOLS,
    "N": sym("N", lo=16, divisor=16),
    "M": sym("M", lo=1),
    "x": sym("x", lo=0),
    "y": sym("y"),
    "h": sym("h", lo=-8, hi=-1),
}
SIMPLIFIED = [
    ("i // 8", "0"),
    ("(i % M) // M", "0"),
    ("(N * x + i % N) // (4 * N)", "x // 4"),
    ("(M * x + i) // M", "x + i // M"),
    ("(x * (M + 2) + M + 2 + i) // (M + 2)", "x + 1 + i // (M + 2)"),
    ("(N * 3 + y) // 16", "(N // 16) * 3 + y // 16"),
    ("(5 * a + 7) // 4", "a + (a + 3) // 4 + 1"),
    ("(N + 15) // 16", "N // 16"),
    ("(N + 7) // 16", "N // 16"),
    ("(4 * a + i % 4) // 8", "a // 2"),
    ("(6 * a + 4) // 8", "(3 * a + 2) // 4"),
    ("(a * M) // (b * M + 0 * a)", "(a * M) // (b * M)"),  # b may be zero
    ("(a * M) // (N * M)", "a // N"),
    ("(a // 4) // 8", "a // 32"),
    ("(a // 4 + b) // 8", "(a + 4 * b) // 32"),
    ("(a % 32) // 4", "(a // 4) % 8"),
    ("(a % (4 * M)) // M", "(a // M) % 4"),
    ("i % 8", "i"),
    ("(i % M) % M", "i % M"),
    ("(j + 8) % 16", "j + 8"),
    ("j % 1", "0"),
    ("(i - 8) % 8", "i"),
    ("(i - 20) % 32", "i + 12"),
    ("h % 8", "h + 8"),
    ("(8 * a + h) % 32", "8 * ((a + 3) % 4) + h + 8"),
    ("N % 16", "0"),
    ("(5 * a) % 4", "a % 4"),
    ("(a * M + y) % M", "y % M"),
    ("(a % 32) % 8", "a % 8"),
    ("(a % 4 + b) % 4", "(a + b) % 4"),
    ("(3 * (a % 4) + b) % 12", "(3 * a + b) % 12"),
    ("(a * (b % M) + y) % M", "(a * b + y) % M"),
    ("(4 * a + i % 4) % 8", "4 * (a % 2) + i % 4"),
    ("(4 * a) % 8", "4 * (a % 2)"),
    ("(a // 4) * 4 + a % 4", "a"),
    ("x // M * M + x % M", "x"),
    ("(a // 4) * 8 + 2 * (a % 4) + b", "2 * a + b"),
    ("((a // 4) % 8) * 4 + a % 4", "a % 32"),
    ("a - (a // 4) * 4", "a % 4"),
    ("3 * a - (a // M) * M * 3 + b", "3 * (a % M) + b"),
    ("N // 16 * 16", "N"),
    ("N // 4 * 8 + a", "2 * N + a"),
    ("min(i, 20, a)", "min(i, a)"),
    ("min(i % M, M)", "i % M"),
    ("max(i, a, i + 3)", "max(i + 3, a)"),
    ("max(a // 4 * 4, a)", "a"),
    ("i < 8", "1"),
    ("a % M < M", "1"),
    ("i < 0", "0"),
    ("0 <= i", "1"),
    ("M <= 0", "0"),
    ("i + 1 <= 0", "0"),
    ("4 * a + 1 == 2 * b", "0"),
    ("f + 2 == 4 * a", "0"),
    ("f + 2 != 4 * a", "1"),
    ("i == 9", "0"),
    ("a // 4 < 7", "a < 28"),
    ("7 <= a // 4", "28 <= a"),
    ("a // 4 <= b", "a < 4 * b + 4"),
    ("b <= a // 4", "4 * b <= a"),
    ("x // M == 0", "x < M"),
    ("x // M != 0", "M <= x"),
    ("4 * a + i % 4 < 4 * b", "a < b"),
    ("4 * a + i % 4 <= 4 * b", "4 * a + i % 4 <= 4 * b"),
    ("4 * a + i % 4 + 1 <= 4 * b", "a < b"),
    ("4 * a <= 4 * b + i % 4", "a <= b"),
    ("4 * a + i % 4 <= 4 * b + 3", "a <= b"),
    ("a + 1 <= 0 or 8 * a + i < 0", "a < 0"),
    ("f + i % 4 + 1 <= 4 * b", "f < 4 * b"),
    ("M * a + x % M < M * b", "a < b"),
    ("a * M < b * M", "a < b"),
    ("a * M <= b * M", "a <= b"),
    ("a * M == b * M", "a == b"),
    ("a * M != b * M", "a != b"),
    ("0 <= a and a < 5 and 0 < a", "0 < a and a < 5"),
    ("a < 5 and 7 < a", "0"),
    ("a < 5 or 3 < a", "1"),
    ("a < b and b <= a", "0"),
    ("a < b or b <= a", "1"),
    ("select(i < 8, a, b)", "a"),
    ("((x % M) * 8 + (a * M) * 8 + i) // (8 * M)", "a"),
]


@pytest.mark.parametrize(("text", "expected"), SIMPLIFIED)
def test_simplified_form(text, expected):
    result = simplify(parse(text, S))
    assert to_text(result) == to_text(parse(expected, S))
    assert result is parse(expected, S)


def test_every_rule_fires_in_the_table_above():
    fired = set()
    for text, _ in SIMPLIFIED:
        for node in nodes_of(parse(text, S)):
            args_simplified = all(simplify(arg) is arg for arg in node.args)
            fired |= {rule for rule in RULES_OF[node.op] if args_simplified and rule.match(node) is not None}
    assert [rule.lhs for rule in RULES if rule not in fired] == []


@given(trees(5), st.integers(0, 2**32))
@settings(derandomize=True, max_examples=1500, deadline=None)
def test_simplify_keeps_the_value_and_is_a_fixed_point(tree, seed):
    e = build(tree)
    simple = simplify(e)
    assert simplify(simple) is simple
    for values in (sample_values(seed), sample_values(seed, 200)):
        try:
            expected = value(tree, values)
        except Undefined:
            continue
        assert evaluate(simple, values) == expected


def test_division_by_something_possibly_zero_stays():
    x, m = sym("x"), sym("m", lo=0)
    for e in (m // m, m % m, (x * m) // m, x // (0 * m), x % const(0)):
        assert simplify(e) is e
