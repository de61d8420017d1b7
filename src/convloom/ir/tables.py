"""Finds the constant tables that a kernel reads."""

from __future__ import annotations

from convloom.ir.ops import Buffer, Kernel, Read, Scope
from convloom.ir.rewrite import statement_values, statements_in


def constant_tables(kernel: Kernel) -> tuple[Buffer, ...]:
    """Every CONSTANT buffer that a statement reads, in order of first use."""
    found: dict[Buffer, None] = {}
    for statement in statements_in(kernel.body):
        for value in statement_values(statement):
            if isinstance(value, Read) and value.buffer.scope is Scope.CONSTANT:
                found[value.buffer] = None
    return tuple(found)
