"""convloom: convolution and matrix product kernels, generated for the device at hand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convloom.frontend.compile import compile
    from convloom.frontend.dims import dim
    from convloom.frontend.kernel import Kernel

__all__ = ["Kernel", "compile", "dim"]

# Loaded on first use: a part of the library can be used without the others.
_HOMES = {
    "Kernel": "convloom.frontend.kernel",
    "compile": "convloom.frontend.compile",
    "dim": "convloom.frontend.dims",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'convloom' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
