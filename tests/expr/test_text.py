"""The text form: exact texts, round trip, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from convloom.errors import IllegalProblem
from convloom.expr import fast_div, minimum, multiplier_of, parse, select, shift_of, sym, to_text
from tests.expr.trees import SYMBOLS, build, trees

a, b, n = sym("a"), sym("b"), sym("n", lo=1)
S = {"a": a, "b": b, "n": n}

PRINTED = [
    (a + b - 3, "a + b - 3"),
    (b - a, "b - a"),
    (-a - b, "-a - b"),
    (-a * 3, "-a * 3"),
    (2 * (a + 1), "a * 2 + 2"),
    ((a + 1) * b * -2, "-b * (a + 1) * 2"),
    (a - (b // 3) * 3, "a - (b // 3) * 3"),
    ((a // 3) // b, "a // 3 // b"),
    (a // (b // 3), "a // (b // 3)"),
    ((a + 1) % (b + 1), "(a + 1) % (b + 1)"),
    (a.le(b), "a <= b"),
    (a.lt(b).lt(b), "(a < b) < b"),
    (minimum(a, b + 1), "min(a, b + 1)"),
    (select(a.lt(b), a, -b), "select(a < b, a, -b)"),
    (fast_div(a, b, 5), "fast_div(a, b, 5)"),
    (multiplier_of(n + 1), "magic_multiplier(n + 1)"),
    (shift_of(n), "magic_shift(n)"),
]


@pytest.mark.parametrize(("e", "text"), PRINTED)
def test_printed_text(e, text):
    assert to_text(e) == text
    assert parse(text, S) is e


@given(trees(5))
@settings(derandomize=True, max_examples=1500, deadline=None)
def test_round_trip(tree):
    e = build(tree)
    assert parse(to_text(e), SYMBOLS) is e


def test_chained_comparisons_and_connectives():
    assert parse("0 <= a < b", S) is parse("0 <= a and a < b", S)
    assert parse("not (a < b and a > 3)", S) is parse("b <= a or a <= 3", S)
    assert parse("a and b", S) is parse("a != 0 and b != 0", S)
    assert parse(" +a ", S) is a
    assert parse("magic_multiplier(7)", {}).is_const


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a +", "notation"),
        ("a / b", "a / b"),
        ("a ** 2", "a ** 2"),
        ("q + 1", "'q'"),
        ("f(a)", "f(a)"),
        ("1.5", "1.5"),
        ("True", "True"),
        ("a if b else n", "a if b else n"),
        ("select(a, b)", "select with 2"),
        ("min()", "min with 0"),
        ("a in b", "a in b"),
        ("~a", "~a"),
        ("", "notation"),
    ],
)
def test_refused_text_names_the_part(text, part):
    with pytest.raises(IllegalProblem) as refusal:
        parse(text, S)
    assert part in str(refusal.value)
