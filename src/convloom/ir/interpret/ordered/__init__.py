"""Kernels whose threads play roles: groups run at their own pace, and what orders them is followed by vector clocks."""

from __future__ import annotations

from convloom.ir.interpret.ordered.roles import needs_order
from convloom.ir.interpret.ordered.run import run_ordered

__all__ = ["needs_order", "run_ordered"]
