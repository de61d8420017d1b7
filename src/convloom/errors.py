"""The exception tree. A message states the rule, the given value and the remedy, in that order."""

from __future__ import annotations


class ConvloomError(Exception):
    """Root of everything convloom raises on purpose."""


class IllegalProblem(ConvloomError, ValueError):
    """The problem or the arguments break a rule of the operation."""


class IllegalType(IllegalProblem, TypeError):
    """An argument has a type (or element type) that the operation never accepts."""


class UnsupportedTarget(ConvloomError):
    """The named device or target is not available here, or lacks what the problem needs."""


class NotYetSupported(ConvloomError, NotImplementedError):
    """A legal request that convloom does not implement yet."""


class OutOfMemory(ConvloomError, MemoryError):
    """A result does not fit the device's memory."""


class Infeasible(ConvloomError):
    """A plan given by hand cannot be built for this problem and target."""


class BuildFailed(ConvloomError):
    """A vendor compiler refused generated source; carries its log."""


class InternalError(ConvloomError, AssertionError):
    """An invariant of convloom itself does not hold; please report the message."""
