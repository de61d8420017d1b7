"""Candidate plans of a contraction on a target: orientations and axis orders times tile shapes, legal ones only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd, prod

from convloom.dtypes import DType, dtype_named
from convloom.plan.access_facts import (
    KOrder,
    by_stride,
    element_strides,
    flat_axes,
    flat_width,
    k_orders,
    typical_value,
)
from convloom.plan.divided_sums import grouped_sums, split_sums
from convloom.plan.estimate import Workload
from convloom.plan.flat_axis import MASKED_IN_FACTORS
from convloom.plan.legality import (
    check_resources,
    collected_width,
    multiplying_rows,
    row_multiplies,
    store_width,
    transfer_for,
)
from convloom.plan.policy import Policy
from convloom.plan.products import Products, products_of
from convloom.plan.shared_layout import (
    conflict_free_pad,
    lines_along_k,
    matrix_swizzle,
    stored_type,
    tile_layouts,
    widest_swizzle,
)
from convloom.plan.tiled import SCALAR, TiledPlan, Transfer
from convloom.plan.workspace import adds_to_result
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target
from convloom.target.catalogue import row_named
from convloom.target.fragment_access import columns_together
from convloom.target.instruction import Family, Instruction

_STORE_BYTES = 16  # of the widest store of a thread


@dataclass(frozen=True, slots=True)
class TileShape:
    """Sizes of one candidate."""

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    chunk_m: int
    chunk_n: int
    lanes: int
    row: str = SCALAR
    stages: int = 1
    fragments: int = 1


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One orientation and order of axes, with the widths that its views allow and its sizes for the cost model."""

    swap: bool
    g: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: KOrder
    a_row: int
    a_k: int
    b_row: int
    b_k: int
    a_prefers_k: bool
    b_prefers_k: bool
    store: int
    collect: int  # numbers along n that a store of collected numbers may move; 0: C's old content must stay until then
    work: Workload


def arrangements(contraction: Contraction, target: Target) -> tuple[Arrangement, ...]:
    """Both orientations with every order of K worth considering."""
    return tuple(
        arrangement
        for swap in (False, True)
        for arrangement in _oriented(exchange(contraction) if swap else contraction, swap, target)
    )


def _oriented(contraction: Contraction, swap: bool, target: Target) -> Iterator[Arrangement]:
    strides_c, strides_a, strides_b = (
        element_strides(operand.view) for operand in (contraction.c, contraction.a, contraction.b)
    )
    g, m, n = (by_stride(contraction.of_kind(kind), strides_c) for kind in (AxisKind.G, AxisKind.M, AxisKind.N))
    for order in k_orders(contraction):
        merged = flat_axes(contraction, m, n, order.merged, g)
        sides = ((contraction.a, "M"), (contraction.a, "K"), (contraction.b, "N"), (contraction.b, "K"))
        a_row, a_k, b_row, b_k = [
            flat_width(operand, merged, order.serial, axis, target.access_bits, MASKED_IN_FACTORS)
            for operand, axis in sides
        ]
        yield Arrangement(
            swap,
            g,
            m,
            n,
            order,
            a_row,
            a_k,
            b_row,
            b_k,
            _faster(strides_a, order.merged, m),
            _faster(strides_b, order.merged, n),
            store_width(contraction, merged, target),
            0 if contraction.reads_old else collected_width(contraction, merged, target),
            _workload(contraction, target, order, m, n, g),
        )


def _faster(strides: dict[str, int], first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether the smallest stride among the first axes is below that among the second."""

    def smallest(names: tuple[str, ...]) -> int:
        return min((strides[name] for name in names if strides.get(name)), default=2**62)

    return smallest(first) < smallest(second)


def _workload(
    contraction: Contraction, target: Target, order: KOrder, m: tuple[str, ...], n: tuple[str, ...], g: tuple[str, ...]
) -> Workload:
    extents = {axis.name: axis.extent for axis in contraction.axes}
    per_phase = [
        {parameter.symbol.name: parameter.values[phase] for parameter in contraction.phases}
        for phase in range(contraction.phase_count)
    ]

    def size(names: tuple[str, ...], phase: dict[str, int]) -> int:
        return prod(typical_value(extents[name], phase) for name in names)

    serial = sum(size(order.serial, phase) for phase in per_phase)
    first = per_phase[0]
    return Workload(
        size(m, first),
        size(n, first),
        size(g, first),
        -(-serial // contraction.phase_count),
        size(order.merged, first),
        contraction.phase_count,
        contraction.acc.name,
        contraction.acc.nbytes,
        contraction.acc.is_float,
        adds_to_result(contraction),
        contraction.a.dtype.nbytes,
        contraction.b.dtype.nbytes,
        contraction.c.dtype.nbytes,
        *(_footprint(contraction, operand, first) for operand in (contraction.a, contraction.b, contraction.c)),
        *(_split_cost(contraction, operand, order) for operand in (contraction.a, contraction.b)),
    )


def _footprint(contraction: Contraction, operand: Operand, phase: dict[str, int]) -> int:
    """Bytes of one visit of every element, windows counted once per position and not per tap."""
    strides = element_strides(operand.view)
    extents = {axis.name: typical_value(axis.extent, phase) for axis in operand.view.axes}
    largest: dict[int, int] = {}
    for name, stride in strides.items():
        if stride:
            largest[stride] = max(largest.get(stride, 1), extents[name])
    return operand.dtype.nbytes * prod(largest.values())


def _split_cost(contraction: Contraction, operand: Operand, order: KOrder) -> float:
    """Index math of a flat K index that is made of several axes of this operand, relative to one axis."""
    names = {axis.name for axis in operand.view.axes}
    return 1.0 + 1.5 * max(sum(name in names for name in order.merged) - 1, 0)


# --- tile shapes ----------------------------------------------------------------------------------------------------


def tile_shapes(target: Target, contraction: Contraction, n: int) -> tuple[TileShape, ...]:
    """The tile sizes tried on a target for n columns: no wider vectors than they fill."""
    acc = contraction.acc
    if target.vector_bits <= 32:
        rows = _rows(target, products_of(contraction))
        return (*(shape for row in rows for shape in _row_shapes(row)), *_thread_shapes())
    lanes = min(target.math_lanes(acc), 1 << max(n - 1, 1).bit_length())
    return _vector_shapes(max(lanes, target.math_lanes(acc) // 4))


@lru_cache(maxsize=16)
def _vector_shapes(lanes: int) -> tuple[TileShape, ...]:
    shapes: list[TileShape] = []
    for (vectors, thread_m), rows, columns, block_k in product(
        ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (2, 1), (2, 4), (2, 8), (2, 12), (3, 6), (4, 1)),
        (1, 2, 4, 8),
        (1, 2, 4),
        (4, 8, 16, 32, 64),
    ):
        thread_n = lanes * vectors
        shapes.append(TileShape(thread_m * rows, thread_n * columns, block_k, thread_m, thread_n, 1, lanes, lanes))
    return tuple(shapes)


@lru_cache(maxsize=64)
def _rows(target: Target, products: Products) -> tuple[str, ...]:
    """Of each family the row of the highest rate for these products; of equal ones that of deepest k."""
    found: dict[Family, Instruction] = {}
    for row in multiplying_rows(target):
        if target.row_rate(row) > 0 and row_multiplies(row, products):
            best = found.get(row.family)
            if best is None or _merit(target, row) > _merit(target, best):
                found[row.family] = row
    return tuple(row.name for row in found.values())


def _merit(target: Target, row: Instruction) -> tuple[float, int, int]:
    """Rate; operands that need no conversion to a wider type in shared memory; depth."""
    return target.row_rate(row), -row.fragment("a").dtype.bits, prod(row.shape)


def _row_shapes(name: str) -> tuple[TileShape, ...]:
    row = row_named(name)
    return _lane_shapes(name) if row.lanes == 1 else _matrix_shapes(name)


@lru_cache(maxsize=16)
def _matrix_shapes(name: str) -> tuple[TileShape, ...]:
    """Lines of 64 or 128 bytes of k; two sets of fragments where they can be carried over K tiles."""
    shapes: list[TileShape] = []
    row = row_named(name)
    nbytes = stored_type(row, "a").nbytes
    depths = dict.fromkeys(max(line // nbytes, row.shape[2]) for line in (64, 128))
    for (thread_m, thread_n), (rows, columns), block_k, stages in product(
        ((64, 64), (64, 32), (32, 64), (32, 32), (16, 64), (16, 32), (64, 16)),
        ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (1, 4), (4, 1)),
        depths,
        (2, 3, 4),
    ):
        block = (thread_m * rows, thread_n * columns, block_k)
        sets = 1 if block_k // row.shape[2] % 2 else 2
        shapes.append(TileShape(*block, thread_m, thread_n, row.shape[0], row.shape[1], 1, name, stages, sets))
    return tuple(shapes)


_THREAD_TILES = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (4, 8), (8, 4), (8, 8))
_THREAD_GRIDS = ((1, 32), (1, 64), (2, 32), (4, 16), (4, 32), (8, 8), (8, 16), (16, 8), (8, 32), (16, 16))


@lru_cache(maxsize=16)
def _lane_shapes(name: str) -> tuple[TileShape, ...]:
    """Tiles of rows that one lane executes: those of threads, k in steps of the row's depth."""
    depth = row_named(name).shape[2]
    return tuple(
        TileShape(tile[0] * grid[0], tile[1] * grid[1], depth * steps, *tile, min(tile[0], 4), min(tile[1], 4), 1, name)
        for tile, grid, steps in product(_THREAD_TILES, _THREAD_GRIDS, (4, 8, 16))
    )


@lru_cache(maxsize=2)
def _thread_shapes() -> tuple[TileShape, ...]:
    """Tiles of threads, one K tile at a time: copies of single numbers ahead are slower (1.1 times, on an H200)."""
    shapes: list[TileShape] = []
    for (thread_m, thread_n), (rows, columns), block_k in product(_THREAD_TILES, _THREAD_GRIDS, (4, 8, 16, 32)):
        chunk_m, chunk_n = min(thread_m, 4), min(thread_n, 4)
        sizes = (thread_m * rows, thread_n * columns, block_k, thread_m, thread_n, chunk_m, chunk_n, 1)
        shapes.append(TileShape(*sizes))
    return tuple(shapes)


def _transfer(shape: TileShape, name: str, row_width: int, k_width: int, prefer_k: bool) -> Transfer:
    """The transfer of one operand, swizzled or its lines padded so that loading fragments has no bank conflicts."""
    rows = shape.block_m if name == "a" else shape.block_n
    found = transfer_for(row_width, k_width, prefer_k, rows, shape.block_k, 0)
    if shape.row == SCALAR:
        return found
    row = row_named(shape.row)
    swizzle = matrix_swizzle(row, name, found, rows, shape.block_k)
    if swizzle > 1:
        return replace(found, swizzle=swizzle)
    length = shape.block_k if lines_along_k(row, found.along) else rows
    return replace(found, pad=conflict_free_pad(row, name, found.along, length))


def _swizzled(plan: TiledPlan, acc: DType) -> TiledPlan:
    """The plan with the widest swizzles, where the loop over k is unrolled: there they cost no arithmetic."""
    row = plan.instruction
    if plan.lanes > 1 or (not plan.unroll_k if row is None else row.lanes > 1):
        return plan
    a, b = tile_layouts(plan, acc)
    return replace(
        plan,
        a=replace(plan.a, swizzle=widest_swizzle(a, plan.chunk_m, plan.a)),
        b=replace(plan.b, swizzle=widest_swizzle(b, plan.chunk_n, plan.b)),
    )


def build_plan(shape: TileShape, arrangement: Arrangement, index_bits: int, vectors: bool) -> TiledPlan:
    """The plan of one shape in one arrangement; `vectors` False: every access moves one number."""
    limit = 1 << 30 if vectors else 1
    row = None if shape.row == SCALAR else row_named(shape.row)
    together = limit if row is None or row.lanes == 1 else columns_together(row)
    store = min(arrangement.store, shape.chunk_n, limit, together)
    if shape.lanes > 1 and store < shape.lanes:
        store = 1
    plan = TiledPlan(
        shape.block_m,
        shape.block_n,
        shape.block_k,
        shape.thread_m,
        shape.thread_n,
        shape.chunk_m,
        shape.chunk_n,
        shape.lanes,
        shape.lanes == 1 and shape.block_k * shape.thread_m * shape.thread_n <= 1024,
        arrangement.g,
        arrangement.m,
        arrangement.n,
        arrangement.k.serial,
        arrangement.k.merged,
        _transfer(shape, "a", *_limited(limit, arrangement.a_row, arrangement.a_k), arrangement.a_prefers_k),
        _transfer(shape, "b", *_limited(limit, arrangement.b_row, arrangement.b_k), arrangement.b_prefers_k),
        store,
        index_bits,
        arrangement.swap,
        shape.row,
        shape.stages,
        collect=_collected(shape, arrangement, store, limit),
        fragments=shape.fragments,
    )
    return _swizzled(plan, dtype_named(arrangement.work.acc_name)) if vectors else plan


def _collected(shape: TileShape, arrangement: Arrangement, store: int, limit: int) -> int:
    """Numbers per store where C's tile is collected: behind matrix instructions, if lanes hold fewer of a line."""
    if arrangement.collect == 0 or shape.row == SCALAR or row_named(shape.row).lanes == 1:
        return 0
    widest = min(gcd(arrangement.collect, shape.block_n), limit, _STORE_BYTES // arrangement.work.c_bytes)
    return widest if widest > store else 0


def _limited(limit: int, *widths: int) -> tuple[int, int]:
    row, k = (min(width, limit) for width in widths)
    return row, k


def candidates(
    contraction: Contraction,
    target: Target,
    among: tuple[Arrangement, ...],
    *,
    index_bits: int = 32,
    vectors: bool = True,
    every: int = 1,
    splits: Policy | None = None,
) -> Iterator[tuple[TiledPlan, Arrangement]]:
    """Every combination of the arrangements and (every n-th of) the shapes that respects the target's limits.

    `splits`: what the caller allows of splits of K; None: K is not split.
    """
    for arrangement in among:
        oriented = exchange(contraction) if arrangement.swap else contraction
        shapes = tile_shapes(target, oriented, arrangement.work.n)
        fitting = [shape for shape in shapes[::every] if not _wasteful(shape, arrangement.work)]
        for shape in fitting or (_smallest(shapes) if every == 1 else ()):
            plan = build_plan(shape, arrangement, index_bits, vectors)
            for grouped in (plan,) if splits is None else (plan, *grouped_sums(plan, arrangement.work, target)):
                if check_resources(grouped, contraction.acc, target) is None:
                    yield grouped, arrangement
                    for option in () if splits is None else split_sums(grouped, arrangement.work, target, splits):
                        yield option, arrangement


def _least(shape: TileShape, matrix: int) -> int:
    return 1 if shape.row == SCALAR else matrix


def _smallest(shapes: tuple[TileShape, ...]) -> list[TileShape]:
    """For results that no tile fits: a block has 32 threads or more, a depthwise weight gradient 9 elements."""
    least = min(shape.block_m * shape.block_n for shape in shapes)
    return [shape for shape in shapes if shape.block_m * shape.block_n == least]


def _wasteful(shape: TileShape, work: Workload) -> bool:
    """Tiles that are more than twice what the problem fills."""
    return (
        (shape.block_m > _least(shape, 16) and shape.block_m > work.m * 2)
        or (shape.block_n > max(shape.lanes, _least(shape, 32)) and shape.block_n > work.n * 2)
        or (shape.block_k > 4 and shape.block_k > work.k * 2)
    )
