"""What is known of one layer of a network after it ran on a generated kernel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How a layer's output compares with the reference's."""

    PASSED = "passed"
    MISMATCH = "mismatch"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One node: its problem as text, times in seconds, the largest error, and that error over its bound.

    `reference_seconds` is what the network's own runtime needs for the node (None if not known); `reason` says why a
    layer was skipped or what was wrong with it. A skipped layer has neither time nor error.
    """

    node: str
    operator: str
    problem: str
    verdict: Verdict
    seconds: float | None = None
    reference_seconds: float | None = None
    error: float | None = None
    bound_ratio: float | None = None
    reason: str = ""
