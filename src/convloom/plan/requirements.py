"""What a plan relies on at run time: proved here, or a condition of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from convloom.artifact import Language
from convloom.expr import Expr, Truth, const, prove, simplify, substitute, sym
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target
from convloom.view.view import flat

_LIMIT = 2**31
_SLACK = 2**16  # tiles run over the ends of axes by less than this


@dataclass(frozen=True, slots=True)
class PlanRequirement:
    """A condition over sizes, strides and addresses, and why it is needed."""

    condition: Expr
    reason: str


def address_symbol(name: str) -> Expr:
    """The byte address of a buffer's first element, as launch arithmetic names it."""
    return sym(f"{name}_address", lo=0)


def fits_32_bits(contraction: Contraction) -> bool:
    """False if some offset or flat index is known to leave 32 bits for every allowed size."""
    return all(prove(condition) is not Truth.NO for condition, _ in _open_index_conditions(contraction))


def plan_requirements(plan: TiledPlan, contraction: Contraction, target: Target) -> tuple[PlanRequirement, ...]:
    """The conditions that are not proved: 32-bit index math, pointer alignment of vector accesses."""
    conditions: list[tuple[Expr, str]] = []
    if plan.index_bits == 32:
        conditions += _open_index_conditions(contraction)
    if target.language is not Language.C:
        conditions += _alignments(plan, exchange(contraction) if plan.swap else contraction, target)
    return tuple(
        PlanRequirement(condition, reason) for condition, reason in conditions if prove(condition) is not Truth.YES
    )


@lru_cache(maxsize=256)
def _open_index_conditions(contraction: Contraction) -> tuple[tuple[Expr, str], ...]:
    """What 32-bit index math needs and is not proved, for every phase of a family."""
    found: dict[Expr, str] = {}
    for condition, reason in _index_conditions(contraction):
        if prove(condition) is Truth.YES:
            continue
        for phase in range(contraction.phase_count):
            values = {parameter.symbol: parameter.values[phase] for parameter in contraction.phases}
            found.setdefault(substitute(condition, values) if values else condition, reason)
    return tuple(found.items())


def _index_conditions(contraction: Contraction) -> tuple[tuple[Expr, str], ...]:
    found: list[tuple[Expr, str]] = []
    for operand in contraction.operands:
        reason = f"the kernel computes offsets into {operand.name} in 32 bits"
        found += [(condition, reason) for condition in _offset_conditions(operand)]
    result, summed = const(1), const(1)
    for axis in contraction.axes:
        if axis.kind is AxisKind.K:
            summed = summed * axis.extent
        else:
            result = result * axis.extent
    found.append((simplify(result).lt(_LIMIT - _SLACK), "the kernel counts elements of the result in 32 bits"))
    found.append((simplify(summed).lt(_LIMIT - _SLACK), "the kernel counts products of a sum in 32 bits"))
    return tuple(found)


def _offset_conditions(operand: Operand) -> tuple[Expr, ...]:
    """The offset range of an operand within 32 bits; never true where the range is unknown."""
    forms = flat(operand.view)
    low, high = forms.domain.range(forms.offset)
    if low is None or high is None:
        return (const(0),)
    return high.lt(_LIMIT - _SLACK), low.ge(-_LIMIT + _SLACK)


def _alignments(plan: TiledPlan, contraction: Contraction, target: Target) -> list[tuple[Expr, str]]:
    vectors: dict[str, int] = {}
    for operand, width in ((contraction.a, plan.a.vector), (contraction.b, plan.b.vector), (contraction.c, plan.store)):
        vectors[operand.name] = max(vectors.get(operand.name, 1), width * operand.dtype.nbytes)
    if contraction.bias is not None:
        vectors[contraction.bias.name] = plan.store * contraction.bias.dtype.nbytes
    by_element = {operand.name: operand.dtype.nbytes for operand in contraction.operands}
    found: list[tuple[Expr, str]] = []
    for name, nbytes in vectors.items():
        aligned = min(nbytes, target.access_bits // 8) if target.language is Language.CUDA else by_element[name]
        if aligned > by_element[name]:
            condition = (address_symbol(name) % aligned).eq(0)
            found.append((condition, f"the kernel moves {nbytes} bytes of {name} at a time"))
    return found
