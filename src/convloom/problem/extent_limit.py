"""The sizes that 64-bit index math reaches."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.errors import IllegalProblem
from convloom.expr import Expr, bounds
from convloom.problem.conv import Conv
from convloom.problem.gemm import Gemm

LIMIT = 2**63 - 1


def check_addressable(problem: Conv | Gemm) -> None:
    """IllegalProblem if bytes of a tensor, or positions in the padded input, are known to leave 64 bits."""
    for name, least in _quantities(problem):
        lowest = bounds(least).lo
        if lowest is not None and lowest > LIMIT:
            raise IllegalProblem(f"{name} must stay below 2^63, what 64 bits count; got {lowest}; choose smaller sizes")


def _quantities(problem: Conv | Gemm) -> Iterator[tuple[str, Expr]]:
    if isinstance(problem, Gemm):
        tensors = (
            ("a", problem.a, problem.a_shape),
            ("b", problem.b, problem.b_shape),
            ("c", problem.c, problem.c_shape),
        )
    else:
        tensors = tuple((role.value, problem.spec(role), problem.shape(role)) for role in problem.roles)
        for dim, (extent, window) in enumerate(zip(problem.out_spatial, problem.windows, strict=True)):
            reach = (extent - 1) * window.stride + (window.kernel - 1) * window.dilation + abs(window.pad_begin)
            yield f"positions in dimension {dim}", reach
    for name, spec, shape in tensors:
        yield f"the bytes of {name}", spec.layout.storage_size(shape) * spec.dtype.nbytes
