"""One kernel of a problem: its plan, its source, and the conditions under which it may run."""

from __future__ import annotations

from convloom.artifact import KernelSource, Requirement
from convloom.compiler import generate
from convloom.expr import free_symbols, to_text
from convloom.frontend.size_solver import Values, compile_values
from convloom.plan.requirements import PlanRequirement, plan_requirements
from convloom.plan.tiled import TiledPlan, plan_text
from convloom.problem.normal_form import NormalForm
from convloom.runtime.interface import Built, Device
from convloom.target.arch import Target


class Variant:
    """A built kernel: `label` is `preferred`, `general` or `given`.

    `order` has, for each buffer, the place of its tensor among `names`: the inputs of a call, then the result.
    """

    def __init__(
        self,
        label: str,
        plan: TiledPlan,
        normal: NormalForm,
        names: tuple[str, ...],
        target: Target,
        device: Device,
    ) -> None:
        self.label = label
        self.plan = plan
        contraction = normal.contraction
        self.source: KernelSource = generate(contraction, target, plan).source
        self.built: Built = device.build(self.source)
        tensor_of = dict(normal.tensors)
        self.order = tuple(names.index(tensor_of[buffer.name]) for buffer in self.source.buffers)
        conditions = plan_requirements(plan, contraction, target)
        by_address = [item.condition for item in conditions if _mentions_address(item)]
        self._requirements = tuple(item.named(tensor_of) for item in conditions)
        self._fits = compile_values(item.condition for item in conditions if not _mentions_address(item))
        self._aligned = compile_values(by_address)
        self.has_address_conditions = bool(by_address)

    def __repr__(self) -> str:
        return f"<{self.label} variant: {plan_text(self.plan)}>"

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The conditions that its plan relies on beyond the declared facts, in the names of the problem's tensors."""
        return tuple(Requirement(to_text(item.condition), item.reason) for item in self._requirements)

    def fits(self, symbols: Values) -> bool:
        """Whether sizes and strides satisfy the conditions on them."""
        return all(self._fits(symbols))

    def aligned(self, symbols: Values) -> bool:
        """Whether addresses (among the symbols, as `<buffer>_address`) satisfy the conditions on them."""
        return all(self._aligned(symbols))


def _mentions_address(item: PlanRequirement) -> bool:
    return any(symbol.name.endswith("_address") for symbol in free_symbols(item.condition))
