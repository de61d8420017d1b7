"""Bounds and congruences: sound on random expressions, tight on the forms that kernels use."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.expr import (
    bounds,
    congruence,
    const,
    divisor,
    fast_div,
    maximum,
    minimum,
    multiplier_of,
    select,
    shift_of,
    simplify,
    sym,
)
from tests.expr.trees import Undefined, build, sample_values, trees, value

a = sym("a")
i = sym("i", lo=0, hi=15)
j = sym("j", lo=-3, hi=5)
n = sym("n", lo=1)
f = sym("f", divisor=16, lo=16)

BOUNDS = [
    (const(7), (7, 7)),
    (a, (None, None)),
    (i + 2 * j, (-6, 25)),
    (-n, (None, -1)),
    (i * j, (-45, 75)),
    (n * i, (0, None)),
    (a * a, (0, None)),
    (a % 8, (0, 7)),
    (a % -8, (-7, 0)),
    (a % n, (0, None)),
    (i % n, (0, 15)),
    (a // n, (None, None)),
    (i // 4, (0, 3)),
    (j // 4, (-1, 1)),
    (i // n, (0, 15)),
    (j // n, (-3, 5)),
    (n // 4, (0, None)),
    (i // -4, (-4, 0)),
    (i // j, (None, None)),
    (simplify(a - (a // 8) * 8), (0, 7)),
    ((16 * a + 3) % 32, (3, 19)),
    (f % 64, (0, 48)),
    (minimum(i, a), (None, 15)),
    (maximum(i, a), (0, None)),
    (minimum(i, j), (-3, 5)),
    (select(a.lt(3), i, j), (-3, 15)),
    (a.lt(3), (0, 1)),
    (fast_div(i, 4, 3), (0, 7)),
    (multiplier_of(n), (2**31, 2**32 - 1)),
    (shift_of(n), (31, 62)),
]
DIVISORS = [
    (const(0), 0),
    (const(-12), 12),
    (a, 1),
    (f, 16),
    (f * 3, 48),
    (f + 8, 8),
    (f * f, 256),
    (f // 4, 4),
    (f // 32, 1),
    (f * a, 16),
    (f % 24, 8),
    (f % (f * 2), 16),
    (minimum(f, 24), 8),
    (select(a.lt(0), f, 4 * i), 4),
    ((8 * a + 4) // 4, 1),
    (4 * (f // 32), 4),
    (a.lt(3), 1),
]


@pytest.mark.parametrize(("e", "expected"), BOUNDS)
def test_bounds(e, expected):
    assert tuple(bounds(e)) == expected


@pytest.mark.parametrize(("e", "expected"), DIVISORS)
def test_divisor(e, expected):
    assert divisor(e) == expected


def test_congruences_keep_residues_through_division():
    assert tuple(congruence((f + 5) // 4)) == (4, 1)
    assert tuple(congruence(minimum(f + 3, 2 * f + 11))) == (8, 3)


@given(trees(5), st.integers(0, 2**32), st.sampled_from([12, 300]))
@settings(derandomize=True, max_examples=1500, deadline=None)
def test_analyses_are_sound(tree, seed, spread):
    values = sample_values(seed, spread)
    try:
        exact = value(tree, values)
    except Undefined:
        return
    for e in (build(tree), simplify(build(tree))):
        lo, hi = bounds(e)
        assert lo is None or lo <= exact
        assert hi is None or exact <= hi
        modulus, residue = congruence(e)
        assert (exact - residue) % modulus == 0 if modulus else exact == residue
        assert exact % divisor(e) == 0 if divisor(e) else exact == 0
