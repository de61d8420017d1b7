"""Runs fuzz cases on a device, tells faults from refusals, and shrinks what fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from convloom import settings
from convloom.errors import Infeasible
from convloom.frontend.compile import compile
from convloom.frontend.device_run import run_on_device
from convloom.frontend.fuzz_case import ConvSizes, FuzzCase, GemmSizes
from convloom.frontend.problem_check import judge
from convloom.plan.policy import ANYTHING
from convloom.problem.conv import NO_SCALING
from convloom.problem.data import DataKind, make_operands
from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts
from convloom.problem.layout_tags import ANY
from convloom.runtime.interface import Device

_MOST_TRIALS = 150


class Kind(Enum):
    """How a case can fail."""

    WRONG = "wrong elements"
    OVERRUN = "memory outside was written"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with a case; `name` is the exception's class for errors."""

    kind: Kind
    name: str
    message: str


def run_case(case: FuzzCase, device: Device) -> Fault | None:
    """Exact comparison on integer data with poison around every operand; None if nothing is wrong."""
    try:
        with settings.scoped(interpret_order=case.order):
            return _run(case, device)
    except Exception as error:  # noqa: BLE001 - whatever a legal case raises is what the fuzz is looking for
        return Fault(Kind.ERROR, type(error).__name__, str(error))


def _run(case: FuzzCase, device: Device) -> Fault | None:
    called = case.called_problem()
    policy = case.policy
    kernel = compile(
        case.compiled_problem(),
        device,
        case.plan,
        deterministic=policy.deterministic,
        max_workspace=policy.max_workspace,
    )
    operands = make_operands(called, DataKind.INT)
    outcome = judge(called, operands, run_on_device(kernel, operands, problem=called), DataKind.INT)
    if not outcome.comparison.passed:
        return Fault(Kind.WRONG, "", outcome.reason)
    if outcome.overrun:
        return Fault(Kind.OVERRUN, "", outcome.reason)
    return None


def shrink(case: FuzzCase, fault: Fault, device: Device) -> tuple[FuzzCase, Fault]:
    """A smaller case that fails in the same way, and its fault."""
    trials = 0
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(case):
            trials += 1
            if trials > _MOST_TRIALS:
                return case, fault
            found = _same_fault(smaller, fault, device)
            if found is not None:
                case, fault, improved = smaller, found, True
                break
    return case, fault


def _same_fault(case: FuzzCase, fault: Fault, device: Device) -> Fault | None:
    found = run_case(case, device)
    if found is None or (found.kind, found.name) != (fault.kind, fault.name) or found.name == Infeasible.__name__:
        return None
    return found


def _smaller(case: FuzzCase) -> Iterator[FuzzCase]:
    """Cases with one thing simpler, the most telling first."""
    if case.plan is not None:
        yield replace(case, plan=None)
    if case.dynamic:
        yield replace(case, dynamic=False)
    if case.order is not None:
        yield replace(case, order=None)
    if case.policy != ANYTHING:
        yield replace(case, policy=ANYTHING)
    for attributes in _fewer(case.attributes):
        yield replace(case, attributes=attributes)
    if case.bias is not None:
        yield replace(case, bias=None)
    if case.scaling != NO_SCALING:
        yield replace(case, scaling=NO_SCALING)
    if case.dtypes != "f32":
        yield replace(case, dtypes="f32")
    for place, tag in enumerate(case.tags):
        if tag != ANY:
            yield replace(case, tags=(*case.tags[:place], ANY, *case.tags[place + 1 :]))
    for sizes in _smaller_sizes(case.sizes):
        yield replace(case, sizes=sizes)


def _fewer(attributes: AttributeTexts) -> Iterator[AttributeTexts]:
    """Attributes without one of their parts; first without any."""
    if not attributes.is_empty:
        yield NO_ATTRIBUTES
    for name in ("post_ops", "scales", "zero_points"):
        parts = getattr(attributes, name).split("+")
        for place in range(len(parts) if parts[0] else 0):
            yield replace(attributes, **{name: "+".join(parts[:place] + parts[place + 1 :])})


def _smaller_sizes(sizes: ConvSizes | GemmSizes) -> Iterator[ConvSizes | GemmSizes]:
    if isinstance(sizes, GemmSizes):
        for name in ("batch", "m", "n", "k"):
            for value in _below(getattr(sizes, name)):
                yield replace(sizes, **{name: value})
        return
    for name in ("groups", "batch", "inputs", "outputs"):
        for value in _below(getattr(sizes, name)):
            yield replace(sizes, **{name: value})
    if len(sizes.spatial) > 1:
        for place in range(len(sizes.spatial)):
            yield replace(sizes, spatial=sizes.spatial[:place] + sizes.spatial[place + 1 :])
    for place, window in enumerate(sizes.spatial):
        for smaller in _smaller_windows(window):
            yield replace(sizes, spatial=(*sizes.spatial[:place], smaller, *sizes.spatial[place + 1 :]))


def _smaller_windows(window: tuple[int, int, int, int, int, int]) -> Iterator[tuple[int, int, int, int, int, int]]:
    for place, value in enumerate(window):
        least = 0 if place == 4 else 1
        for smaller in _below(value, least):
            changed = (*window[:place], smaller, *window[place + 1 :])
            yield (changed[0], changed[1], changed[2], changed[3], changed[4], changed[5])


def _below(value: int, least: int = 1) -> Iterator[int]:
    """Smaller values, the smallest first."""
    yield from sorted({candidate for candidate in (least, value // 2, value - 1) if least <= candidate < value})
