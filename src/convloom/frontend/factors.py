"""The factors of a call."""

from __future__ import annotations

from numbers import Real

import numpy as np

from convloom.errors import IllegalProblem, IllegalType


def real_factor(name: str, value: float) -> float:
    """A factor as a float; IllegalType unless it is a real number (Python's or NumPy's), truth values excluded."""
    if type(value) is float:
        return value
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise IllegalType(f"{name} must be a real number; got {value!r} of type {type(value).__name__}; give a float")
    try:
        return float(value)
    except OverflowError:
        raise IllegalProblem(f"{name} must lie in the range of a float; got {value}; use a smaller one") from None
