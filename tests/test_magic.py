"""Division by multiplication at the boundaries of its range."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.errors import IllegalProblem
from convloom.magic import magic_multiplier, magic_numbers, magic_shift

LIMIT = 2**31
DIVISORS = sorted(
    {*range(1, 300), *[(1 << bit) + off for bit in range(2, 31) for off in (-1, 0, 1)], LIMIT - 2, LIMIT - 1}
)


@pytest.mark.parametrize("divisor", DIVISORS)
def test_boundaries(divisor):
    multiplier, shift = magic_numbers(divisor)
    top = (LIMIT - 1) // divisor
    edges = {q * divisor + off for q in (0, 1, 2, top // 2, top - 1, top) for off in (-1, 0, 1)} | {LIMIT - 1}
    for x in edges:
        if 0 <= x < LIMIT:
            assert (x * multiplier) >> shift == x // divisor
            assert x * multiplier < 2**63
    assert multiplier < 2**32
    assert (multiplier, shift) == (magic_multiplier(divisor), magic_shift(divisor))


@given(st.integers(1, LIMIT - 1), st.integers(0, LIMIT - 1))
@settings(derandomize=True, max_examples=2000, deadline=None)
def test_any_pair(divisor, x):
    multiplier, shift = magic_numbers(divisor)
    assert (x * multiplier) >> shift == x // divisor


@pytest.mark.parametrize("divisor", [0, -1, LIMIT])
def test_divisors_out_of_range_are_refused(divisor):
    with pytest.raises(IllegalProblem, match="divisor"):
        magic_numbers(divisor)
