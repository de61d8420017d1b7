"""The prover: a table of what it must decide, and agreement with brute force on random predicates."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.expr import Truth, all_of, evaluate, parse, prove, sym
from tests.expr.trees import SYMBOLS, Undefined, build, sample_values, trees, value

S = {
    "a": sym("a"),
    "b": sym("b"),
    "c": sym("c"),
    "i": sym("i", lo=0),
    "j": sym("j", lo=0),
    "k": sym("k", lo=0),
    "t": sym("t", lo=0, hi=127),
    "n": sym("n", lo=1),
    "m": sym("m", lo=1),
    "s": sym("s", lo=1),
    "N": sym("N", lo=1),
    "M": sym("M", lo=1),
    "OW": sym("OW", lo=1),
    "IW": sym("IW", lo=7),
    "C": sym("C", lo=16, divisor=16),
    "w": sym("w", lo=1, hi=1000),
}
YES = [
    # windows of a convolution stay inside the input
    ("(n - 1) // 2 * 2 + 1 <= n", []),
    ("((IW - 7) // 3 + 1 - 1) * 3 + (4 - 1) * 2 + 1 <= IW", []),
    ("i * 3 + k * 2 < IW", ["i < (IW - 7) // 3 + 1", "k < 4"]),
    ("i * s + 6 < IW", ["i < (IW - 7) // s + 1"]),
    ("i * s + 6 < IW", ["i < OW", "OW == (IW - 7) // s + 1"]),
    ("0 <= i * 3 + k - 0", []),
    # flat indices stay inside the tensor
    ("i * N + j < M * N", ["i < M", "j < N"]),
    ("(i * N + j) * s + k < M * N * s", ["i < M", "j < N", "k < s"]),
    ("i * m + j < 2147483648", ["i < n", "n <= 1000", "m <= 1000", "j < m"]),
    ("i // m < n", ["i < n * m"]),
    ("i % m + (i // m) * m < n * m", ["i < n * m"]),
    ("i // m % n < n", []),
    # tiles
    ("(n + 63) // 64 * 64 >= n", []),
    ("(n + 63) // 64 * 64 - n < 64", []),
    ("(n + s - 1) // s * s >= n", []),
    ("(n + s - 1) // s * s - n < s", []),
    ("i // 64 < (n + 63) // 64", ["i < n"]),
    ("i // s < (n + s - 1) // s", ["i < n"]),
    ("i * 4 + 3 < 4 * n", ["i < n"]),
    ("i * 16 + 15 < C", ["i < C // 16"]),
    ("4 * (i // 4) + 3 < C", ["i < C"]),
    ("(t // 4) % 8 * 4 + t % 4 < 32", []),
    ("t // 32 < 4", []),
    ("C % 8 == 0", []),
    ("(i * C + 8) % 8 == 0", []),
    # orders, minimum, maximum
    ("i % n < n", []),
    ("i % n * m + j % m < n * m", []),
    ("min(a, b) <= a", []),
    ("min(a, b) <= max(a, b)", []),
    ("max(a, b) + min(a, b) == a + b", []),
    ("max(a, b, c) >= min(b, c)", []),
    ("select(a < b, a, b) <= a", []),
    ("i + min(64, n - i) <= n", []),
    ("(i + j) // 2 <= max(i, j)", []),
    ("i // 2 + j // 2 <= (i + j) // 2", []),
    ("i // s <= i", []),
    ("a * a >= 0", []),
    ("a <= b", ["a < b"]),
    ("a < c", ["a < b", "b <= c"]),
    ("a < b or b <= a", []),
    ("a != b", ["a < b"]),
    ("a < 3", ["a < 3"]),
    ("a < 3 and b < 4", ["b < 4 and a < 3"]),
    ("w * w <= 1000000", []),
    ("n * m >= n", []),
]
NO = [
    ("n <= 0", []),
    ("a < min(a, b)", []),
    ("a < b", ["b < a"]),
    ("a < b and b < a", []),
    ("a < b and b < c and c < a", []),
    ("i * N + j >= M * N", ["i < M", "j < N"]),
    ("C % 16 == 1", []),
    ("2 * a == 2 * b + 1", []),
    ("a == b", ["a < b"]),
    ("i % n >= n", []),
    ("not (a <= b or b <= a)", []),
]
UNKNOWN = [
    ("a < b", []),
    ("i < n", []),
    ("i * N + j < M * N", ["i < M"]),
    ("i * 3 + k * 2 - 1 < IW", ["i < (IW + 2 - 7) // 3 + 1", "k < 4"]),
    ("C % 32 == 0", []),
    ("a // b < c", []),
    ("(n + 63) // 64 * 64 <= n", []),
]


def answer(text, assumptions):
    return prove(parse(text, S), [parse(each, S) for each in assumptions])


@pytest.mark.parametrize(("text", "assumptions"), YES)
def test_proved(text, assumptions):
    assert answer(text, assumptions) is Truth.YES


@pytest.mark.parametrize(("text", "assumptions"), NO)
def test_refuted(text, assumptions):
    assert answer(text, assumptions) is Truth.NO


@pytest.mark.parametrize(("text", "assumptions"), UNKNOWN)
def test_open(text, assumptions):
    assert answer(text, assumptions) is Truth.UNKNOWN


def test_division_by_something_possibly_zero_is_not_decided():
    x, y = sym("x"), sym("y", lo=0)
    assert prove((x % y).lt(y)) is Truth.UNKNOWN
    assert prove((x // y * y).le(x)) is Truth.UNKNOWN


@given(trees(3), trees(3), st.sampled_from(["lt", "le", "eq", "ne"]), st.integers(0, 2**32))
@settings(derandomize=True, max_examples=1200, deadline=None)
def test_answers_agree_with_brute_force(first, second, comparison, seed):
    goal = getattr(build(first), comparison)(build(second))
    truth = prove(goal)
    if truth is not Truth.UNKNOWN:
        for spread in (3, 12, 100):
            check(truth, first, second, comparison, sample_values(seed + spread, spread))


def check(truth, first, second, comparison, values):
    try:
        left, right = value(first, values), value(second, values)
    except Undefined:
        return
    holds = {"lt": left < right, "le": left <= right, "eq": left == right, "ne": left != right}[comparison]
    assert holds is (truth is Truth.YES), values


@given(trees(2), trees(2), trees(2), trees(2), st.integers(0, 2**32))
@settings(derandomize=True, max_examples=800, deadline=None)
def test_answers_under_assumptions_agree_with_brute_force(first, second, third, fourth, seed):
    goal, assumption = build(first).lt(build(second)), build(third).lt(build(fourth))
    truth = prove(goal, [assumption])
    if truth is Truth.UNKNOWN:
        return
    for shift, spread in itertools.product(range(6), (4, 20)):
        values = sample_values(seed + shift, spread)
        try:
            if value(third, values) < value(fourth, values):
                check(truth, first, second, "lt", values)
        except Undefined:
            continue


def test_small_domains_by_brute_force():
    x, y, d = sym("x", lo=0, hi=9), sym("y", lo=-2, hi=4), sym("d", lo=1, hi=5)
    for text in ("x // d * d + y < 12", "(x + y) // 2 <= 6", "x % d < d", "x % d + y < 9", "min(x, y) * d <= 20"):
        p = parse(text, {"x": x, "y": y, "d": d})
        results = {evaluate(p, {"x": i, "y": j, "d": k}) for i in range(10) for j in range(-2, 5) for k in range(1, 6)}
        truth = prove(p)
        assert results == {1} if truth is Truth.YES else truth is Truth.UNKNOWN


def test_failing_proofs_are_cheap():
    symbols = [sym(f"q{index}", lo=0) for index in range(12)]
    total = symbols[0]
    for index in range(1, 12):
        total = total * symbols[index] // 3 + symbols[index] % 5
    started = time.perf_counter()
    assert prove(total.lt(symbols[3]), [all_of(*[s.lt(t) for s, t in itertools.pairwise(symbols)])]) is Truth.UNKNOWN
    assert time.perf_counter() - started < 2.0


def test_symbols_of_the_random_trees_have_all_kinds_of_facts():
    assert {symbol.facts.lo is None for symbol in SYMBOLS.values()} == {True, False}
