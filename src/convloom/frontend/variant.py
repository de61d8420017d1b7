"""The kernels that one plan makes of a problem, and the conditions under which they may run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from convloom.artifact import WORKSPACE, KernelSource, Program, Requirement
from convloom.compiler import generate
from convloom.expr import to_text
from convloom.frontend.arrays import Family
from convloom.frontend.size_solver import Values, compile_values
from convloom.plan.families import Plan, plan_text
from convloom.plan.policy import Policy
from convloom.plan.requirements import plan_requirements
from convloom.plan.workspace import workspace_bytes
from convloom.problem.normal_form import NormalForm
from convloom.runtime.interface import BufferHandle, Built, Device, Launcher
from convloom.runtime.launch_expression import is_periodic
from convloom.target.arch import Target

Pick: TypeAlias = Callable[[Sequence[BufferHandle]], Sequence[BufferHandle]]
"""From the buffers of a call's tensors, the workspace last, to those of one kernel."""


class Launch(NamedTuple):
    """A built kernel, and which of a call's buffers it takes."""

    built: Built
    pick: Pick


class Variant:
    """The built kernels of one plan: `label` is `preferred`, `general` or `given`.

    `names` are those of a call's tensors: its inputs, then its result.
    """

    def __init__(
        self,
        label: str,
        plan: Plan,
        normal: NormalForm,
        names: tuple[str, ...],
        target: Target,
        device: Device,
        policy: Policy,
    ) -> None:
        self.label = label
        self.plan = plan
        self._device, self._most_workspace = device, policy.max_workspace
        contraction = normal.contraction
        self.program: Program = generate(contraction, target, plan, policy=policy).program
        place_of = {buffer: names.index(tensor) for buffer, tensor in normal.tensors} | {WORKSPACE: len(names)}
        self._places = {f"{buffer}_address": place for buffer, place in place_of.items() if buffer != WORKSPACE}
        self.launches = tuple(
            Launch(device.build(source), _picker([place_of[buffer.name] for buffer in source.buffers]))
            for source in self.program.launches
        )
        needed = workspace_bytes(plan, contraction)
        self._workspace = None if needed.is_const and needed.value == 0 else compile_values((needed,))
        conditions = plan_requirements(plan, contraction, target, policy)
        by_address = [item.condition for item in conditions if item.on_address]
        self._requirements = tuple(item.named(dict(normal.tensors)) for item in conditions)
        self._fits = compile_values(item.condition for item in conditions if not item.on_address)
        self._aligned = compile_values(by_address)
        self.has_address_conditions = bool(by_address)
        self.is_periodic = is_periodic(map(to_text, by_address)) and all(
            built.is_periodic for built, _ in self.launches
        )
        """Whether equal remainders of all addresses by ADDRESS_PERIOD meet the same conditions."""

    def __repr__(self) -> str:
        return f"<{self.label} variant: {plan_text(self.plan)}>"

    @property
    def source(self) -> KernelSource:
        """Text and launch arithmetic of the kernel that multiplies."""
        return self.program.launches[self.program.main]

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The conditions that its plan relies on beyond the declared facts, in the names of the problem's tensors."""
        return tuple(Requirement(to_text(item.condition), item.reason) for item in self._requirements)

    def fits(self, symbols: Values) -> bool:
        """Whether sizes and strides satisfy the conditions on them."""
        return all(self._fits(symbols))

    def workspace_bytes(self, symbols: Mapping[str, int]) -> int:
        """Bytes of scratch memory that a call of these sizes takes."""
        return 0 if self._workspace is None else self._workspace(symbols)[0]

    def addressed(self, symbols: Values, addresses: list[BufferHandle]) -> Values:
        """The symbols, and the addresses of a call's tensors as `<buffer>_address`."""
        return {**symbols, **{name: addresses[place] for name, place in self._places.items()}}

    def aligned(self, symbols: Values) -> bool:
        """Whether addresses (among the symbols) satisfy the conditions on them."""
        return all(self._aligned(symbols))

    def prepared(self, addresses: list[BufferHandle], symbols: Values, floats: dict[str, float]) -> PreparedCall:
        """The launches of a call of these sizes on tensors at these addresses, checked; raises as `Built.launch`."""
        nbytes = None if self._workspace is None else self.workspace_bytes(symbols)
        known = [*addresses, 0]  # scratch memory is aligned better than anything asks for
        launchers = [(built.launcher(pick(known), symbols, floats), pick) for built, pick in self.launches]
        steps = tuple([(launcher, pick) for launcher, pick in launchers if launcher is not None])
        return PreparedCall(steps, self._device, nbytes, self._most_workspace)


def _picker(places: list[int]) -> Pick:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda buffers: [buffers[place] for place in places]


class PreparedCall(NamedTuple):
    """The launches of one call, their arithmetic done: each with the choice of its buffers among the call's.

    It serves every call of equal sizes and factors; where addresses matter, see `Variant.is_periodic`.
    """

    steps: tuple[tuple[Launcher, Pick], ...]
    device: Device
    workspace_bytes: int | None
    most_workspace: int | None

    def enqueue(self, family: Family, addresses: list[BufferHandle], stream: Any) -> None:
        """Enqueues the launches on tensors at these addresses."""
        if self.workspace_bytes is not None:
            with self._scratch(family, self.workspace_bytes, stream) as scratch:
                self._enqueue([*addresses, scratch], stream)
        elif len(self.steps) == 1:
            launcher, pick = self.steps[0]
            launcher(pick(addresses), stream)
        else:
            self._enqueue(addresses, stream)

    def _enqueue(self, addresses: list[BufferHandle], stream: Any) -> None:
        for launcher, pick in self.steps:
            self.device.separate(stream)
            launcher(pick(addresses), stream)

    @contextmanager
    def _scratch(self, family: Family, nbytes: int, stream: Any) -> Generator[BufferHandle]:
        """Scratch memory from the allocator of the arrays' framework on a GPU, else from the device."""
        if family.scratch is not None and self.device.name.startswith("cuda"):
            address, _keeper = family.scratch(nbytes, self.device.name, stream)
            yield address
        else:
            with self.device.lend(nbytes, self.most_workspace, stream) as handle:
                yield handle
