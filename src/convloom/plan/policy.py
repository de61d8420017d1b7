"""What a caller allows a plan to do."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.errors import IllegalProblem


@dataclass(frozen=True, slots=True)
class Policy:
    """`deterministic`: results do not depend on the order in which blocks run, so that floating-point atomics are out.

    `max_workspace`: most bytes of scratch memory a call may use; None leaves it to the planner. 0 always works.
    IllegalProblem for a negative limit.
    """

    deterministic: bool = False
    max_workspace: int | None = None

    def __post_init__(self) -> None:
        if self.max_workspace is not None and self.max_workspace < 0:
            raise IllegalProblem(f"max_workspace is a number of bytes >= 0; got {self.max_workspace}; 0 always works")


ANYTHING = Policy()
"""No wish of the caller: the planner decides."""
