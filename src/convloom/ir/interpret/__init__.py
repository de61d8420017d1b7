"""Executes kernels with NumPy, all threads and blocks, and finds what would be undefined or wrong on a device."""

from __future__ import annotations

from convloom.ir.interpret.findings import Finding, FindingKind, Findings, Place
from convloom.ir.interpret.machine import Outcome, interpret
from convloom.ir.interpret.memory import GlobalMemory
from convloom.ir.interpret.options import Options

__all__ = ["Finding", "FindingKind", "Findings", "GlobalMemory", "Options", "Outcome", "Place", "interpret"]
