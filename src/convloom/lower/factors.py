"""Alpha and beta as launch arguments."""

from __future__ import annotations

from convloom.ir.ops import LaunchScalar
from convloom.lower.frame import factor_type
from convloom.problem.contraction import Contraction


def factors(contraction: Contraction) -> tuple[LaunchScalar, ...]:
    """Alpha and beta, where the call passes them."""
    dtype = factor_type(contraction)
    names = (("alpha", contraction.scaling.alpha), ("beta", contraction.scaling.beta))
    return tuple(LaunchScalar(name, name, dtype) for name, wanted in names if wanted)
