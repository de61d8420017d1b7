"""Views: named coordinates mapped to element offsets and validity, and what can be derived from such maps."""

from __future__ import annotations

from convloom.view.flat import Check
from convloom.view.inverse import inverse, invert
from convloom.view.normal import normal_form
from convloom.view.structure import Digits, structure
from convloom.view.transform import (
    OFFSET,
    Affine,
    Axis,
    Broadcast,
    Const,
    Guard,
    Join,
    Modulo,
    Pad,
    PadTo,
    Pass,
    Slice,
    Split,
    Transform,
    Xor,
)
from convloom.view.vector import vector_width
from convloom.view.view import Access, View, checks, compose, strided

__all__ = [
    "OFFSET",
    "Access",
    "Affine",
    "Axis",
    "Broadcast",
    "Check",
    "Const",
    "Digits",
    "Guard",
    "Join",
    "Modulo",
    "Pad",
    "PadTo",
    "Pass",
    "Slice",
    "Split",
    "Transform",
    "View",
    "Xor",
    "checks",
    "compose",
    "inverse",
    "invert",
    "normal_form",
    "strided",
    "structure",
    "vector_width",
]
