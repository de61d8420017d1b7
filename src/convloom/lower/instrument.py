"""What hangs outside the passes: verifying, printing and dumping the IR after each."""

from __future__ import annotations

import sys
from itertools import count

from convloom.expr import Expr
from convloom.ir.ops import Kernel
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify
from convloom.settings import current

_EVERY_PASS = 5
_dump_numbers = count()


def observe(name: str, kernel: Kernel, sizes: frozenset[Expr]) -> None:
    """Called after each pass; what it does follows from the settings `verify`, `debug` and `dump`."""
    settings = current()
    if settings.verify or settings.debug:
        verify(kernel, name, sizes)
    if settings.debug >= _EVERY_PASS:
        print(f"--- IR after {name}\n{kernel_text(kernel)}", file=sys.stderr)
    if settings.dump is not None:
        settings.dump.mkdir(parents=True, exist_ok=True)
        file = settings.dump / f"{next(_dump_numbers):05}_{kernel.name}_{name}.ir"
        file.write_text(kernel_text(kernel), encoding="utf-8")
