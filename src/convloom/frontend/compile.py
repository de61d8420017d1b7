"""From a problem to a kernel on a device, each made once per process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.device_target import target_for
from convloom.frontend.interpret_device import InterpretDevice
from convloom.frontend.interpret_kernel import InterpretKernel
from convloom.frontend.kernel import Kernel
from convloom.frontend.pick_plan import pick_measured
from convloom.plan.policy import Policy
from convloom.problem.conv import Conv
from convloom.problem.epilogue import Epilogue, trace
from convloom.problem.epilogue.trace import Declared
from convloom.problem.gemm import Gemm
from convloom.problem.given import check_kind, integer
from convloom.problem.reference import Problem
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.device import device_named
from convloom.runtime.interface import Device
from convloom.target.arch import Target
from convloom.tune.pick import Pick, PickHow, parse_pick


class _Key(NamedTuple):
    problem: Problem
    device: Device
    target: Target
    plan: str | None
    policy: Policy
    pick: Pick


_kernels: BuildOnce[_Key, Kernel] = BuildOnce()


def compile(
    problem: Problem,
    device: str | Device = "cpu",
    plan: str | None = None,
    *,
    deterministic: bool = False,
    max_workspace: int | None = None,
    epilogue: Epilogue | Callable[..., Any] | None = None,
    operands: Mapping[str, Declared] | None = None,
    pick: str = "model",
) -> Kernel:
    """The kernel of a problem (Conv or Gemm; sizes may be dims) on a device, planned, generated, built and loaded.

    `plan`: a plan's text, used as it is; None lets the cost model choose. `deterministic`: equal calls give equal
    bits, which rules floating-point atomics out. `max_workspace`: most bytes of scratch memory of a call; 0 always
    works, None leaves it to the planner. `epilogue`: what becomes of the sums, as a record, or a function of the sum
    and of its operands, which `operands` declares by name as an element type or (element type, mask). `pick`: `model`,
    or `measured` (`measured:K`): the fastest of the model's first 8 (K) different candidates on the device, timed on
    random reals after their results were verified, and remembered in the tuning database. Equal arguments give the
    same kernel, made once, whoever asks; a function is traced again in each call.
    Raises IllegalProblem for bad dims or a negative limit, Infeasible for a plan that cannot be built or is not
    allowed, UnsupportedTarget for a device that is not here, BuildFailed if the vendor's compiler refuses the source,
    NotYetSupported for a measured pick of a problem with dims.
    """
    if not isinstance(problem, Conv | Gemm):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise IllegalType(f"a problem is a Conv or a Gemm; got {type(problem).__name__}; build one of these")
    if plan is not None:
        check_kind("plan", plan, str, "None or a plan's text, as kernel.plan prints it")
    check_kind("device", device, str | Device, "a device or its name, as 'cpu'")
    if epilogue is not None:
        record = epilogue if isinstance(epilogue, Epilogue) else trace(epilogue, operands)
        problem = replace(problem, epilogue=record)
    elif operands:
        raise IllegalProblem(f"operands belong to an epilogue; got {list(operands)} and no epilogue; pass epilogue=")
    found = device_named(device) if isinstance(device, str) else device
    check_kind("deterministic", deterministic, bool, "True or False")
    policy = Policy(deterministic, None if max_workspace is None else integer("max_workspace", max_workspace))
    check_kind("pick", pick, str, "'model', 'measured' or 'measured:K'")
    way = parse_pick(pick)
    if plan is not None and way.how is not PickHow.MODEL:
        raise IllegalProblem(f"a given plan is used as it is; got plan and pick={pick!r}; leave one of them out")
    return _kernels.get(_Key(problem, found, target_for(found), plan, policy, way), _make)


def _make(key: _Key) -> Kernel:
    if key.pick.how is PickHow.MEASURED:
        return pick_measured(key.problem, key.device, key.policy, key.pick)
    kind = InterpretKernel if isinstance(key.device, InterpretDevice) else Kernel
    return kind(key.problem, key.device, key.target, key.plan, key.policy)
