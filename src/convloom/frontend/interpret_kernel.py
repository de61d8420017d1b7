"""A problem compiled for the interpret device: called with arrays in host memory."""

from __future__ import annotations

from contextlib import ExitStack

from convloom.errors import InternalError
from convloom.frontend.arrays import Family
from convloom.frontend.interpret_device import InterpretDevice
from convloom.frontend.kernel import Kernel, Placement
from convloom.frontend.overlap import reach_of
from convloom.frontend.tensor import Tensor
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.reference import Problem
from convloom.runtime.interface import Device
from convloom.target.arch import Target


class InterpretKernel(Kernel):
    """A kernel whose calls raise InterpretedFault where it touches anything but the elements of its arrays."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        target: Target,
        plan: str | None = None,
        policy: Policy = ANYTHING,
        proposed: tuple[str, ...] = (),
    ) -> None:
        super().__init__(problem, device, target, plan, policy, proposed)
        self._place_name = "cpu"

    def repeat(
        self,
        family: Family,
        tensors: list[Tensor],
        with_result: bool,
        factors: tuple[float, float],
        names: tuple[str, ...],
    ) -> None:
        """None: the interpreter looks at the memory of every call anew."""

    def _launch(
        self,
        placement: Placement,
        family: Family,
        tensors: list[Tensor],
        factors: tuple[float, float],
        stream: object,
    ) -> None:
        if not isinstance(self.device, InterpretDevice):
            raise InternalError(f"an InterpretKernel runs on the interpret device; got {self.device.name}; report this")
        with ExitStack() as stack:
            for tensor in tensors:
                if not self.device.owns(tensor.address):
                    reach = reach_of(tensor)
                    address = tensor.address + reach.begin
                    stack.enter_context(self.device.adopt(address, reach.end - reach.begin))
            super()._launch(placement, family, tensors, factors, stream)
