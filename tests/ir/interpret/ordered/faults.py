"""Faults planted into kernels of roles: each yields the kernel changed at one place after another."""

from dataclasses import replace

from convloom.expr import Expr, const
from convloom.ir.ops import Numbers, Write
from tests.ir.interpret.mutations import each_row, mutants


def with_argument(statement, name, item):
    return replace(statement, arguments=tuple((n, item if n == name else i) for n, i in statement.arguments))


def dropped(prefix):
    return lambda kernel: mutants(kernel, each_row(prefix, lambda row: [[]]))


def changed(prefix, name, change):
    """The argument `name` of rows with a prefix changed."""

    def apply(row):
        item = dict(row.arguments)[name]
        yield [with_argument(row, name, change(item))]

    return lambda kernel: mutants(kernel, each_row(prefix, apply))


def next_stage(item):
    """Half of a buffer further: another stage of two."""
    return replace(item, index=(item.index + item.buffer.size // 2) % item.buffer.size)


def unswizzled(kernel):
    from convloom.target.swizzle import Swizzle

    for name in "ab":
        yield from changed("wgmma.m64", name, lambda item: replace(item, swizzle=Swizzle.B64))(kernel)


def shifted_coordinates(item):
    first, *rest = item.values
    return Numbers((first, *(value + 8 for value in rest)))


def overlapping_store(kernel):
    """Two warps write the same rows of the tile that is stored."""
    from convloom.ir.symbols import thread_id

    thread = thread_id(kernel.threads)

    def change(statement):
        if isinstance(statement, Write) and statement.buffer.name == "c_tile":
            yield [replace(statement, index=statement.index - thread // 32 % 2 * (16 * 32))]

    return mutants(kernel, change)


FAULTS = {
    "fence of barrier initialisation": dropped("fence.mbarrier_init"),
    "fence of registers": dropped("wgmma.fence"),
    "fence between proxies": dropped("fence.proxy"),
    "phase of full": changed("mbarrier.wait", "parity", lambda item: 1 - item),
    "stage of a copy": changed("cp.async.bulk.tensor.2d.tile.load", "destination", next_stage),
    "stage of a copy's barrier": changed("cp.async.bulk.tensor.2d.tile.load", "barrier", next_stage),
    "stage of an operand": lambda kernel: (
        pair for name in "ab" for pair in changed("wgmma.m64", name, next_stage)(kernel)
    ),
    "stage of a wait": changed("mbarrier.wait", "barrier", next_stage),
    "stage given back": changed("mbarrier.arrive", "barrier", next_stage),
    "bytes expected, fewer": changed("mbarrier.arrive.expect_tx", "nbytes", lambda item: item - 4096),
    "bytes expected, more": changed("mbarrier.arrive.expect_tx", "nbytes", lambda item: item + 16),
    "bytes of one copy only": changed("mbarrier.arrive.expect_tx", "nbytes", lambda item: const(8192)),
    "wait for a stage": dropped("mbarrier.wait"),
    "arrival": dropped("mbarrier.arrive"),
    "count of arrivals": changed("mbarrier.init", "count", lambda item: item + 1),
    "commit of multiplies": dropped("wgmma.commit"),
    "wait for multiplies": dropped("wgmma.wait"),
    "short wait for multiplies": changed("wgmma.wait", "pending", lambda item: item + 1),
    "commit of stores": dropped("cp.async.bulk.commit"),
    "wait for stores": dropped("cp.async.bulk.wait"),
    "short wait for stores": changed("cp.async.bulk.wait", "pending", lambda item: item + 1),
    "named barrier": dropped("bar.sync"),
    "threads of a named barrier": changed("bar.sync", "threads", lambda item: item + 32),
    "swizzle of an operand": unswizzled,
    "coordinates": changed("cp.async.bulk.tensor", "coordinates", shifted_coordinates),
    "dropped copy": dropped("cp.async.bulk.tensor"),
    "accumulation": changed("wgmma.m64", "accumulate", lambda item: 1 - item if isinstance(item, Expr) else item),
    "overlapping store": overlapping_store,
}

# A later stage than needed is waited for, or an earlier step's end given back by the next: with two stages and waits
# in order both are as safe as the right one.
EQUIVALENT = {("stage of a wait", "body.8.1.0.1.2"), ("stage given back", "body.9.2.1.10.0")}
