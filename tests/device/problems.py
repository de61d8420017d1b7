"""Problems of tests and suites by their text."""

from __future__ import annotations

from convloom.problem.conv import Conv
from convloom.problem.notation import Defaults, allows_tf32, direction_named, types_named
from convloom.problem.notation.choose import parse_line
from convloom.problem.reference import Problem

PLAIN = ("any", "any", "any")


def problem_of(text: str, direction: str = "fwd", dtypes: str = "f32", tags: tuple[str, str, str] = PLAIN) -> Problem:
    """A problem from a line of any notation; direction, types and layouts where the line leaves them open."""
    return parse_line(text, defaults_of(direction, dtypes, tags))


def defaults_of(direction: str, dtypes: str, tags: tuple[str, str, str] = PLAIN) -> Defaults:
    """What a line leaves open, by names; `tf32` among them."""
    src, wei, dst = tags
    types = types_named(dtypes)
    return Defaults(direction_named(direction), types, None, src, wei, dst, tf32=allows_tf32(dtypes))


def conv_of(text: str, direction: str = "fwd", dtypes: str = "f32", tags: tuple[str, str, str] = PLAIN) -> Conv:
    """`problem_of` where it is a convolution."""
    problem = problem_of(text, direction, dtypes, tags)
    assert isinstance(problem, Conv)
    return problem
