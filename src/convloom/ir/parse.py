"""Reads the text form of kernels back (see `ir.text`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from convloom.dtypes import DType, dtype_named
from convloom.errors import IllegalProblem
from convloom.expr import Expr, local_sym, parse, sym
from convloom.ir.functions import Function
from convloom.ir.map_text import parse_map
from convloom.ir.ops import (
    Address,
    Allocate,
    Argument,
    Barrier,
    Binary,
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
    LoopKind,
    MapParameter,
    MultiplyAdd,
    Numbers,
    Pack,
    Parameter,
    Read,
    Registers,
    Scope,
    Splat,
    Statement,
    Value,
    Write,
)
from convloom.ir.symbols import BLOCK_ID, thread_id
from convloom.ir.text import BINARY_NAMES, INDENT
from convloom.target.catalogue import row_named
from convloom.target.swizzle import Swizzle

_NAMED = re.compile(r"(\w+)\[(-?\d*),(-?\d*)\](?:%(\d+))?(?:~(\d+))?")
_DECLARED = re.compile(r"(\w+) ([a-z]+\w*?)(?:x(\d+))?\[(\d+)\](?: align (\d+))?")
_FOR = re.compile(r"for (\S+) < (.+) (\w+)")
_WRITE = re.compile(r"(?:write|add) (\w+)\[(.+?)\] = (.+)")
_OPERATIONS = {name: op for op, name in BINARY_NAMES.items()}


def parse_kernel(text: str) -> Kernel:
    """The kernel of a text; IllegalProblem quotes the line that breaks the form."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _Reader(lines).kernel()


@dataclass(slots=True)
class _Reader:
    """Walks over the lines; names and buffers are known from their definitions on."""

    lines: list[str]
    place: int = 0
    sizes: dict[str, Expr] = field(default_factory=dict[str, Expr])  # problem symbols, which only the host knows
    names: dict[str, Expr] = field(default_factory=dict[str, Expr])
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    scalars: list[LaunchScalar] = field(default_factory=list[LaunchScalar])
    maps: dict[str, MapParameter] = field(default_factory=dict[str, MapParameter])

    def kernel(self) -> Kernel:
        name = self._after("kernel ")
        threads = int(self._after("threads "))
        cluster = int(self._after("cluster ")) if self._peek().startswith("cluster ") else 1
        index_bits = int(self._after("index "))
        self.names.update({"tid": thread_id(threads), "bid": BLOCK_ID})
        self._header()
        parameters = tuple(buffer for buffer in self.buffers.values() if buffer.scope is Scope.GLOBAL)
        blocks = parse(self._after("blocks "), self.sizes)
        body, maps = self._body(1), tuple(self.maps.values())
        return Kernel(name, parameters, tuple(self.scalars), threads, blocks, index_bits, body, maps, cluster)

    # --- lines ------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self.lines[self.place].strip() if self.place < len(self.lines) else ""

    def _after(self, word: str) -> str:
        line = self._peek()
        if not line.startswith(word):
            raise self._wrong(f"a line that starts with {word.strip()!r}")
        self.place += 1
        return line[len(word) :]

    def _wrong(self, expected: str) -> IllegalProblem:
        return IllegalProblem(
            f"a kernel text needs {expected} here; got {self._peek()!r} (line {self.place + 1}); correct it"
        )

    def _header(self) -> None:
        readers: dict[str, Callable[[str], None]] = {
            "size": self._size,
            "buffer": lambda rest: self._parameter(rest, written=False),
            "result": lambda rest: self._parameter(rest, written=True),
            "table": self._table,
            "map": self._map,
            "scalar": self._scalar,
        }
        while (word := self._peek().split(" ", 1)[0]) in readers:
            readers[word](self._after(f"{word} "))

    def _bind(self, symbol: Expr) -> Expr:
        self.names[symbol.name] = symbol
        return symbol

    def _size(self, rest: str) -> None:
        size = self._facts(rest, sym)
        self.sizes[size.name] = size

    def _symbol(self, text: str) -> Expr:
        return self._facts(text, local_sym)

    def _facts(self, text: str, make: Callable[..., Expr]) -> Expr:
        match = _NAMED.fullmatch(text)
        if match is None:
            raise IllegalProblem(f"a name is written name[lowest,highest]%divisor; got {text!r}; correct it")
        name, low, high, by, hint = match.groups()
        typical = {"hint": int(hint)} if hint else {}
        lowest, highest = int(low) if low else None, int(high) if high else None
        return make(name, divisor=int(by or 1), lo=lowest, hi=highest, **typical)

    def _parameter(self, rest: str, *, written: bool) -> None:
        name, dtype = rest.split()
        self.buffers[name] = Buffer(name, dtype_named(dtype), Scope.GLOBAL, written=written)

    def _table(self, rest: str) -> None:
        name, _, numbers = rest.partition(" = ")
        values = tuple(int(number) for number in numbers.split(","))
        self.buffers[name] = Buffer(name, None, Scope.CONSTANT, len(values), values=values)

    def _map(self, rest: str) -> None:
        found = parse_map(rest, self.buffers, lambda text: parse(text, self.sizes))
        self.maps[found.name] = found

    def _scalar(self, rest: str) -> None:
        head, _, value = rest.partition(" = ")
        name, kind = head.split()
        if kind != "index":
            self.scalars.append(LaunchScalar(name, value, dtype_named(kind)))
            return
        expression = parse(value, self.sizes)
        symbol = self._bind(self._symbol(name))
        self.scalars.append(LaunchScalar(symbol.name, expression, None))

    # --- statements -------------------------------------------------------------------------------------------------

    def _body(self, depth: int) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        while self.place < len(self.lines) and self._depth() == depth:
            statements.append(self._statement(depth))
        if self.place < len(self.lines) and self._depth() > depth:
            raise self._wrong(f"indentation of at most {depth} steps")
        return tuple(statements)

    def _depth(self) -> int:
        line = self.lines[self.place]
        return (len(line) - len(line.lstrip())) // len(INDENT)

    def _statement(self, depth: int) -> Statement:
        word, _, rest = self._peek().partition(" ")
        reader = _STATEMENTS.get(word)
        if reader is None:
            raise self._wrong(f"one of {', '.join(_STATEMENTS)}")
        return reader(self, rest, depth)

    def let(self, rest: str, depth: int) -> Statement:
        self.place += 1
        name, _, value = rest.partition(" = ")
        symbol = self._symbol(name)
        bound = self._either(value)
        self._bind(symbol)
        if not isinstance(bound, Expr | Read):
            raise IllegalProblem(f"a name is bound to an index or a read; got {value!r}; correct it")
        return Let(symbol, bound)

    def allocate(self, rest: str, depth: int) -> Statement:
        scope = Scope(self._peek().split(" ", 1)[0])
        self.place += 1
        match = _DECLARED.fullmatch(rest)
        if match is None:
            raise IllegalProblem(f"an allocation is written name type[size]; got {rest!r}; correct it")
        name, kind, lanes, size, alignment = match.groups()
        dtype = None if kind == "index" else dtype_named(kind)
        buffer = Buffer(name, dtype, scope, int(size), int(lanes or 1), alignment=int(alignment or 0))
        self.buffers[name] = buffer
        return Allocate(buffer)

    def write(self, rest: str, depth: int) -> Statement:
        line = self._peek()
        match = _WRITE.fullmatch(line)
        if match is None:
            raise self._wrong("write (or add) buffer[index] = value if mask")
        self.place += 1
        value, _, mask = match[3].rpartition(") if ")
        text = f"{value})" if value else match[3]
        return Write(
            self.buffers[match[1]],
            self._expression(match[2]),
            self._either(text),
            self._expression(mask) if value else None,
            adds=line.startswith("add "),
        )

    def loop(self, rest: str, depth: int) -> Statement:
        match = _FOR.fullmatch(f"for {rest}")
        if match is None:
            raise self._wrong("for name[lowest,highest] < extent kind")
        self.place += 1
        extent = self._expression(match[2])
        variable = self._bind(self._symbol(match[1]))
        return For(variable, extent, self._body(depth + 1), LoopKind(match[3]))

    def when(self, rest: str, depth: int) -> Statement:
        self.place += 1
        return If(self._expression(rest), self._body(depth + 1))

    def instruct(self, rest: str, depth: int) -> Statement:
        self.place += 1
        name, _, arguments = rest.partition(" (")
        call = ast.parse(f"f({arguments}", mode="eval").body
        assert isinstance(call, ast.Call)
        return Instruct(row_named(name), tuple((str(word.arg), self._argument(word.value)) for word in call.keywords))

    def _argument(self, node: ast.expr) -> Argument:
        name = _called(node)
        if not isinstance(node, ast.Call) or name not in _ARGUMENTS:
            known = ", ".join(_ARGUMENTS)
            raise IllegalProblem(f"an argument is one of {known}; got {ast.unparse(node)!r}; correct it")
        return _ARGUMENTS[name](self, node)

    def buffer_and_index(self, call: ast.Call) -> tuple[Buffer, Expr]:
        return self.buffers[ast.unparse(call.args[0])], self._index(call, 1)

    def descriptor(self, call: ast.Call) -> Argument:
        leading, stride, swizzle = (_integer(node) for node in call.args[2:])
        return Descriptor(*self.buffer_and_index(call), leading, stride, Swizzle(swizzle))

    def numbers(self, call: ast.Call) -> Argument:
        return Numbers(tuple(self._index(call, place) for place in range(len(call.args))))

    def first_index(self, call: ast.Call) -> Argument:
        return self._index(call, 0)

    def barrier(self, rest: str, depth: int) -> Statement:
        self.place += 1
        return Barrier()

    def comment(self, rest: str, depth: int) -> Statement:
        self.place += 1
        return Comment(rest)

    # --- values -----------------------------------------------------------------------------------------------------

    def _expression(self, text: str) -> Expr:
        return parse(text, {**self.sizes, **self.names})

    def _either(self, text: str) -> Expr | Value:
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise IllegalProblem(f"a value is written as nested calls; got {text!r}; correct it") from None
        if _called(node) == "index":
            return self._index(node, 0)
        return self.value(node)

    def _index(self, call: ast.expr, place: int) -> Expr:
        assert isinstance(call, ast.Call)
        return self._expression(ast.unparse(call.args[place]))

    def value(self, node: ast.expr) -> Value:
        name = _called(node)
        if not isinstance(node, ast.Call) or (name not in _VALUES and name not in _OPERATIONS):
            raise IllegalProblem(
                f"a value is one of {', '.join((*_VALUES, *_OPERATIONS))}; got {ast.unparse(node)!r}; correct it"
            )
        if name in _OPERATIONS:
            return Binary(_OPERATIONS[name], self.value(node.args[0]), self.value(node.args[1]))
        return _VALUES[name](self, node)

    def call_value(self, call: ast.Call) -> Value:
        function = Function(ast.unparse(call.args[0]).strip("_"))
        count = function.arity.values
        values = tuple(self.value(argument) for argument in call.args[1 : 1 + count])
        return Call(function, values, tuple(float(ast.unparse(argument)) for argument in call.args[1 + count :]))

    def read_value(self, call: ast.Call) -> Value:
        mask = self._expression(ast.unparse(call.keywords[0].value)) if call.keywords else None
        return Read(self.buffers[ast.unparse(call.args[0])], self._index(call, 1), _integer(call.args[2]), mask)


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _integer(node: ast.expr) -> int:
    return int(ast.unparse(node))


def _dtype(node: ast.expr) -> DType:
    return dtype_named(ast.unparse(node))


_STATEMENTS: dict[str, Callable[[_Reader, str, int], Statement]] = {
    "let": _Reader.let,
    "shared": _Reader.allocate,
    "register": _Reader.allocate,
    "write": _Reader.write,
    "add": _Reader.write,
    "for": _Reader.loop,
    "when": _Reader.when,
    "do": _Reader.instruct,
    "barrier": _Reader.barrier,
    "#": _Reader.comment,
}
_VALUES: dict[str, Callable[[_Reader, ast.Call], Value]] = {
    "const": lambda reader, call: Constant(
        float(ast.unparse(call.args[0])), _dtype(call.args[1]), _integer(call.args[2])
    ),
    "parameter": lambda reader, call: Parameter(ast.unparse(call.args[0]), _dtype(call.args[1])),
    "read": _Reader.read_value,
    "call": _Reader.call_value,
    "convert": lambda reader, call: Convert(reader.value(call.args[0]), _dtype(call.args[1])),
    "pack": lambda reader, call: Pack(reader.value(call.args[0])),
    "splat": lambda reader, call: Splat(reader.value(call.args[0]), _integer(call.args[1])),
    "mad": lambda reader, call: MultiplyAdd(*(reader.value(argument) for argument in call.args)),
}
_ARGUMENTS: dict[str, Callable[[_Reader, ast.Call], Argument]] = {
    "registers": lambda reader, call: Registers(*reader.buffer_and_index(call), _integer(call.args[2])),
    "address": lambda reader, call: Address(*reader.buffer_and_index(call)),
    "descriptor": _Reader.descriptor,
    "map": lambda reader, call: reader.maps[ast.unparse(call.args[0])],
    "numbers": _Reader.numbers,
    "index": _Reader.first_index,
}
