"""Anchors: another library's computation of the same problem, on the same data, timed beside ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.frontend.operand_terms import problem_terms
from convloom.problem.conv import Conv
from convloom.problem.layout_memory import Array
from convloom.problem.reference import Operands, Problem, Reference
from convloom.runtime.clocks import Clocks
from convloom.runtime.pair_timing import Call, Timer

FLUSH_BYTES = 256 * 2**20
"""Read before a timed call: more than any last-level cache holds. Not written: dirty lines would cost the call time."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the device reached in the same process: operations a second of a large product, bytes a second of a copy."""

    ops: float
    bytes: float
    dtype: DType

    def least_seconds(self, ops: int, nbytes: int) -> float:
        """The roofline's time."""
        return max(ops / self.ops, nbytes / self.bytes)


@dataclass(frozen=True, slots=True)
class Placed:
    """The tensors of a call in the anchor's framework, in the problem's types and layouts; the result is poisoned."""

    first: Any
    second: Any
    result: Any


class Anchor(ABC):
    """One library on one device."""

    name: str
    timer: Timer

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Versions, device and the flags that decide what is compared."""

    @abstractmethod
    def refusal(self, problem: Problem) -> str:
        """Why the library cannot compute this; empty if it can."""

    @abstractmethod
    def place(self, problem: Problem, operands: Operands) -> Placed:
        """The operands in memory of the device."""

    @abstractmethod
    def call(self, problem: Problem, placed: Placed) -> Call:
        """The library's computation on placed tensors."""

    @abstractmethod
    def logical(self, problem: Problem, result: Any) -> Array:
        """A placed result as a logical array of f64 on the host."""

    @property
    def clocks(self) -> Clocks | None:
        """The clock of the device; None where nothing tells it."""
        return None

    def kernels(self, call: Call) -> tuple[str, ...]:
        """Names of the device's kernels that a call runs, in their order; none where the library does not tell."""
        return ()

    @abstractmethod
    def poison(self, result: Any) -> None:
        """Makes a placed result what it was before anybody wrote it."""

    @abstractmethod
    def reference(self, problem: Problem, operands: Operands) -> Reference:
        """The result in fp64 with the sums of magnitudes."""

    @abstractmethod
    def peaks(self, problem: Problem) -> Peaks:
        """What the device reaches in the types of the problem; measured once per type."""


def plain_refusal(problem: Problem) -> str:
    """What no anchor computes."""
    terms = problem_terms(problem)
    if terms.empty:
        return "the result is empty"
    if problem.bias is not None or problem.scaling.alpha or problem.scaling.beta:
        return "anchors compute the bare sums: no bias, alpha or beta"
    return ""


def operand_dtypes(problem: Problem) -> tuple[DType, DType, DType]:
    """Types of both operands and the result."""
    terms = problem_terms(problem)
    return terms.first.dtype, terms.second.dtype, terms.result.dtype


def pads_alike(conv: Conv) -> bool:
    """Whether padding by pad_begin on both sides gives the same number of outputs."""
    for window, inside, outside in zip(conv.windows, conv.in_spatial, conv.out_spatial, strict=True):
        padded = inside.value + 2 * window.pad_begin
        if window.pad_begin < 0 or (padded - window.reach) // window.stride + 1 != outside.value:
            return False
    return True


def refuse_device(anchor: str, device: str, allowed: str) -> IllegalProblem:
    """The error of an anchor that does not run where our kernels do."""
    return IllegalProblem(f"{anchor} runs on {allowed}; got --device {device}; choose another device or --against")
