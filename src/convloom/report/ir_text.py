"""The IR as indented text for people."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from convloom.expr import Expr, to_text
from convloom.ir.ops import (
    Allocate,
    Barrier,
    Binary,
    Buffer,
    Comment,
    Constant,
    Convert,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    MultiplyAdd,
    Parameter,
    Read,
    Splat,
    Statement,
    Write,
)

_INDENT = "  "


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel: parameters with their types, launch sizes, body."""
    lines = [f"kernel {kernel.name}: {kernel.threads} threads a block, index of {kernel.index_bits} bits"]
    lines += [f"{_INDENT}blocks {to_text(kernel.blocks)}"]
    lines += [
        f"{_INDENT}{'buffer' if not buffer.written else 'result'} {_declared(buffer)}" for buffer in kernel.buffers
    ]
    for scalar in kernel.scalars:
        value = scalar.value if isinstance(scalar.value, str) else to_text(scalar.value)
        lines.append(f"{_INDENT}scalar {scalar.name}: {scalar.dtype or 'index'} = {value}")
    return "\n".join([*lines, *_block(kernel.body, 1)]) + "\n"


def _block(body: tuple[Statement, ...], depth: int) -> Iterator[str]:
    for statement in body:
        yield _INDENT * depth + _statement(statement)
        if isinstance(statement, For | If):
            yield from _block(statement.body, depth + 1)


def _declared(buffer: Buffer) -> str:
    lanes = f"x{buffer.lanes}" if buffer.lanes > 1 else ""
    size = f"[{buffer.size}]" if buffer.size else ""
    return f"{buffer.name}: {buffer.dtype or 'index'}{lanes}{size}"


@singledispatch
def _statement(statement: Any) -> str:
    raise TypeError(f"no text for {type(statement).__name__}")


@_statement.register
def _(statement: Let) -> str:
    return f"{to_text(statement.variable)} = {_value(statement.value)}"


@_statement.register
def _(statement: Allocate) -> str:
    return f"{statement.buffer.scope.value} {_declared(statement.buffer)}"


@_statement.register
def _(statement: Write) -> str:
    mask = "" if statement.mask is None else f" if {to_text(statement.mask)}"
    return f"{statement.buffer.name}[{to_text(statement.index)}] = {_value(statement.value)}{mask}"


@_statement.register
def _(statement: For) -> str:
    kind = "" if statement.kind is LoopKind.SERIAL else f" ({statement.kind.value})"
    return f"for {to_text(statement.variable)} < {to_text(statement.extent)}{kind}:"


@_statement.register
def _(statement: If) -> str:
    return f"if {to_text(statement.condition)}:"


@_statement.register
def _(_: Barrier) -> str:
    return "barrier"


@_statement.register
def _(statement: Comment) -> str:
    return f"# {statement.text}"


@singledispatch
def _value(value: Any) -> str:
    raise TypeError(f"no text for {type(value).__name__}")


@_value.register
def _(value: Expr) -> str:
    return to_text(value)


@_value.register
def _(value: Constant) -> str:
    return f"{value.value:g}" + (f"x{value.lanes}" if value.lanes > 1 else "")


@_value.register
def _(value: Parameter) -> str:
    return value.name


@_value.register
def _(value: Read) -> str:
    lanes = f":{value.lanes}" if value.lanes > 1 else ""
    mask = "" if value.mask is None else f" where {to_text(value.mask)} else 0"
    text = f"{value.buffer.name}[{to_text(value.index)}{lanes}]"
    return f"({text}{mask})" if mask else text


@_value.register
def _(value: Convert) -> str:
    return f"{value.dtype}({_value(value.value)})"


@_value.register
def _(value: Splat) -> str:
    return f"splat{value.lanes}({_value(value.value)})"


@_value.register
def _(value: Binary) -> str:
    return f"({_value(value.left)} {value.op.value} {_value(value.right)})"


@_value.register
def _(value: MultiplyAdd) -> str:
    return f"({_value(value.left)} * {_value(value.right)} + {_value(value.addend)})"
