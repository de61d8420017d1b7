"""The text form of kernels: complete, so that `ir.parse` reads back an equal kernel, and meant for reading too.

    kernel tiled_16x16x8
      threads 64
      index 32
      size n[1,]%16
      buffer a f32
      result c f32
      scalar arg0[0,] index = n // 16
      blocks n // 16
      let tile_m[0,] = index(bid % arg0)
      register acc f32x4[8]
      for i[0,1] < 2 unrolled
        write acc[i * 4] = const(0.0, f32, 4)

Names carry their facts where they are bound: [lowest, highest]%divisor. Values are calls: read(buffer, index, lanes,
if_=mask), convert(value, type), splat(value, lanes), add, mul, mad(left, right, addend),
call(function, values.., numbers..), const(number, type, lanes),
parameter(name, type).
"""

from __future__ import annotations

from collections.abc import Iterator

from convloom.dtypes import DType
from convloom.expr import Expr, free_symbols, to_text
from convloom.ir.map_text import map_text
from convloom.ir.ops import (
    Address,
    Allocate,
    Argument,
    Barrier,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Comment,
    Constant,
    Convert,
    Descriptor,
    For,
    If,
    Instruct,
    Kernel,
    LaunchScalar,
    Let,
    MapParameter,
    MultiplyAdd,
    Numbers,
    Pack,
    Parameter,
    Read,
    Registers,
    Splat,
    Statement,
    Value,
    Write,
)
from convloom.ir.rewrite import statement_expressions, statements_in
from convloom.ir.tables import constant_tables
from convloom.ir.verify import bound_symbols

INDENT = "  "
BINARY_NAMES = {BinaryOp.ADD: "add", BinaryOp.MUL: "mul"}


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel as text."""
    lines = [
        f"kernel {kernel.name}",
        f"threads {kernel.threads}",
        *([f"cluster {kernel.cluster}"] if kernel.cluster > 1 else []),
        f"index {kernel.index_bits}",
        *(f"size {named(symbol)}" for symbol in _free_sizes(kernel)),
        *(f"{'result' if buffer.written else 'buffer'} {buffer.name} {buffer.dtype}" for buffer in kernel.buffers),
        *(map_text(item) for item in kernel.maps),
        *(f"table {t.name} = {', '.join(map(str, t.values))}" for t in constant_tables(kernel)),
        *(_scalar(scalar, kernel) for scalar in kernel.scalars),
        f"blocks {to_text(kernel.blocks)}",
        *_body(kernel.body),
    ]
    return "\n".join([lines[0], *(INDENT + line for line in lines[1:])]) + "\n"


def named(symbol: Expr) -> str:
    """A symbol with its facts: n[1,]%16."""
    facts = symbol.facts
    limits = f"[{'' if facts.lo is None else facts.lo},{'' if facts.hi is None else facts.hi}]"
    divisor = f"%{facts.divisor}" if facts.divisor > 1 else ""
    hint = f"~{facts.hint}" if facts.hint is not None else ""
    return f"{symbol.name}{limits}{divisor}{hint}"


def _free_sizes(kernel: Kernel) -> list[Expr]:
    """Problem symbols: whatever is used and neither bound in the body nor a launch argument."""
    arguments = {scalar.name for scalar in kernel.scalars}
    found: set[Expr] = set(free_symbols(kernel.blocks))
    for scalar in kernel.scalars:
        if isinstance(scalar.value, Expr):
            found |= free_symbols(scalar.value)
    for item in kernel.maps:
        for expression in (*item.sizes, *item.strides, item.offset):
            found |= free_symbols(expression)
    for statement in statements_in(kernel.body):
        for expression in statement_expressions(statement):
            found |= {symbol for symbol in free_symbols(expression) if symbol.name not in arguments}
    return sorted(found - bound_symbols(kernel), key=lambda symbol: symbol.name)


def _scalar(scalar: LaunchScalar, kernel: Kernel) -> str:
    if not isinstance(scalar.value, Expr):
        return f"scalar {scalar.name} {scalar.dtype} = {scalar.value}"
    return f"scalar {_argument_name(scalar, kernel)} index = {to_text(scalar.value)}"


def _argument_name(scalar: LaunchScalar, kernel: Kernel) -> str:
    """The launch argument with the facts under which the body knows it."""
    for statement in statements_in(kernel.body):
        for expression in statement_expressions(statement):
            for symbol in free_symbols(expression):
                if symbol.name == scalar.name:
                    return named(symbol)
    return f"{scalar.name}[,]"


def _body(body: tuple[Statement, ...]) -> Iterator[str]:
    for statement in body:
        yield statement_text(statement)
        if isinstance(statement, For | If):
            yield from (INDENT + line for line in _body(statement.body))


def statement_text(statement: Statement) -> str:
    """One line; the body of a loop or condition is not part of it."""
    match statement:
        case Let():
            return f"let {named(statement.variable)} = {_either(statement.value)}"
        case Allocate():
            return f"{statement.buffer.scope.value} {_declared(statement.buffer)}"
        case Write():
            mask = "" if statement.mask is None else f" if {to_text(statement.mask)}"
            verb = "add" if statement.adds else "write"
            return f"{verb} {statement.buffer.name}[{to_text(statement.index)}] = {_either(statement.value)}{mask}"
        case For():
            return f"for {named(statement.variable)} < {to_text(statement.extent)} {statement.kind.value}"
        case If():
            return f"when {to_text(statement.condition)}"
        case Instruct():
            arguments = ", ".join(f"{name}={_argument(item)}" for name, item in statement.arguments)
            return f"do {statement.row.name} ({arguments})"
        case Barrier():
            return "barrier"
        case Comment():
            return f"# {statement.text}"


def _argument(item: Argument) -> str:
    match item:
        case Registers():
            return f"registers({item.buffer.name}, {to_text(item.index)}, {item.count})"
        case Address():
            return f"address({item.buffer.name}, {to_text(item.index)})"
        case Descriptor():
            swizzle = item.swizzle.value
            place = f"{item.buffer.name}, {to_text(item.index)}"
            return f"descriptor({place}, {item.leading}, {item.stride}, {swizzle})"
        case MapParameter():
            return f"map({item.name})"
        case Numbers():
            return f"numbers({', '.join(map(to_text, item.values))})"
        case Expr():
            return f"index({to_text(item)})"


def _declared(buffer: Buffer) -> str:
    lanes = f"x{buffer.lanes}" if buffer.lanes > 1 else ""
    aligned = f" align {buffer.alignment}" if buffer.alignment else ""
    return f"{buffer.name} {buffer.dtype or 'index'}{lanes}[{buffer.size}]{aligned}"


def _either(value: Expr | Value) -> str:
    return f"index({to_text(value)})" if isinstance(value, Expr) else value_text(value)


def value_text(value: Value) -> str:
    """A value as nested calls."""
    match value:
        case Constant():
            return f"const({float(value.value)!r}, {value.dtype}, {value.lanes})"
        case Parameter():
            return f"parameter({value.name}, {value.dtype})"
        case Read():
            mask = "" if value.mask is None else f", if_={to_text(value.mask)}"
            return f"read({value.buffer.name}, {to_text(value.index)}, {value.lanes}{mask})"
        case Convert():
            return f"convert({value_text(value.value)}, {_type(value.dtype)})"
        case Pack():
            return f"pack({value_text(value.value)})"
        case Splat():
            return f"splat({value_text(value.value)}, {value.lanes})"
        case Binary():
            return f"{BINARY_NAMES[value.op]}({value_text(value.left)}, {value_text(value.right)})"
        case MultiplyAdd():
            return f"mad({value_text(value.left)}, {value_text(value.right)}, {value_text(value.addend)})"
        case Call():
            parts = [*map(value_text, value.values), *(repr(float(number)) for number in value.numbers)]
            return f"call({value.function.value}, {', '.join(parts)})"


def _type(dtype: DType) -> str:
    return dtype.name
