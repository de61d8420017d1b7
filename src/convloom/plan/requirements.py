"""What a plan relies on at run time: proved here, or a condition of the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from convloom.artifact import Language
from convloom.expr import Expr, Truth, const, free_symbols, prove, simplify, substitute, sym
from convloom.plan.access_facts import flat_axes
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, Operand, exchange
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
    return all(prove(condition) is not Truth.NO for condition, _ in _index_conditions(contraction))


def plan_requirements(plan: TiledPlan, contraction: Contraction, target: Target) -> tuple[PlanRequirement, ...]:
    """The conditions that are not proved: 32-bit index math, pointer alignment of vector accesses."""
    conditions: list[tuple[Expr, str]] = []
    if plan.index_bits == 32:
        conditions += _index_conditions(contraction)
    if target.language is not Language.C:
        conditions += _alignments(plan, exchange(contraction) if plan.swap else contraction, target)
    return tuple(
        PlanRequirement(condition, reason) for condition, reason in conditions if prove(condition) is not Truth.YES
    )


@lru_cache(maxsize=256)
def _index_conditions(contraction: Contraction) -> tuple[tuple[Expr, str], ...]:
    found: list[tuple[Expr, str]] = []
    for operand in contraction.operands:
        low, high = _offset_range(operand)
        reason = f"the kernel computes offsets into {operand.name} in 32 bits"
        found += [(most.lt(_LIMIT - _SLACK), reason) for most in _over_phases(high, contraction)]
        found += [(least.ge(-_LIMIT + _SLACK), reason) for least in _over_phases(low, contraction)]
    g, m, n = (tuple(a.name for a in contraction.axes if a.kind.value == kind) for kind in "gmn")
    flat_m, flat_n, _, flat_g = flat_axes(contraction, m, n, (), g, (1, 1, 1))
    total = flat_g.extent * flat_m.extent * flat_n.extent
    found.append((simplify(total).lt(_LIMIT - _SLACK), "the kernel counts elements of the result in 32 bits"))
    return tuple(found)


def _over_phases(expression: Expr, contraction: Contraction) -> Iterable[Expr]:
    """The expression in every phase of the family, equal ones once: no phase parameter is known at a launch."""
    if not free_symbols(expression) & {parameter.symbol for parameter in contraction.phases}:
        return (expression,)
    values = zip(*(parameter.values for parameter in contraction.phases), strict=True)
    symbols = [parameter.symbol for parameter in contraction.phases]
    return dict.fromkeys(substitute(expression, dict(zip(symbols, phase, strict=True))) for phase in values)


def _offset_range(operand: Operand) -> tuple[Expr, Expr]:
    forms = flat(operand.view)
    low, high = forms.domain.range(forms.offset)
    return (const(0) if low is None else low, const(0) if high is None else high)


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
