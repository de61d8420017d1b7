"""Problems of tests and suites by their text."""

from __future__ import annotations

from convloom.problem.conv import Conv
from convloom.problem.notation import Defaults, direction_named, types_named
from convloom.problem.notation.choose import parse_line

PLAIN = ("any", "any", "any")


def conv_of(text: str, direction: str = "fwd", dtypes: str = "f32", tags: tuple[str, str, str] = PLAIN) -> Conv:
    """A convolution from a line of any notation; direction, types and layouts where the line leaves them open."""
    src, wei, dst = tags
    problem = parse_line(text, Defaults(direction_named(direction), types_named(dtypes), None, src, wei, dst))
    assert isinstance(problem, Conv)
    return problem
