"""The executable rules of the IR: one check per fact, run after every pass under tests and CONVLOOM_DEBUG."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from convloom.dtypes import F32, F64, S32
from convloom.errors import InternalError
from convloom.expr import Expr, Op, bounds, free_symbols
from convloom.ir.arguments import argument_buffer
from convloom.ir.ops import (
    Address,
    Allocate,
    Barrier,
    Binary,
    Buffer,
    Call,
    Descriptor,
    For,
    If,
    Instruct,
    Kernel,
    Let,
    LoopKind,
    MultiplyAdd,
    Pack,
    Read,
    Registers,
    Scope,
    Statement,
    Value,
    Write,
)
from convloom.ir.rewrite import statement_expressions, statement_values, statements_in
from convloom.ir.symbols import BLOCK_ID, thread_id
from convloom.ir.types import value_type
from convloom.ir.verify_instructions import check_instruction_arguments, check_instruction_rules, check_lanes_together

Body = tuple[Statement, ...]


def verify(kernel: Kernel, after: str, sizes: frozenset[Expr] = frozenset()) -> None:
    """Runs all checks; InternalError names the pass, the rule and the statement.

    `sizes`: problem symbols that the body may still mention.
    """
    for check in CHECKS:
        for problem in check(kernel, sizes):
            raise InternalError(f"after {after}: {problem}; kernel {kernel.name}; report this")


def bound_symbols(kernel: Kernel) -> frozenset[Expr]:
    """Names that the kernel itself gives a value: thread, block, loops and lets."""
    names: set[Expr] = {BLOCK_ID, thread_id(kernel.threads)}
    for statement in statements_in(kernel.body):
        if isinstance(statement, Let | For):
            names.add(statement.variable)
    return frozenset(names)


def check_barriers_uniform(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """A barrier stands under no condition, and in no loop, that depends on the thread."""
    yield from _divergent(kernel.body, frozenset((thread_id(kernel.threads),)), divergent=False)


def _divergent(body: Body, varying: frozenset[Expr], *, divergent: bool) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Barrier) and divergent:
            yield "a barrier must be reached by all threads alike"
        if isinstance(statement, Let) and _depends(statement, varying):
            varying |= {statement.variable}
        if isinstance(statement, For | If):
            control = statement.extent if isinstance(statement, For) else statement.condition
            inner = divergent or bool(free_symbols(control) & varying)
            yield from _divergent(statement.body, varying, divergent=inner)


def _depends(statement: Let, varying: frozenset[Expr]) -> bool:
    expressions = [symbol for expression in statement_expressions(statement) for symbol in free_symbols(expression)]
    from_memory = isinstance(statement.value, Read) and statement.value.buffer.scope is not Scope.CONSTANT
    return from_memory or not varying.isdisjoint(expressions)


def check_buffers_allocated(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Every shared or register buffer is allocated in an enclosing body before it is used."""
    yield from _unallocated(kernel.body, frozenset(kernel.buffers))


def _unallocated(body: Body, known: frozenset[Buffer]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Allocate):
            known |= {statement.buffer}
        for buffer in _touched(statement):
            if buffer.scope is not Scope.CONSTANT and buffer not in known:
                yield f"buffer {buffer.name} is used before it is allocated"
        if isinstance(statement, For | If):
            yield from _unallocated(statement.body, known)


def _touched(statement: Statement) -> Iterator[Buffer]:
    if isinstance(statement, Instruct):
        buffers = (argument_buffer(item) for _, item in statement.arguments)
        yield from (buffer for buffer in buffers if buffer is not None)
    if isinstance(statement, Write):
        yield statement.buffer
    for value in statement_values(statement):
        if isinstance(value, Read):
            yield value.buffer


def check_names_bound(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Every name is a size that is not hoisted yet, a launch argument, or bound in an enclosing body before its use."""
    known = frozenset((BLOCK_ID, thread_id(kernel.threads))) | sizes
    yield from _unbound(kernel.body, known, {scalar.name for scalar in kernel.scalars})


def _unbound(body: Body, known: frozenset[Expr], arguments: set[str]) -> Iterator[str]:
    for statement in body:
        for expression in statement_expressions(statement):
            for symbol in free_symbols(expression) - known:
                if symbol.name not in arguments:
                    yield f"name {symbol.name} is used before it is bound, in {expression!r}"
        if isinstance(statement, Let):
            known |= {statement.variable}
        if isinstance(statement, For):
            yield from _unbound(statement.body, known | {statement.variable}, arguments)
        elif isinstance(statement, If):
            yield from _unbound(statement.body, known, arguments)


def check_local_bounds(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Accesses to shared and register buffers provably stay inside."""
    for statement in statements_in(kernel.body):
        for buffer, index, lanes in _local_accesses(statement):
            limits = bounds(index)
            if limits.lo is None or limits.lo < 0 or limits.hi is None or limits.hi + lanes > buffer.size:
                reach = f"[{limits.lo}, {limits.hi}] of {lanes} lanes"
                yield f"index {index!r} in {reach} may leave {buffer.name}[{buffer.size}]"


def _local_accesses(statement: Statement) -> Iterator[tuple[Buffer, Expr, int]]:
    local = (Scope.SHARED, Scope.REGISTER, Scope.CONSTANT)
    if isinstance(statement, Instruct):
        for _, item in statement.arguments:
            if isinstance(item, Registers | Address | Descriptor) and item.buffer.scope in local:
                yield item.buffer, item.index, item.count if isinstance(item, Registers) else 1
    if isinstance(statement, Write) and statement.buffer.scope in local:
        lanes = 1 if isinstance(statement.value, Expr) else value_type(statement.value).lanes
        yield statement.buffer, statement.index, lanes
    for value in statement_values(statement):
        if isinstance(value, Read) and value.buffer.scope in local:
            yield value.buffer, value.index, value.lanes


def check_types(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Operands of one operation have one type; a store's value has its buffer's type."""
    for statement in statements_in(kernel.body):
        for value in statement_values(statement):
            yield from _mixed(value)
        if isinstance(statement, Write) and not isinstance(statement.value, Expr):
            stored = value_type(statement.value).dtype
            if stored is not statement.buffer.dtype:
                yield f"{statement.buffer.name} holds {statement.buffer.dtype}; {stored} is stored to it"


def _mixed(value: Value) -> Iterator[str]:
    if isinstance(value, Binary | MultiplyAdd):
        parts = (value.left, value.right, *((value.addend,) if isinstance(value, MultiplyAdd) else ()))
        types = {value_type(part) for part in parts}
        if len(types) > 1:
            yield f"operands of one operation must have one type; got {sorted(map(str, types))}"
    if isinstance(value, Pack):
        packed = value_type(value.value)
        if packed.dtype.bits * packed.lanes != 32:
            yield f"a packed word has 32 bits; got {packed.lanes} of {packed.dtype}"
    if isinstance(value, Call):
        given, wanted = (len(value.values), len(value.numbers)), tuple(value.function.arity)
        if given != wanted:
            yield f"{value.function.value} takes {wanted} values and numbers; got {given}"
        if len({value_type(part) for part in value.values}) > 1:
            yield f"values of {value.function.value} must have one type"


_ADDED = frozenset((F32, F64, S32))


def check_atomic_adds(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Atomic additions go to global memory, in types that accumulators have."""
    for statement in statements_in(kernel.body):
        if isinstance(statement, Write) and statement.adds:
            buffer = statement.buffer
            if buffer.scope is not Scope.GLOBAL or buffer.dtype not in _ADDED or not buffer.written:
                yield f"an atomic addition needs a result of f32, f64 or s32; {buffer.name} is {buffer.dtype}"


def check_unrolled_constant(kernel: Kernel, sizes: frozenset[Expr]) -> Iterator[str]:
    """Unrolled loops have a constant extent."""
    for statement in statements_in(kernel.body):
        if isinstance(statement, For) and statement.kind is LoopKind.UNROLLED and statement.extent.op is not Op.CONST:
            yield f"an unrolled loop needs a constant extent; got {statement.extent!r}"


CHECKS: tuple[Callable[[Kernel, frozenset[Expr]], Iterator[str]], ...] = (
    check_types,
    check_buffers_allocated,
    check_names_bound,
    check_local_bounds,
    check_unrolled_constant,
    check_atomic_adds,
    check_instruction_arguments,
    check_instruction_rules,
    check_lanes_together,
    check_barriers_uniform,
)
