"""Faults planted into kernels: each operator yields the kernel changed at one place after another."""

from dataclasses import replace

from convloom.expr import Op, all_of, const, free_symbols, maximum, minimum, rebuild, substitute
from convloom.ir.ops import (
    Address,
    Allocate,
    Barrier,
    Constant,
    Convert,
    For,
    If,
    Instruct,
    Let,
    MultiplyAdd,
    Read,
    Registers,
    Scope,
    Splat,
    Write,
)
from convloom.ir.symbols import BLOCK_ID, thread_id


def mutants(kernel, change):
    """(path of the statement, changed kernel): `change(statement)` yields lists of statements to put instead."""
    for path, body in _changed_bodies(kernel.body, change, "body"):
        yield path, replace(kernel, body=body)


def _changed_bodies(body, change, path):
    for place, statement in enumerate(body):
        here = f"{path}.{place}"
        for instead in change(statement):
            yield here, (*body[:place], *instead, *body[place + 1 :])
        if isinstance(statement, For | If):
            for inner_path, inner in _changed_bodies(statement.body, change, here):
                yield inner_path, (*body[:place], replace(statement, body=inner), *body[place + 1 :])


# --- pieces ---------------------------------------------------------------------------------------------------------


def reads_of(value):
    """The reads inside a value."""
    match value:
        case Read():
            return [value]
        case Convert() | Splat():
            return reads_of(value.value)
        case MultiplyAdd():
            return [read for part in (value.left, value.right, value.addend) for read in reads_of(part)]
        case _:
            return (
                reads_of(value.left) + reads_of(value.right) if hasattr(value, "op") and hasattr(value, "left") else []
            )


def with_read(value, old, new):
    """The value with one read replaced."""
    if value is old:
        return new
    match value:
        case Convert() | Splat():
            return replace(value, value=with_read(value.value, old, new))
        case MultiplyAdd():
            return MultiplyAdd(*(with_read(part, old, new) for part in (value.left, value.right, value.addend)))
        case _ if hasattr(value, "left"):
            return replace(value, left=with_read(value.left, old, new), right=with_read(value.right, old, new))
        case _:
            return value


def is_index(value):
    return hasattr(value, "op") and hasattr(value, "facts")


def each_read(scope, new):
    """An operator that changes every read from a scope: `new(read)` is a list of replacements."""

    def change(statement):
        if not isinstance(statement, Write | Let) or is_index(statement.value):
            return
        for read in reads_of(statement.value):
            if read.buffer.scope is scope:
                for instead in new(read):
                    yield [replace(statement, value=with_read(statement.value, read, instead))]

    return change


def each_write(scope, new):
    def change(statement):
        if isinstance(statement, Write) and statement.buffer.scope is scope:
            for instead in new(statement):
                yield [instead]

    return change


def each(kind, new):
    def change(statement):
        if isinstance(statement, kind):
            yield from new(statement)

    return change


def conjuncts(condition):
    return condition.args if condition.op is Op.AND else (condition,)


def without_one_conjunct(condition):
    parts = conjuncts(condition)
    for place in range(len(parts)):
        rest = parts[:place] + parts[place + 1 :]
        yield all_of(*rest) if rest else None


def widened(condition):
    """Every comparison in turn true for one number more."""
    parts = conjuncts(condition)
    for place, part in enumerate(parts):
        if part.op in (Op.LT, Op.LE):
            wider = rebuild(part, (part.args[0] - 1, part.args[1]))
            yield all_of(*parts[:place], wider, *parts[place + 1 :])


def narrowed(condition):
    parts = conjuncts(condition)
    for place, part in enumerate(parts):
        if part.op in (Op.LT, Op.LE):
            yield all_of(*parts[:place], rebuild(part, (part.args[0] + 1, part.args[1])), *parts[place + 1 :])


def masked(item, masks):
    return [replace(item, mask=mask) for mask in masks(item.mask)] if item.mask is not None else []


def shifted(item):
    return [replace(item, index=item.index + 1)]


def overflowing(item):
    """The same index by way of a product that does not fit 32 bits."""
    return [replace(item, index=item.index + minimum((BLOCK_ID + 2) * 2**30, 0))]


# --- operators ------------------------------------------------------------------------------------------------------


def dropped_barrier(kernel):
    return mutants(kernel, each(Barrier, lambda barrier: [[]]))


def divergent_barrier(kernel):
    thread = thread_id(kernel.threads)
    return mutants(kernel, each(Barrier, lambda barrier: [[If(thread.lt(kernel.threads - 1), (barrier,))]]))


def dropped_initialisation(kernel):
    def change(statement):
        if isinstance(statement, Write) and isinstance(statement.value, Constant):
            yield []

    return mutants(kernel, change)


def lost_sum(kernel):
    """Products replace the accumulator."""

    def change(statement):
        value = getattr(statement, "value", None)
        if isinstance(value, MultiplyAdd):
            zero = Constant(0, value.addend.buffer.dtype, value.addend.lanes)
            yield [replace(statement, value=replace(value, addend=zero))]

    return mutants(kernel, change)


def swapped_operands(kernel):
    """A fragment read from the other operand's tile."""
    tiles = [s.buffer for s in _statements(kernel.body) if isinstance(s, Allocate) and s.buffer.scope is Scope.SHARED]
    other = dict(zip(tiles, reversed(tiles), strict=True))
    return mutants(kernel, each_read(Scope.SHARED, lambda read: [replace(read, buffer=other[read.buffer])]))


def _statements(body):
    for statement in body:
        yield statement
        if isinstance(statement, For | If):
            yield from _statements(statement.body)


def missing_mask(kernel):
    yield from mutants(kernel, each_read(Scope.GLOBAL, lambda read: masked(read, lambda mask: [None])))
    yield from mutants(kernel, each_write(Scope.GLOBAL, lambda write: masked(write, lambda mask: [None])))


def missing_conjunct(kernel):
    yield from mutants(kernel, each_read(Scope.GLOBAL, lambda read: masked(read, without_one_conjunct)))
    yield from mutants(kernel, each_write(Scope.GLOBAL, lambda write: masked(write, without_one_conjunct)))


def wide_mask(kernel):
    yield from mutants(kernel, each_read(Scope.GLOBAL, lambda read: masked(read, widened)))
    yield from mutants(kernel, each_write(Scope.GLOBAL, lambda write: masked(write, widened)))


def narrow_mask(kernel):
    yield from mutants(kernel, each_read(Scope.GLOBAL, lambda read: masked(read, narrowed)))
    yield from mutants(kernel, each_write(Scope.GLOBAL, lambda write: masked(write, narrowed)))


def shifted_index(kernel):
    for scope in (Scope.GLOBAL, Scope.SHARED, Scope.REGISTER):
        yield from mutants(kernel, each_read(scope, shifted))
        yield from mutants(kernel, each_write(scope, shifted))


def overlapping_store(kernel):
    """Two neighbouring threads store to one place."""
    thread = thread_id(kernel.threads)

    def halved(write):
        return [replace(write, index=write.index - thread % 2)]

    yield from mutants(kernel, each_write(Scope.SHARED, halved))
    yield from mutants(kernel, each_write(Scope.GLOBAL, halved))


def wrong_stride(kernel):
    """Later threads' places lie further by one number for each quarter of the threads."""
    thread = thread_id(kernel.threads)

    def skewed(item):
        return [replace(item, index=item.index + thread // (kernel.threads // 4))]

    for scope in (Scope.GLOBAL, Scope.SHARED):
        yield from mutants(kernel, each_read(scope, skewed))
        yield from mutants(kernel, each_write(scope, skewed))


def overflow(kernel):
    for scope in (Scope.GLOBAL, Scope.SHARED):
        yield from mutants(kernel, each_read(scope, overflowing))
        yield from mutants(kernel, each_write(scope, overflowing))


def short_loop(kernel):
    return mutants(kernel, each(For, lambda loop: [[replace(loop, extent=loop.extent - 1)]]))


def long_loop(kernel):
    return mutants(kernel, each(For, lambda loop: [[replace(loop, extent=loop.extent + 1)]]))


def wrong_phase(kernel):
    """The entries of a phase table moved by one."""

    def rotated(read):
        values = read.buffer.values
        if len(set(values)) > 1:
            yield replace(read, buffer=replace(read.buffer, values=(*values[1:], values[0])))

    return mutants(kernel, each_read(Scope.CONSTANT, lambda read: list(rotated(read))))


def phase_beyond(kernel):
    return mutants(kernel, each_read(Scope.CONSTANT, shifted))


def wrong_block(kernel):
    """The second block computes the first one's tile."""
    return mutants(kernel, _substituting(BLOCK_ID, maximum(BLOCK_ID - 1, 0)))


def _substituting(old, new):
    def change(statement):
        if isinstance(statement, Let) and is_index(statement.value) and old in free_symbols(statement.value):
            yield [replace(statement, value=substitute(statement.value, {old: new}))]

    return change


def dropped_guard(kernel):
    return mutants(kernel, each(If, lambda guard: [list(guard.body)]))


def dropped_store(kernel):
    yield from mutants(kernel, each_write(Scope.GLOBAL, lambda write: [replace(write, mask=const(0))]))


# --- instructions ---------------------------------------------------------------------------------------------------


def each_row(prefix, new):
    def change(statement):
        if isinstance(statement, Instruct) and statement.row.name.startswith(prefix):
            yield from new(statement)

    return change


def _with(statement, name, item):
    return replace(statement, arguments=tuple((n, item if n == name else i) for n, i in statement.arguments))


def dropped_commit(kernel):
    return mutants(kernel, each_row("cp.async.commit", lambda row: [[]]))


def dropped_wait(kernel):
    return mutants(kernel, each_row("cp.async.wait", lambda row: [[]]))


def short_wait(kernel):
    """A wait that leaves one group more in flight."""
    return mutants(
        kernel, each_row("cp.async.wait", lambda row: [[_with(row, "pending", dict(row.arguments)["pending"] + 1)]])
    )


def unmasked_copy(kernel):
    return mutants(kernel, each_row("cp.async.c", lambda row: _unmasked(row)))


def _unmasked(row):
    given = dict(row.arguments).get("source_bytes")
    if given is not None and given.op is not Op.CONST:
        yield [_with(row, "source_bytes", const(int(row.row.name.rpartition(".")[2])))]


def wrong_stage(kernel):
    """Copies go to, or fragments come from, the place half a buffer away."""
    return mutants(kernel, each(Instruct, _moved_addresses))


def _moved_addresses(row):
    for name, item in row.arguments:
        if isinstance(item, Address) and item.buffer.scope is Scope.SHARED:
            half = item.buffer.size // 2 // 8 * 8
            yield [_with(row, name, replace(item, index=(item.index + half) % item.buffer.size))]


def stage_in_use(kernel, stages):
    """Copies go to any other stage than the free one: one that is read, or still to be read."""

    def moved(row):
        target = dict(row.arguments).get("destination")
        for step in range(1, stages if target is not None else 1):
            index = (target.index + target.buffer.size // stages * step) % target.buffer.size
            yield [_with(row, "destination", replace(target, index=index))]

    return mutants(kernel, each_row("cp.async.c", moved))


def plain_store(kernel):
    """Atomic additions become stores."""
    return mutants(kernel, each_write(Scope.GLOBAL, lambda write: [replace(write, adds=False)] if write.adds else []))


def shifted_address(kernel):
    """Addresses eight numbers (16 bytes) further, and one."""
    for step in (8, 1):
        yield from mutants(kernel, each(Instruct, lambda row, step=step: _stepped(row, Address, step)))


def wrong_fragment(kernel):
    return mutants(kernel, each(Instruct, lambda row: _stepped(row, Registers, 1)))


def _stepped(row, kind, step):
    for name, item in row.arguments:
        if isinstance(item, kind):
            yield [_with(row, name, replace(item, index=item.index + step))]


def swapped_fragments(kernel):
    def swap(row):
        arguments = dict(row.arguments)
        a, b = arguments["a"], arguments["b"]
        yield [_with(_with(row, "a", replace(b, count=a.count)), "b", replace(a, count=b.count))]

    return mutants(kernel, each_row("mma", swap))


def masked_lane(kernel):
    """One lane takes no part in a matrix instruction."""
    thread = thread_id(kernel.threads)
    return mutants(kernel, each_row("mma", lambda row: [[If(thread.ne(3), (row,))]]))
