"""The printer shared by the C-family dialects: statements and values as text; a dialect supplies tables and helpers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convloom.artifact import Language
from convloom.dtypes import DType
from convloom.emit.functions import literal
from convloom.emit.helpers import Helper, HelperKind, vector_name
from convloom.emit.index_text import index_text
from convloom.errors import InternalError
from convloom.expr import Expr, simplify
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
from convloom.ir.tables import constant_tables
from convloom.ir.types import value_type
from convloom.target.asm_text import statement as instruction_statement
from convloom.target.group_multiply import MatrixDescriptor
from convloom.target.instruction import Instruction, OperandKind


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between C, OpenCL C and CUDA C++."""

    barrier: str
    shared_qualifier: str
    spaces: dict[Scope, str]  # suffix of load and store helpers by address space
    unroll: Callable[[int], str]
    element: Callable[[str, int], str]  # text of one lane of a vector
    vector: Callable[[str, list[str]], str]  # text that makes a vector of scalars
    language: Language
    addresses: dict[Scope, str] = field(default_factory=dict[Scope, str])  # an operand's address from a pointer
    descriptor: str = ""  # over {place} and the constant {bits}
    map_address: str = ""  # over {name}
    lane_of: Callable[[str, str], str] | None = None  # text of a lane chosen by an expression


@dataclass(slots=True)
class Printer:
    """Prints statements; collects the helpers and vector types they need."""

    dialect: Dialect
    index_type: str
    helpers: set[Helper] = field(default_factory=set[Helper])
    types: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    shared_offsets: dict[Buffer, int] = field(default_factory=dict[Buffer, int])  # where one space holds all of them
    _lines: list[str] = field(default_factory=list[str])
    _depth: int = 1
    _temporaries: int = 0

    def body(self, statements: tuple[Statement, ...]) -> str:
        """The text of a kernel's statements."""
        self._statements(statements)
        return "\n".join(self._lines)

    # --- statements -------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def _statements(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Comment():
                self._line(f"// {statement.text}")
            case Let():
                self._line(f"const {self.index_type} {statement.variable.name} = {self._integer(statement.value)};")
            case Allocate():
                self._allocate(statement.buffer)
            case Write():
                self._write(statement)
            case For():
                self._for(statement)
            case If():
                self._nested(f"if ({index_text(statement.condition)})", statement.body)
            case Instruct():
                self._line(self._instruction(statement))
            case Barrier():
                self._line(self.dialect.barrier)

    def _nested(self, head: str, body: tuple[Statement, ...]) -> None:
        self._line(f"{head} {{")
        self._depth += 1
        self._statements(body)
        self._depth -= 1
        self._line("}")

    def _for(self, loop: For) -> None:
        name, extent = loop.variable.name, index_text(loop.extent)
        if loop.kind is LoopKind.UNROLLED:
            pragma = self.dialect.unroll(loop.extent.value)
            if pragma:
                self._line(pragma)
        self._nested(f"for ({self.index_type} {name} = 0; {name} < {extent}; ++{name})", loop.body)

    def _allocate(self, buffer: Buffer) -> None:
        if buffer in self.shared_offsets:
            name = self._element_type(buffer)
            offset = self.shared_offsets[buffer]
            self._line(f"{name} *const {buffer.name} = reinterpret_cast<{name} *>(shared_space + {offset});")
            return
        qualifier = self.dialect.shared_qualifier if buffer.scope is Scope.SHARED else ""
        self._line(f"{qualifier}{self._element_type(buffer)} {buffer.name}[{max(buffer.size // buffer.lanes, 1)}];")

    def _element_type(self, buffer: Buffer) -> str:
        return self.index_type if buffer.dtype is None else self._type(buffer.dtype, buffer.lanes)

    def _type(self, dtype: DType, lanes: int) -> str:
        self.types.add((dtype.name, lanes))
        return vector_name(dtype.name, lanes)

    def _instruction(self, statement: Instruct) -> str:
        arguments = {name: self._argument(statement.row, name, item) for name, item in statement.arguments}
        return instruction_statement(statement.row, self.dialect.language, arguments)

    def _argument(self, row: Instruction, name: str, item: Argument) -> list[str]:
        """C expressions of an operand: one per register, an address in the form its space needs, or a number."""
        match item:
            case Expr():
                literal = row.operand(name).kind is OperandKind.IMMEDIATE
                return [index_text(item) if literal else f"(unsigned){index_text(item)}"]
            case Numbers():
                return [f"(unsigned){index_text(value)}" for value in item.values]
            case Registers():
                return [f"{item.buffer.name}[{index_text(simplify(item.index + n))}]" for n in range(item.count)]
            case MapParameter():
                return [self.dialect.map_address.format(name=item.name)]
            case Descriptor():
                place = f"{item.buffer.name} + {index_text(item.index)}"
                bits = MatrixDescriptor(0, item.leading, item.stride, item.swizzle).encode()
                return [self.dialect.descriptor.format(place=place, bits=f"{bits:#x}")]
            case Address():
                place = f"{item.buffer.name} + {index_text(item.index)}"
                return [self.dialect.addresses[item.buffer.scope].format(place)]

    # --- stores -----------------------------------------------------------------------------------------------------

    def _write(self, statement: Write) -> None:
        buffer, index = statement.buffer, statement.index
        if isinstance(statement.value, Expr):
            text, lanes = index_text(statement.value), 1
        else:
            text, lanes = self.value(statement.value), value_type(statement.value).lanes
        guard = "" if statement.mask is None else f"if ({index_text(statement.mask)}) "
        if statement.adds:
            self._add(buffer, index, text, lanes, guard)
        elif buffer.scope is Scope.REGISTER:
            self._write_register(buffer, index, text, lanes, guard)
        elif lanes == 1:
            self._line(f"{guard}{buffer.name}[{index_text(index)}] = {text};")
        else:
            helper = self._helper(
                HelperKind.STORE, buffer_dtype(buffer), lanes, space=self.dialect.spaces[buffer.scope]
            )
            self._line(f"{guard}{helper}({buffer.name} + {index_text(index)}, {text});")

    def _add(self, buffer: Buffer, index: Expr, text: str, lanes: int, guard: str) -> None:
        """One atomic addition a lane."""
        dtype = buffer_dtype(buffer)
        helper = self._helper(HelperKind.ADD, dtype, 1, space=self.dialect.spaces[buffer.scope])
        if lanes == 1:
            self._line(f"{guard}{helper}({buffer.name} + {index_text(index)}, {text});")
            return
        name = f"t{self._temporaries}"
        self._temporaries += 1
        self._line(f"const {self._type(dtype, lanes)} {name} = {text};")
        for lane in range(lanes):
            part = self.dialect.element(name, lane)
            self._line(f"{guard}{helper}({buffer.name} + {index_text(index + lane)}, {part});")

    def _write_register(self, buffer: Buffer, index: Expr, text: str, lanes: int, guard: str) -> None:
        if lanes == buffer.lanes:
            self._line(f"{guard}{buffer.name}[{self._element_index(buffer, index)}] = {text};")
            return
        if buffer.lanes != 1:
            raise InternalError(
                f"a register vector is stored whole; {buffer.name} has {buffer.lanes} lanes, got {lanes}; report this"
            )
        name = f"t{self._temporaries}"
        self._temporaries += 1
        self._line(f"const {self._type(buffer_dtype(buffer), lanes)} {name} = {text};")
        for lane in range(lanes):
            self._line(f"{guard}{buffer.name}[{index_text(index + lane)}] = {self.dialect.element(name, lane)};")

    # --- values -----------------------------------------------------------------------------------------------------

    def _integer(self, value: Expr | Read) -> str:
        if isinstance(value, Expr):
            return index_text(value)
        return f"{value.buffer.name}[{index_text(value.index)}]"

    def value(self, value: Value) -> str:
        """The text of a value."""
        match value:
            case Constant():
                return self._constant(value)
            case Parameter():
                return value.name
            case Read():
                return self._read(value)
            case Convert():
                return self._convert(value)
            case Pack():
                packed = value_type(value.value)
                helper = self._helper(HelperKind.PACK, packed.dtype, packed.lanes)
                return f"{helper}({self.value(value.value)})"
            case Splat():
                helper = self._helper(HelperKind.SPLAT, value_type(value.value).dtype, value.lanes)
                return f"{helper}({self.value(value.value)})"
            case Binary():
                joint = "+" if value.op is BinaryOp.ADD else "*"
                return f"({self.value(value.left)} {joint} {self.value(value.right)})"
            case MultiplyAdd():
                return f"({self.value(value.left)} * {self.value(value.right)} + {self.value(value.addend)})"
            case Call():
                return self._call(value)

    def _constant(self, value: Constant) -> str:
        if value.value == 0:
            return f"{self._helper(HelperKind.ZERO, value.dtype, value.lanes)}()"
        number = literal(value.value, value.dtype)
        if value.lanes == 1:
            return number
        return f"{self._helper(HelperKind.SPLAT, value.dtype, value.lanes)}({number})"

    def _call(self, value: Call) -> str:
        dtype, lanes = value_type(value)
        helper = self._helper(HelperKind.FUNCTION, dtype, lanes, source=value.function.value)
        parts = [*map(self.value, value.values), *(literal(number, dtype) for number in value.numbers)]
        return f"{helper}({', '.join(parts)})"

    def _convert(self, value: Convert) -> str:
        source = value_type(value.value)
        if source.dtype is value.dtype:
            return self.value(value.value)
        helper = self._helper(HelperKind.CONVERT, value.dtype, source.lanes, source=source.dtype.name)
        self._type(source.dtype, source.lanes)
        return f"{helper}({self.value(value.value)})"

    def _read(self, read: Read) -> str:
        text = self._unmasked_read(read)
        if read.mask is None:
            return text
        zero = self._helper(HelperKind.ZERO, buffer_dtype(read.buffer), read.lanes)
        return f"({index_text(read.mask)} ? {text} : {zero}())"

    def _unmasked_read(self, read: Read) -> str:
        buffer, index = read.buffer, read.index
        if buffer.scope is Scope.REGISTER:
            return self._register_read(buffer, index, read.lanes)
        if read.lanes == 1:
            return f"{buffer.name}[{index_text(index)}]"
        helper = self._helper(
            HelperKind.LOAD, buffer_dtype(buffer), read.lanes, space=self.dialect.spaces[buffer.scope]
        )
        return f"{helper}({buffer.name} + {index_text(index)})"

    def _register_read(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        if lanes == buffer.lanes:
            return f"{buffer.name}[{self._element_index(buffer, index)}]"
        if buffer.lanes == 1:
            scalars = [f"{buffer.name}[{index_text(index + lane)}]" for lane in range(lanes)]
            return self.dialect.vector(self._type(buffer_dtype(buffer), lanes), scalars)
        if lanes == 1 and self.dialect.lane_of is not None:
            whole = f"{buffer.name}[{index_text(simplify(index // buffer.lanes))}]"
            return self.dialect.lane_of(whole, index_text(simplify(index % buffer.lanes)))
        raise InternalError(
            f"a register vector is read whole or by lane; {buffer.name}: {buffer.lanes} lanes, got {lanes}; report this"
        )

    def _element_index(self, buffer: Buffer, index: Expr) -> str:
        return index_text(index if buffer.lanes == 1 else simplify(index // buffer.lanes))

    def _helper(self, kind: HelperKind, dtype: DType, lanes: int, source: str = "", space: str = "") -> str:
        self._type(dtype, lanes)
        helper = Helper(kind, dtype.name, lanes, source, space)
        self.helpers.add(helper)
        return helper.name


def parameter_text(kernel: Kernel, buffer: str, integer: str) -> str:
    """The parameter list of an entry point: pointers by a template over {const} {type} {name}, then scalars."""
    words = [
        buffer.format(const="" if item.written else "const ", type=buffer_dtype(item).name, name=item.name)
        for item in kernel.buffers
    ]
    words += [f"const {integer if s.dtype is None else s.dtype.name} {s.name}" for s in kernel.scalars]
    words += [f"const __grid_constant__ tensor_map {item.name}" for item in kernel.maps]
    return ", ".join(words)


def table_text(kernel: Kernel, declaration: str) -> str:
    """The definitions of the constant tables that a kernel reads."""
    return "\n".join(
        f"{declaration} {table.name}[{len(table.values)}] = {{{', '.join(map(str, table.values))}}};"
        for table in constant_tables(kernel)
    )


def buffer_dtype(buffer: Buffer) -> DType:
    """The element type of a buffer of values; InternalError for an array of index integers."""
    if buffer.dtype is None:
        raise InternalError(f"index array {buffer.name} has no element type; read it by Let; report this")
    return buffer.dtype
