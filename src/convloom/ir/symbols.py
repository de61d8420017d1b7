"""Names that every kernel has: which thread and which block is running."""

from __future__ import annotations

from convloom.expr import Expr, sym

BLOCK_ID = sym("bid", lo=0)


def thread_id(threads: int) -> Expr:
    """The index of a thread in its block, with its range as a fact."""
    return sym("tid", lo=0, hi=threads - 1)
