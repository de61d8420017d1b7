"""The threads of a block become loops, cut at every barrier: how a kernel runs on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convloom.errors import InternalError
from convloom.expr import Expr, const, free_symbols, local_sym
from convloom.ir.ops import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Read,
    Scope,
    Statement,
    Value,
    Write,
)
from convloom.ir.rewrite import map_buffers, statement_expressions, statement_values, statements_in
from convloom.ir.symbols import thread_id

Body = tuple[Statement, ...]


def serialize_work_items(kernel: Kernel) -> Kernel:
    """Replaces barriers by the ends of loops over the threads.

    before:  x = f(tid); barrier; g(x)
    after:   for tid: x[tid] = f(tid)         for tid: g(x[tid])
    requires: barriers stand in control flow that is the same for all threads. ensures: no barrier is left; registers
    that live across one are arrays with an entry per thread; names that are the same for all threads are bound outside
    the loops.
    """
    serializer = _Serializer(kernel)
    body = serializer.outer(kernel.body)
    return replace(kernel, body=(*serializer.allocations(), *body))


def has_barrier(body: Body) -> bool:
    """Whether a barrier stands anywhere in the statements."""
    return any(isinstance(statement, Barrier) for statement in statements_in(body))


@dataclass(frozen=True, slots=True)
class _Use:
    """What one region reads, writes and defines."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    allocates: frozenset[Buffer]
    names: frozenset[Expr]
    defines: frozenset[Expr]


class _Serializer:
    """Rewrites the statements of one kernel; knows which buffers and names live across regions."""

    def __init__(self, kernel: Kernel) -> None:
        self._threads = kernel.threads
        self._thread = thread_id(kernel.threads)
        self._varying: set[Expr] = {self._thread}
        self._find_varying(kernel.body)
        self._uses = [_use(run) for run in _regions(kernel.body)]
        self._crossing = self._crossing_buffers()
        self._saved = self._crossing_names()
        ordered = sorted(self._crossing, key=lambda buffer: buffer.name)
        self._expanded = {buffer: replace(buffer, size=buffer.size * self._threads) for buffer in ordered}
        self._shared = [
            statement.buffer
            for statement in statements_in(kernel.body)
            if isinstance(statement, Allocate) and statement.buffer.scope is Scope.SHARED
        ]

    def allocations(self) -> Body:
        """What must exist for the whole block."""
        buffers = [*self._shared, *self._expanded.values(), *self._saved.values()]
        return tuple(Allocate(buffer) for buffer in buffers)

    def outer(self, body: Body) -> Body:
        """Statements that hold barriers: control flow stays, what lies between barriers is looped over."""
        out: list[Statement] = []
        for part in _cut(body):
            if isinstance(part, tuple):
                out += self._region(part)
            elif isinstance(part, For | If):
                self._check_uniform(part)
                out.append(replace(part, body=self.outer(part.body)))
        return tuple(out)

    def _check_uniform(self, statement: For | If) -> None:
        condition = statement.extent if isinstance(statement, For) else statement.condition
        if free_symbols(condition) & self._varying:
            raise InternalError(f"a barrier must stand in uniform control flow; it is under {condition!r}; report this")

    def _region(self, run: Body) -> list[Statement]:
        uniform = [statement for statement in run if self._is_uniform(statement)]
        rest = tuple(statement for statement in run if not self._is_uniform(statement) and not self._moved(statement))
        if not rest:
            return uniform
        use = _use(rest)
        body = (*self._restored(use), *self._body(rest, use), *self._kept(use))
        return [*uniform, For(self._thread, const(self._threads), body, LoopKind.WORK_ITEMS)]

    def _moved(self, statement: Statement) -> bool:
        return isinstance(statement, Allocate) and (
            statement.buffer.scope is Scope.SHARED or statement.buffer in self._crossing
        )

    def _is_uniform(self, statement: Statement) -> bool:
        return isinstance(statement, Let) and statement.variable not in self._varying

    # --- names ------------------------------------------------------------------------------------------------------

    def _find_varying(self, body: Body) -> None:
        """Names that differ between threads, or between iterations of a loop inside a region."""
        for statement in body:
            if isinstance(statement, Let) and _mentions(statement) & self._varying:
                self._varying.add(statement.variable)
            if isinstance(statement, Let) and isinstance(statement.value, Read):
                self._note_read(statement)
            if isinstance(statement, For | If):
                if isinstance(statement, For) and not has_barrier(statement.body):
                    self._varying.add(statement.variable)
                self._find_varying(statement.body)

    def _note_read(self, statement: Let) -> None:
        value = statement.value
        if isinstance(value, Read) and value.buffer.scope is not Scope.CONSTANT:
            self._varying.add(statement.variable)

    def _crossing_names(self) -> dict[Expr, Buffer]:
        saved: dict[Expr, Buffer] = {}
        for use in self._uses:
            for name in sorted((use.names - use.defines) & self._varying - {self._thread}, key=lambda e: e.name):
                if any(name in other.defines for other in self._uses):
                    saved[name] = Buffer(f"{name.name}_saved", None, Scope.REGISTER, self._threads)
        return saved

    def _restored(self, use: _Use) -> list[Statement]:
        names = [name for name in self._saved if name in use.names and name not in use.defines]
        return [Let(name, Read(self._saved[name], self._thread)) for name in names]

    def _kept(self, use: _Use) -> list[Statement]:
        names = [name for name in self._saved if name in use.defines]
        return [Write(self._saved[name], self._thread, name) for name in names]

    # --- registers --------------------------------------------------------------------------------------------------

    def _crossing_buffers(self) -> frozenset[Buffer]:
        crossing: set[Buffer] = set()
        for use in self._uses:
            touched = {buffer for buffer in use.reads | use.writes if buffer.scope is Scope.REGISTER}
            crossing |= touched - use.allocates
        return frozenset(crossing)

    def _body(self, run: Body, use: _Use) -> Body:
        """The region with expanded registers.

        What it both reads and writes goes through a local copy that a compiler can keep in registers while it loops.
        """
        both = sorted(use.reads & use.writes & self._crossing, key=lambda buffer: buffer.name)
        local = {buffer: replace(buffer, name=f"{buffer.name}_local") for buffer in both if buffer.dtype is not None}
        copies_in = [statement for buffer, own in local.items() for statement in self._copy(buffer, own, inward=True)]
        copies_out = [statement for buffer, own in local.items() for statement in self._copy(buffer, own, inward=False)]

        def place(buffer: Buffer, index: Expr) -> tuple[Buffer, Expr]:
            if buffer in local:
                return local[buffer], index
            if buffer in self._expanded:
                return self._expanded[buffer], index + self._thread * buffer.size
            return buffer, index

        return (*copies_in, *map_buffers(run, place), *copies_out)

    def _copy(self, buffer: Buffer, local: Buffer, *, inward: bool) -> list[Statement]:
        number = local_sym("copy_i", lo=0, hi=buffer.size // buffer.lanes - 1)
        at = number * buffer.lanes
        everywhere = at + self._thread * buffer.size
        wide = self._expanded[buffer]
        if inward:
            body = Write(local, at, Read(wide, everywhere, buffer.lanes))
            allocate: list[Statement] = [Allocate(local)]
        else:
            body = Write(wide, everywhere, Read(local, at, buffer.lanes))
            allocate = []
        return [*allocate, For(number, const(buffer.size // buffer.lanes), (body,), LoopKind.UNROLLED)]


def _cut(body: Body) -> list[Body | Statement]:
    """Runs of statements without barriers, and the control flow that holds barriers."""
    parts: list[Body | Statement] = []
    run: list[Statement] = []
    for statement in body:
        holds = isinstance(statement, For | If) and has_barrier(statement.body)
        if not holds and not isinstance(statement, Barrier):
            run.append(statement)
            continue
        if run:
            parts.append(tuple(run))
            run = []
        if holds:
            parts.append(statement)
    return [*parts, tuple(run)] if run else parts


def _regions(body: Body) -> list[Body]:
    regions: list[Body] = []
    for part in _cut(body):
        if isinstance(part, tuple):
            regions.append(part)
        elif isinstance(part, For | If):
            regions += _regions(part.body)
    return regions


def _mentions(statement: Statement) -> frozenset[Expr]:
    return frozenset[Expr]().union(*(free_symbols(expression) for expression in statement_expressions(statement)))


def _use(run: Body) -> _Use:
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    allocates: set[Buffer] = set()
    names: set[Expr] = set()
    defines: set[Expr] = set()
    for statement in statements_in(run):
        names |= _mentions(statement)
        reads |= {value.buffer for value in _reads(statement)}
        match statement:
            case Write():
                writes.add(statement.buffer)
            case Allocate():
                allocates.add(statement.buffer)
            case Let() | For():
                defines.add(statement.variable)
            case _:
                pass
    buffers = frozenset(reads), frozenset(writes), frozenset(allocates)
    return _Use(*buffers, frozenset(names), frozenset(defines))


def _reads(statement: Statement) -> list[Read]:
    values: list[Value] = list(statement_values(statement))
    return [value for value in values if isinstance(value, Read)]
