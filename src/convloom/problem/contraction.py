"""The one form of every problem: C[g,m,n] += A[g,m,k] * B[g,k,n] over named axes, with operands that are views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd

from convloom.dtypes import DType
from convloom.expr import Expr, bounds, const, free_symbols, local_sym
from convloom.problem.conv import Scaling
from convloom.problem.epilogue import NO_STEPS, Steps
from convloom.view import Axis, View


class AxisKind(Enum):
    """Which operands an axis indexes: G all three, M a and c (or c alone), N b and c, K both inputs or one alone."""

    G = "g"
    M = "m"
    N = "n"
    K = "k"


@dataclass(frozen=True, slots=True)
class ContractionAxis:
    """A named loop of the contraction."""

    name: str
    kind: AxisKind
    extent: Expr


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor: the name of its pointer, element type, and view from contraction axes to element offsets."""

    name: str
    dtype: DType
    view: View


@dataclass(frozen=True, slots=True)
class PhaseParameter:
    """A symbol that extents and views of a family mention, and its value in each phase."""

    symbol: Expr
    values: tuple[int, ...]


def phase_parameter(name: str, values: tuple[int, ...]) -> PhaseParameter:
    """The parameter with its range and common divisor as facts of its symbol."""
    return PhaseParameter(local_sym(name, divisor=max(gcd(*values), 1), lo=min(values), hi=max(values)), values)


@dataclass(frozen=True, slots=True)
class Contraction:
    """A problem without its direction: axes, operands, accumulator, epilogue, and the phases of a family (or none).

    `tf32`: f32 factors may be cut to tf32 where that is faster.
    `extras` are the epilogue's operands, which `steps` refer to by number; `zero_a` and `zero_b` the zero points, over
    the axes of A and B.
    """

    axes: tuple[ContractionAxis, ...]
    a: Operand
    b: Operand
    c: Operand
    acc: DType
    bias: Operand | None
    scaling: Scaling
    phases: tuple[PhaseParameter, ...] = ()
    tf32: bool = False
    steps: Steps = NO_STEPS
    extras: tuple[Operand, ...] = ()
    zero_a: Operand | None = None
    zero_b: Operand | None = None

    def of_kind(self, kind: AxisKind) -> tuple[ContractionAxis, ...]:
        """The axes of one kind, in declared order."""
        return tuple(axis for axis in self.axes if axis.kind is kind)

    @property
    def phase_count(self) -> int:
        """Number of phases that one launch covers."""
        return len(self.phases[0].values) if self.phases else 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands: a, b, c and, where there are such, the bias, the epilogue's operands, the zero points."""
        given = (self.bias, *self.extras, self.zero_a, self.zero_b)
        return (self.a, self.b, self.c, *(operand for operand in given if operand is not None))

    @property
    def reads_old(self) -> bool:
        """Whether the result's former content is read."""
        return self.scaling.beta or self.steps.reads_old

    def map_operands(self, change: Callable[[Operand], Operand]) -> Contraction:
        """The contraction with every operand changed."""

        def optional(operand: Operand | None) -> Operand | None:
            return None if operand is None else change(operand)

        return replace(
            self,
            a=change(self.a),
            b=change(self.b),
            c=change(self.c),
            bias=optional(self.bias),
            extras=tuple(map(change, self.extras)),
            zero_a=optional(self.zero_a),
            zero_b=optional(self.zero_b),
        )


def used_axes(view: View) -> frozenset[str]:
    """Axes that the offset or the validity of a view depends on; axes of stride 0 and of extent 1 are absent."""
    coordinates = {axis.name: _coordinate(axis) for axis in view.axes}
    access = view.access(coordinates)
    symbols: set[Expr] = set(free_symbols(access.offset))
    for condition in access.conditions:
        symbols |= free_symbols(condition)
    return frozenset(name for name, coordinate in coordinates.items() if coordinate in symbols)


def _coordinate(axis: Axis) -> Expr:
    hi = bounds(axis.extent).hi
    return const(0) if hi == 1 else local_sym(f"at_{axis.name}", lo=0, hi=None if hi is None else max(hi - 1, 0))


_KIND_OF_PRESENCE = {
    (True, True, True): AxisKind.G,
    (True, False, True): AxisKind.M,
    (False, True, True): AxisKind.N,
    (True, True, False): AxisKind.K,
    (True, False, False): AxisKind.K,
    (False, True, False): AxisKind.K,
    (False, False, True): AxisKind.M,
}


def classify_axes(axes: tuple[ContractionAxis, ...], a: View, b: View, c: View) -> tuple[ContractionAxis, ...]:
    """The axes with the kind that follows from the operands that have them.

    An axis that no operand depends on has extent 1 (then it does not matter: M) or repeats one product in the sum (K),
    as a result never has two elements in one place.
    """
    present = tuple(used_axes(view) for view in (a, b, c))
    return tuple(_classified(axis, tuple(axis.name in names for names in present)) for axis in axes)


def _classified(axis: ContractionAxis, presence: tuple[bool, ...]) -> ContractionAxis:
    kind = _KIND_OF_PRESENCE.get((presence[0], presence[1], presence[2]))
    if kind is None:
        kind = AxisKind.M if axis.extent is const(1) else AxisKind.K
    return replace(axis, kind=kind)


_EXCHANGED = {AxisKind.G: AxisKind.G, AxisKind.M: AxisKind.N, AxisKind.N: AxisKind.M, AxisKind.K: AxisKind.K}


def exchange(contraction: Contraction) -> Contraction:
    """The same contraction with (A, M) and (B, N) in each other's place."""
    axes = tuple(replace(axis, kind=_EXCHANGED[axis.kind]) for axis in contraction.axes)
    return replace(
        contraction,
        axes=axes,
        a=contraction.b,
        b=contraction.a,
        zero_a=contraction.zero_b,
        zero_b=contraction.zero_a,
    )
