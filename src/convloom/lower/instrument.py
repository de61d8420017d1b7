"""What hangs outside the passes: verifying, printing and dumping the IR after each."""

from __future__ import annotations

import sys
from itertools import count

from convloom import settings
from convloom.expr import Expr
from convloom.ir.ops import Kernel
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify

_EVERY_PASS = 5
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
