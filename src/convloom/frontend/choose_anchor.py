"""Which anchor a name means."""

from __future__ import annotations

from enum import Enum

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.frontend.anchor import Anchor
from convloom.frontend.anchor_numpy import NumpyAnchor
from convloom.frontend.anchor_torch import TorchAnchor


class AnchorName(Enum):
    """The libraries that can be measured against."""

    TORCH = "torch"
    NUMPY = "numpy"


def anchor_named(name: AnchorName, device: str, dtype: DType | None = None, *, tf32: bool = False) -> Anchor:
    """The anchor on a device. IllegalProblem if it does not run there, UnsupportedTarget if it is not installed."""
    if name is AnchorName.TORCH:
        return TorchAnchor(device, dtype, tf32=tf32)
    if dtype is not None or tf32:
        raise IllegalProblem("--anchor-dt and --tf32 are for --against torch; got numpy; leave them out")
    return NumpyAnchor(device)
