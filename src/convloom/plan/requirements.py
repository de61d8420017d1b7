"""What a plan relies on at run time: proved here, or a condition of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from convloom.artifact import Language
from convloom.expr import Expr, Truth, const, free_symbols, prove, simplify, substitute, sym
from convloom.plan.epilogue_access import ExtraAccess, extra_access
from convloom.plan.families import Plan
from convloom.plan.hopper import HopperPlan, Output
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.tiled import TiledPlan
from convloom.plan.workspace import workspace_condition, workspace_numbers
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target
from convloom.target.tensor_map import GRANULE
from convloom.view.domain import Domain
from convloom.view.form import Form, Range
from convloom.view.view import flat

_LIMIT = 2**31
_SLACK = 2**16  # tiles run over the ends of axes by less than this


@dataclass(frozen=True, slots=True)
class PlanRequirement:
    """A condition over sizes, strides and addresses, and why it is needed; `operand` is the one it is about, if any."""

    condition: Expr
    template: str  # the reason, with {operand} in place of the operand's name
    operand: str = ""

    @property
    def reason(self) -> str:
        """Why the condition is needed, in the contraction's names."""
        return self.template.format(operand=self.operand)

    @property
    def on_address(self) -> bool:
        """Whether the condition is about an operand's address rather than about sizes."""
        return any(symbol.name.endswith("_address") for symbol in free_symbols(self.condition))

    def named(self, tensors: Mapping[str, str]) -> PlanRequirement:
        """The same in other names of the operands, {"a": "wei", ..}."""
        if not self.operand:
            return self
        name = tensors[self.operand]
        renamed = substitute(self.condition, {address_symbol(self.operand): address_symbol(name)})
        return PlanRequirement(renamed, self.template, name)


def address_symbol(name: str) -> Expr:
    """The byte address of a buffer's first element, as launch arithmetic names it."""
    return sym(f"{name}_address", lo=0)


def fits_32_bits(contraction: Contraction) -> bool:
    """False if some offset or flat index is known to leave 32 bits for every allowed size."""
    return all(
        prove(condition) is not Truth.NO
        for condition in (item.condition for item in _open_index_conditions(contraction))
    )


def plan_requirements(
    plan: Plan, contraction: Contraction, target: Target, policy: Policy = ANYTHING
) -> tuple[PlanRequirement, ...]:
    """The conditions that are not proved: 32-bit index math, pointer alignment of vector accesses, the workspace."""
    found: list[PlanRequirement] = []
    if plan.index_bits == 32:
        found += _open_index_conditions(contraction)
        counted = workspace_numbers(plan, contraction).lt(_LIMIT - _SLACK)
        found.append(PlanRequirement(counted, "the kernel counts partial sums in 32 bits"))
    limited = workspace_condition(plan, contraction, policy)
    found.append(PlanRequirement(limited, "the caller's max_workspace limits the bytes of partial sums"))
    if target.language is not Language.C:
        found += _alignments(plan, exchange(contraction) if plan.swap else contraction, target)
    return tuple(item for item in found if prove(item.condition) is not Truth.YES)


@lru_cache(maxsize=256)
def _open_index_conditions(contraction: Contraction) -> tuple[PlanRequirement, ...]:
    """What 32-bit index math needs and is not proved, for every phase of a family."""
    found: dict[Expr, PlanRequirement] = {}
    for item in _index_conditions(contraction):
        if prove(item.condition) is Truth.YES:
            continue
        for phase in range(contraction.phase_count):
            values = {parameter.symbol: parameter.values[phase] for parameter in contraction.phases}
            condition = substitute(item.condition, values) if values else item.condition
            found.setdefault(condition, PlanRequirement(condition, item.template, item.operand))
    return tuple(found.values())


def _index_conditions(contraction: Contraction) -> tuple[PlanRequirement, ...]:
    found: list[PlanRequirement] = []
    for operand in contraction.operands:
        template = "the kernel computes offsets into {operand} in 32 bits"
        found += [PlanRequirement(condition, template, operand.name) for condition in _offset_conditions(operand)]
    result, summed = const(1), const(1)
    for axis in contraction.axes:
        if axis.kind is AxisKind.K:
            summed = summed * axis.extent
        else:
            result = result * axis.extent
    for count, words in ((result, "elements of the result"), (summed, "products of a sum")):
        found.append(PlanRequirement(simplify(count).lt(_LIMIT - _SLACK), f"the kernel counts {words} in 32 bits"))
    return tuple(found)


def _offset_conditions(operand: Operand) -> tuple[Expr, ...]:
    """The offset of an operand, and what it is computed from, within 32 bits; never true where a range is unknown.

    The offset counts where it is valid, positions also where a check refuses them. Of symbolic positions only those
    with large numbers count: the others exceed the offset's own range by less than the slack.
    """
    forms = flat(operand.view)
    unguarded = Domain(forms.domain.extents)
    parts = dict.fromkeys(_parts([forms.offset, *(check.form for check in forms.checks)]))
    ranges = [unguarded.range(form) for form in parts if _is_large(form) or _is_constant(unguarded.range(form))]
    ranges.append(forms.domain.range(forms.offset))
    return tuple([condition for low, high in ranges for condition in _within_32_bits(low, high)])


def _is_constant(limits: Range) -> bool:
    return all(end is not None and end.is_const for end in limits)


def _within_32_bits(low: Expr | None, high: Expr | None) -> tuple[Expr, ...]:
    if low is None or high is None:
        return (const(0),)
    return high.lt(_LIMIT - _SLACK), low.ge(-_LIMIT + _SLACK)


def _parts(forms: Iterable[Form]) -> Iterator[Form]:
    """The forms, and those that they divide."""
    for form in forms:
        yield form
        yield from _parts(atom.source for atom in form.terms if isinstance(atom.source, Form))


def _is_large(form: Form) -> bool:
    """Whether a number of the form is so large that its values may leave 32 bits while the offset does not."""
    return any(number.is_const and abs(number.value) >= _SLACK for number in (form.constant, *form.terms.values()))


def _stored_bytes(plan: Plan, contraction: Contraction) -> int:
    """How many bytes of C move at a time."""
    if isinstance(plan, HopperPlan) and plan.output is not Output.REGISTERS:
        return GRANULE
    numbers = plan.collect or plan.store if isinstance(plan, TiledPlan) else plan.store
    return numbers * contraction.c.dtype.nbytes


def _fetched_bytes(plan: Plan, contraction: Contraction) -> tuple[int, int]:
    """How many bytes of A and B move at a time: of tensor copies what their addresses are multiples of."""
    if isinstance(plan, HopperPlan):
        return GRANULE, GRANULE
    return plan.a.vector * contraction.a.dtype.nbytes, plan.b.vector * contraction.b.dtype.nbytes


def _alignments(plan: Plan, contraction: Contraction, target: Target) -> list[PlanRequirement]:
    vectors: dict[str, int] = {}
    a_bytes, b_bytes = _fetched_bytes(plan, contraction)
    for operand, nbytes in (
        (contraction.a, a_bytes),
        (contraction.b, b_bytes),
        (contraction.c, _stored_bytes(plan, contraction)),
    ):
        vectors[operand.name] = max(vectors.get(operand.name, 1), nbytes)
    if contraction.bias is not None:
        vectors[contraction.bias.name] = plan.store * contraction.bias.dtype.nbytes
    for extra in contraction.extras:
        if extra_access(extra, contraction, plan) is ExtraAccess.VECTOR:
            vectors[extra.name] = plan.store * extra.dtype.nbytes
    by_element = {operand.name: operand.dtype.nbytes for operand in contraction.operands}
    found: list[PlanRequirement] = []
    for name, nbytes in vectors.items():
        aligned = min(nbytes, target.access_bits // 8) if target.language is Language.CUDA else by_element[name]
        if aligned > by_element[name]:
            condition = (address_symbol(name) % aligned).eq(0)
            found.append(PlanRequirement(condition, f"the kernel moves {nbytes} bytes of {{operand}} at a time", name))
    return found
