"""Division by an invariant divisor as a multiplication and a shift, for launch arguments and kernels alike."""

from __future__ import annotations

from convloom.errors import IllegalProblem


def magic_numbers(divisor: int) -> tuple[int, int]:
    """(multiplier, shift) with `(x * multiplier) >> shift == x // divisor` for every 0 <= x < 2**31.

    multiplier < 2**32, so the product fits 64 bits. Granlund and Montgomery, "Division by Invariant Integers using
    Multiplication" (1994), theorem 4.2 with N = 31: with l = ceil(log2 d), m = ceil(2**(31 + l) / d).
    """
    if not 1 <= divisor < 2**31:
        raise IllegalProblem(f"a divisor in index math must lie in 1 .. 2**31 - 1; got {divisor}; use smaller extents")
    log = (divisor - 1).bit_length()
    return -(-(1 << (31 + log)) // divisor), 31 + log


def magic_multiplier(divisor: int) -> int:
    """The multiplier of `magic_numbers`."""
    return magic_numbers(divisor)[0]


def magic_shift(divisor: int) -> int:
    """The shift of `magic_numbers`."""
    return magic_numbers(divisor)[1]
