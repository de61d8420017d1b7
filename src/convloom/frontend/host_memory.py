"""Whether the tensors of a check fit the machine's memory."""

from __future__ import annotations

import os

from convloom.errors import IllegalProblem
from convloom.frontend.operand_terms import problem_terms
from convloom.problem.layout_memory import buffer_size
from convloom.problem.reference import Problem

_REFERENCE_BYTES = 8  # of an element of the reference result: f64 or s64


def least_bytes(problem: Problem) -> int:
    """Bytes of all tensors and of the reference result; a check needs some copies more."""
    terms = problem_terms(problem)
    sizes = [
        buffer_size(item.layout, [extent.value for extent in item.shape]) for item in (*terms.inputs, terms.result)
    ]
    types = [item.dtype.nbytes for item in (*terms.inputs, terms.result)]
    return sum(size * nbytes for size, nbytes in zip(sizes, types, strict=True)) + sizes[-1] * _REFERENCE_BYTES


def physical_bytes() -> int | None:
    """Memory of the machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_fits_memory(problem: Problem) -> None:
    """IllegalProblem if a problem of constant sizes cannot be computed beside its reference on this machine."""
    needed, there = least_bytes(problem), physical_bytes()
    if there is not None and needed > there:
        raise IllegalProblem(
            f"tensors and reference must fit the machine's memory; they need at least {needed} bytes "
            f"({needed / 2**30:.1f} GiB), it has {there / 2**30:.1f} GiB; choose smaller sizes, or `convloom emit`, "
            "which needs no data"
        )
