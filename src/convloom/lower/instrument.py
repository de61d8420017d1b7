"""What hangs outside the passes: verifying, printing and dumping the IR after each."""

from __future__ import annotations

import sys
from itertools import count

from convloom import settings
from convloom.expr import Expr
from convloom.ir.ops import Kernel
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify

_PLAN, _FINAL, _EVERY_PASS = 1, 4, 5
_dump_numbers = count()


def observe(name: str, kernel: Kernel, sizes: frozenset[Expr]) -> None:
    """Called after each pass; what it does follows from the settings `verify`, `debug` and `dump`."""
    chosen = settings.current()
    if chosen.verify or chosen.debug:
        verify(kernel, name, sizes)
    if chosen.debug >= _EVERY_PASS:
        print(f"--- IR after {name}\n{kernel_text(kernel)}", file=sys.stderr)
    if chosen.dump is not None:
        settings.dump(f"{next(_dump_numbers):05}_{kernel.name}_{name}.ir", kernel_text(kernel).encode())


def observe_plan(text: str) -> None:
    """Called with the text of a plan before its kernels are built; prints and dumps it where that is asked for."""
    if settings.current().debug >= _PLAN:
        print(f"convloom: plan {text}", file=sys.stderr)
    if settings.current().dump is not None:
        settings.dump(f"{next(_dump_numbers):05}.plan", text.encode())


def observe_final(kernel: Kernel) -> None:
    """Called when all passes are done; prints the IR unless each pass has printed it already."""
    if settings.current().debug == _FINAL:
        print(f"--- final IR of {kernel.name}\n{kernel_text(kernel)}", file=sys.stderr)
