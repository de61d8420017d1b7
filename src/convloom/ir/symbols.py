"""Names that every kernel has: which thread and which block is running."""

from __future__ import annotations

from convloom.expr import Expr, local_sym

BLOCK_ID = local_sym("bid", lo=0)


def thread_id(threads: int) -> Expr:
    """The index of a thread in its block, with its range as a fact."""
    return local_sym("tid", lo=0, hi=threads - 1)
