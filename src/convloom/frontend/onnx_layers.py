"""Runs the matrix operators of a network on generated kernels and compares each with ONNX Runtime's own output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem, NotYetSupported
from convloom.frontend.compile_ahead import compile_ahead
from convloom.frontend.device_run import DeviceRun, run_on_device
from convloom.frontend.kernel import Kernel
from convloom.frontend.layer_result import LayerResult, Verdict
from convloom.frontend.onnx_network import Network, Observation, OnnxNode
from convloom.frontend.onnx_nodes import NodeCall, node_call
from convloom.problem.numerics import Comparison, compare, error_bound
from convloom.problem.reference import Problem, Reference, reference, result_shape
from convloom.runtime.interface import Device

FOREIGN_FACTOR = 2.0  # another library's result has an error of its own
MEASURE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Layer:
    """A node with its call and kernel, or the reason why it has none."""

    node: OnnxNode
    call: NodeCall | None
    kernel: Kernel | None
    refusal: str = ""


def compile_layers(network: Network, observation: Observation, device: Device) -> Iterator[Layer]:
    """The kernel of every node, in order.

    A node that convloom refuses or cannot do yet has the reason instead; a kernel that fails to build raises.
    """
    calls = {node.name: _call_or_refusal(node, observation) for node in network.nodes}
    possible = [(name, call.problem) for name, call in calls.items() if isinstance(call, NodeCall)]
    kernels = compile_ahead(possible, device)
    for node in network.nodes:
        call = calls[node.name]
        yield _compiled(node, call, next(kernels)[1]) if isinstance(call, NodeCall) else Layer(node, None, None, call)


def check_layer(layer: Layer, observation: Observation, describe: Callable[[Problem], str]) -> LayerResult:
    """Runs one layer on the network's own tensors and compares; `describe` is a problem's text for people."""
    node, call = layer.node, layer.call
    if call is None or layer.kernel is None:
        return LayerResult(node.name, node.operator, "", Verdict.SKIPPED, reason=layer.refusal)
    run = run_on_device(layer.kernel, call.operands, measure_seconds=MEASURE_SECONDS)
    comparison, reason = judge_node(call, run, observation.tensors[node.output])
    return LayerResult(
        node=node.name,
        operator=node.operator,
        problem=describe(call.problem),
        verdict=Verdict.MISMATCH if reason else Verdict.PASSED,
        seconds=run.seconds,
        reference_seconds=observation.seconds.get(node.name),
        error=comparison.max_error,
        bound_ratio=comparison.max_ratio,
        reason=reason,
    )


def _call_or_refusal(node: OnnxNode, observation: Observation) -> NodeCall | str:
    try:
        return node_call(node, [observation.tensors[name] if name else None for name in node.inputs])
    except (IllegalProblem, NotYetSupported) as error:
        return str(error)


def _compiled(node: OnnxNode, call: NodeCall, building: Future[Kernel]) -> Layer:
    try:
        return Layer(node, call, building.result())
    except (IllegalProblem, NotYetSupported) as error:
        return Layer(node, call, None, str(error))


def judge_node(call: NodeCall, run: DeviceRun, foreign: NDArray[Any]) -> tuple[Comparison, str]:
    """The comparison with another library's output of the node, and what is wrong ('' if nothing is).

    The result must lie within twice the bound of the other library's, and within the bound of the fp64 reference: the
    first catches a misread node, the second an error that both libraries make.
    """
    if foreign.shape != call.shape:
        return _nothing_compared(), f"the node's output has shape {foreign.shape}, convloom computes {call.shape}"
    exact = reference(call.problem, call.operands, magnitude=True)
    shaped = np.asarray(foreign, np.float64).reshape(result_shape(call.problem))
    theirs = Reference(shaped, exact.magnitude, exact.length)
    against_theirs = compare(call.problem, run.result, theirs, error_bound(call.problem, theirs, factor=FOREIGN_FACTOR))
    against_exact = compare(call.problem, run.result, exact)
    reasons = [
        _words(against_theirs, "ONNX Runtime's"),
        _words(against_exact, "the exact value"),
        f"memory outside {', '.join(run.overrun)} was written" if run.overrun else "",
    ]
    return against_theirs, "; ".join(filter(None, reasons))


def _words(comparison: Comparison, whose: str) -> str:
    if comparison.passed:
        return ""
    return (
        f"{comparison.mismatches} elements wrong, the first at {comparison.first_bad}: {comparison.given:.9g}, "
        f"{whose} {comparison.expected:.9g}"
    )


def _nothing_compared() -> Comparison:
    return Comparison(np.inf, np.inf, 1, None, np.nan, np.nan)
