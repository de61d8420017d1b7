"""Whether a tiled plan can be built for a contraction and target: rules that return reasons."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from convloom.dtypes import F32, DType, holds
from convloom.expr import free_symbols
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.epilogue_access import varies_along_n
from convloom.plan.flat_axis import MASKED_IN_FACTORS, MASKED_IN_RESULT, Merged
from convloom.plan.grid_plan import GridPlan
from convloom.plan.products import Products, products_of
from convloom.plan.shared_layout import (
    SharedLayout,
    lines_along_k,
    matrix_swizzle,
    shared_bytes,
    stored_type,
    tile_layouts,
    widest_swizzle,
)
from convloom.plan.split import Reduction
from convloom.plan.tiled import SCALAR, Along, TiledPlan, Transfer
from convloom.problem.contraction import AxisKind, Contraction
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.fragment_access import MATRIX_LINE_BYTES, Way, columns_together, run_length, way_of
from convloom.target.instruction import Family, Instruction
from convloom.target.number_format import TF32

_MOST_LANES = 16  # of OpenCL's vectors

Check = Callable[[TiledPlan, Contraction, Target], str | None]


def broken_rule(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """The first rule that a plan breaks for a contraction that is oriented as it says; None for a legal plan."""
    for rule in RULES:
        reason = rule(plan, contraction, target)
        if reason is not None:
            return reason
    return None


def check_resources(plan: TiledPlan, acc: DType, target: Target) -> str | None:
    """The rules that depend on tile sizes and the accumulator's type alone; cheap enough for every candidate."""
    if plan.threads > target.max_threads:
        return f"a block has at most {target.max_threads} threads on {target.name}; this plan has {plan.threads}"
    shared = shared_bytes(plan, acc)
    if shared > target.max_shared_bytes:
        return (
            f"a block has {target.max_shared_bytes} bytes of shared memory on {target.name}; this plan needs {shared}"
        )
    words = plan.registers() * max(acc.nbytes // 4, 1) // plan.lanes
    if words > target.max_registers:
        return f"a thread has {target.max_registers} registers on {target.name}; this plan needs about {words}"
    return None


def axes_covered(plan: GridPlan, contraction: Contraction, target: Target) -> str | None:
    """The plan's axes are the contraction's."""
    for kind, names in (
        (AxisKind.G, plan.g),
        (AxisKind.M, plan.m),
        (AxisKind.N, plan.n),
        (AxisKind.K, plan.serial + plan.merged),
    ):
        wanted = sorted(axis.name for axis in contraction.of_kind(kind))
        if sorted(names) != wanted:
            return f"the {kind.value} axes of a plan are those of the contraction, {wanted}; got {sorted(names)}"
    return None


def _tiles_divide(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    pairs = (
        ("block_m", plan.block_m, "thread_m", plan.thread_m),
        ("block_n", plan.block_n, "thread_n", plan.thread_n),
        ("thread_m", plan.thread_m, "chunk_m", plan.chunk_m),
        ("thread_n", plan.thread_n, "chunk_n", plan.chunk_n),
        ("chunk_n", plan.chunk_n, "lanes", plan.lanes),
        ("chunk_n", plan.chunk_n, "store", plan.store),
    )
    for whole_name, whole, part_name, part in pairs:
        if whole % part:
            return f"{part_name} must divide {whole_name}; got {part} and {whole}"
    return None


def _groups_share_k(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    depth = 1 if plan.instruction is None else plan.instruction.shape[2]
    if plan.k_groups > 1 and plan.block_k % (plan.k_groups * depth):
        return (
            f"the {plan.k_groups} K groups of a block take equal shares of a K tile, multiples of {depth}; "
            f"block_k is {plan.block_k}"
        )
    return None


def _atomic_types(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.split.how is Reduction.ATOMIC and contraction.acc.bits not in target.atomic_bits:
        return f"{target.name} adds numbers of {target.atomic_bits} bits atomically; sums are {contraction.acc}"
    return None


def _powers_of_two(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """Vectors of other lengths are no types of the languages; fragments that one thread reads at once end at 16."""
    sizes = (
        ("chunk_m", plan.chunk_m, _MOST_LANES),
        ("chunk_n", plan.chunk_n // plan.lanes, _MOST_LANES),
        ("the vector of transfer a", plan.a.vector, None),
        ("the vector of transfer b", plan.b.vector, None),
        ("store", plan.store, None),
    )
    for name, size, most in sizes:
        if size < 1 or size & (size - 1) or (most is not None and size > most):
            limit = "" if most is None else f" up to {most}"
            return f"{name} must be a power of two{limit}; got {size}"
    return None


def _vectors_divide(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    for name, transfer, rows in (("a", plan.a, plan.block_m), ("b", plan.b, plan.block_n)):
        length = rows if transfer.along is Along.ROW else plan.block_k
        if length % transfer.vector:
            return f"the vector of transfer {name} must divide the tile along it; got {transfer.vector} and {length}"
        if transfer.along is Along.ROW and transfer.pad % transfer.vector:
            return f"the padding of transfer {name} must keep its vectors aligned; got {transfer.pad}"
    return None


def _fragments_aligned(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """Threads read chunks of shared rows at once; matrix loads read lines of 16 bytes."""
    row = plan.instruction
    if row is None:
        units = (plan.chunk_m, plan.chunk_n)
    else:
        units = (_aligned_numbers(row, "a", plan), _aligned_numbers(row, "b", plan))
    if plan.a.pad % units[0] or plan.b.pad % units[1]:
        return f"shared padding must keep fragments aligned, a multiple of {units}; got {plan.a.pad} and {plan.b.pad}"
    return None


def _aligned_numbers(row: Instruction, name: str, plan: TiledPlan) -> int:
    """Numbers that lines of a tile must begin at multiples of."""
    if row.lanes == 1:
        return run_length(row, name) * (plan.chunk_m if name == "a" else plan.chunk_n)
    return max(MATRIX_LINE_BYTES // stored_type(row, name).nbytes, 1)


def _lanes_fit(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    most = target.math_lanes(contraction.acc)
    if plan.lanes > most or plan.lanes & (plan.lanes - 1):
        return f"lanes must be a power of two up to {most} on {target.name}; got {plan.lanes}"
    if plan.lanes > 1 and plan.store not in (1, plan.lanes):
        return f"vector registers are stored whole or one by one; got store {plan.store} for {plan.lanes} lanes"
    return None


def phase_axes_serial(plan: GridPlan, contraction: Contraction, target: Target) -> str | None:
    """Only serial axes have extents that phases decide."""
    parameters = frozenset(parameter.symbol for parameter in contraction.phases)
    varying = {axis.name for axis in contraction.axes if free_symbols(axis.extent) & parameters}
    merged = sorted(varying & set(plan.merged))
    return f"axes whose extent differs between phases are serial loops; {merged} are merged" if merged else None


def _widths_allowed(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    merged = flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g)
    for name, operand, transfer, row in (("a", contraction.a, plan.a, "M"), ("b", contraction.b, plan.b, "N")):
        axis = row if transfer.along is Along.ROW else "K"
        widest = flat_width(operand, merged, plan.serial, axis, target.access_bits, MASKED_IN_FACTORS)
        if widest % transfer.vector:
            return f"transfer {name} moves {transfer.vector} numbers along {axis}; the view allows {widest}"
    widest = store_width(contraction, merged, target)
    if widest % plan.store:
        return f"a store moves {plan.store} numbers along n; the views allow {widest}"
    return None


def store_width(contraction: Contraction, merged: tuple[Merged, ...], target: Target) -> int:
    """Numbers along n that one store of C may move; a bias along n must allow it too."""
    from_c = collected_width(contraction, merged, target)
    bias = contraction.bias
    if bias is None or not varies_along_n(bias, contraction):
        return from_c
    return gcd(from_c, flat_width(bias, merged, (), "N", target.access_bits))


def collected_width(contraction: Contraction, merged: tuple[Merged, ...], target: Target) -> int:
    """Numbers along n that one store of finished numbers of C may move."""
    return flat_width(contraction.c, merged, (), "N", target.access_bits, MASKED_IN_RESULT)


def _resources(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    return check_resources(plan, contraction.acc, target)


def _instruction_fits(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    row = plan.instruction
    if row is None:
        copies = rows_for(target.arch, Family.ASYNC_COPY)
        return None if plan.stages == 1 or copies else f"{target.name} has no asynchronous copies"
    if row not in multiplying_rows(target):
        return f"{target.name} has no instruction {row.name}"
    if not row_multiplies(row, products_of(contraction)):
        types = tuple(row.fragment(name).dtype for name in "abd")
        listed = ", ".join(map(str, products_of(contraction)[:3]))
        return f"{row.name} multiplies {types[0]} by {types[1]} to {types[2]}; the contraction has {listed}"
    m, n, k = row.shape
    for name, size, unit in (
        ("thread_m", plan.thread_m, m),
        ("thread_n", plan.thread_n, n),
        ("block_k", plan.block_k, k),
    ):
        if size % unit:
            return f"{name} must be a multiple of {unit} for {row.name}; got {size}"
    neighbours = 1 if row.lanes == 1 else columns_together(row)
    if plan.lanes != 1 or (row.lanes > 1 and neighbours % plan.store):
        return (
            f"a lane holds {neighbours} neighbouring columns of {row.name}; got store {plan.store}, lanes {plan.lanes}"
        )
    return _fragment_loads_fit(plan, row)


def multiplying_rows(target: Target) -> tuple[Instruction, ...]:
    """The rows that a plan may multiply by on a target."""
    return (*rows_for(target.arch, Family.MATRIX_MULTIPLY), *rows_for(target.arch, Family.DOT))


def row_multiplies(row: Instruction, products: Products) -> bool:
    """Whether a row's products are these: it holds the factors exactly, and sums in their type.

    f32 factors lose digits in tf32, which must be allowed.
    """
    if row.fragment("d").dtype is not products.acc:
        return False
    return all(
        holds(row.fragment(name).dtype, dtype) or (products.tf32 and dtype is F32 and row.fragment(name).dtype is TF32)
        for name, dtype in (("a", products.a), ("b", products.b))
    )


def _fragment_loads_fit(plan: TiledPlan, row: Instruction) -> str | None:
    """Every register of a fragment is one access to the tile."""
    for name, transfer, rows in (("a", plan.a, plan.block_m), ("b", plan.b, plan.block_n)):
        k_fastest = lines_along_k(row, transfer.along)
        way = way_of(row, name, k_fastest)
        if way is None:
            return f"{row.name} cannot read its {name} from tiles whose lines run along {transfer.along.value}"
        line = ((plan.block_k if k_fastest else rows) + transfer.pad) * stored_type(row, name).nbytes
        if way is not Way.WORDS and line % MATRIX_LINE_BYTES:
            return (
                f"lines of a tile begin at multiples of {MATRIX_LINE_BYTES} bytes; operand {name} has lines of {line}"
            )
    return None


def _swizzles_fit(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    layouts = tile_layouts(plan, contraction.acc)
    for name, transfer, layout, chunk in (
        ("a", plan.a, layouts[0], plan.chunk_m),
        ("b", plan.b, layouts[1], plan.chunk_n),
    ):
        if transfer.swizzle == 1:
            continue
        most = _most_swizzle(plan, name, layout, chunk, transfer)
        if transfer.swizzle & (transfer.swizzle - 1) or transfer.swizzle > most:
            return f"the swizzle of transfer {name} must be a power of two up to {most} here; got {transfer.swizzle}"
    return None


def _collects(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """Only matrix instructions leave threads less than they could store at once."""
    if plan.collect == 0:
        return None
    if plan.instruction is None or plan.instruction.lanes == 1:
        return f"C is collected in shared memory behind matrix instructions only; got row {plan.row}"
    if plan.split.how is not Reduction.NONE:
        return f"C is collected in shared memory by blocks that have the whole sum; got split {plan.split}"
    merged = flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g)
    if contraction.reads_old:
        return "C is not collected in shared memory where the epilogue reads its old content"
    most = collected_width(contraction, merged, target)
    if plan.block_n % plan.collect or most % plan.collect:
        return f"stores of C move a power of two of numbers up to {most} here that divides block_n; got {plan.collect}"
    return None


def _most_swizzle(plan: TiledPlan, name: str, layout: SharedLayout, chunk: int, transfer: Transfer) -> int:
    row = plan.instruction
    if row is not None and row.lanes > 1:
        return matrix_swizzle(row, name, transfer, layout.rows, layout.depth) if transfer.pad == 0 else 1
    return 1 if plan.lanes > 1 else widest_swizzle(layout, chunk, transfer)


def _fragment_sets(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.fragments not in (1, 2):
        return f"one or two sets of fragments are kept; got {plan.fragments}"
    if plan.fragments == 2 and plan.row == SCALAR and not plan.unroll_k:
        return "two sets of fragments need an unrolled loop over k (unroll=1): registers have no computed numbers"
    return None


def _index_bits(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    return None if plan.index_bits in (32, 64) else f"index math has 32 or 64 bits; got {plan.index_bits}"


def transfer_for(row_width: int, k_width: int, prefer_k: bool, rows: int, depth: int, pad: int) -> Transfer:
    """The transfer of a tile: along the direction that moves more numbers at once, else the one of smaller strides."""
    row, deep = gcd(row_width, rows), gcd(k_width, depth)
    if deep > row or (deep == row and prefer_k):
        return Transfer(Along.K, deep, pad)
    return Transfer(Along.ROW, row, pad)


RULES: tuple[Check, ...] = (
    axes_covered,
    _tiles_divide,
    _powers_of_two,
    _vectors_divide,
    _fragments_aligned,
    _lanes_fit,
    phase_axes_serial,
    _index_bits,
    _instruction_fits,
    _groups_share_k,
    _atomic_types,
    _fragment_sets,
    _swizzles_fit,
    _collects,
    _resources,
    _widths_allowed,
)
