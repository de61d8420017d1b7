"""Candidate plans of a contraction on a target: orientations and axis orders times tile shapes, legal ones only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convloom.dtypes import DType
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
from convloom.plan.legality import check_resources, store_width, transfer_for
from convloom.plan.policy import Policy
from convloom.plan.tiled import SCALAR, TiledPlan
from convloom.plan.workspace import adds_to_result
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.instruction import Family

_MATRIX_BITS = 16
_PAIR = 2  # neighbouring columns that a lane holds of a fragment


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
    pad: int = 0


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
        target.matrix_rate(contraction.a.dtype),
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
        rows = _matrix_rows(target, contraction.a.dtype, contraction.b.dtype, acc)
        return (*(shape for row in rows for shape in _matrix_shapes(row)), *_thread_shapes())
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


def _matrix_rows(target: Target, a: DType, b: DType, acc: DType) -> tuple[str, ...]:
    """The matrix instruction with the deepest k for these types (16-bit ones: their tiles need no re-ordering)."""
    if a.bits != _MATRIX_BITS or target.matrix_rate(a) == 0:
        return ()
    fitting = [
        row
        for row in rows_for(target.arch, Family.MATRIX_MULTIPLY)
        if tuple(row.fragment(name).dtype for name in "abd") == (a, b, acc)
    ]
    return tuple(row.name for row in sorted(fitting, key=lambda row: -row.shape[2])[:1])


@lru_cache(maxsize=16)
def _matrix_shapes(row: str) -> tuple[TileShape, ...]:
    shapes: list[TileShape] = []
    for (thread_m, thread_n), (rows, columns), block_k, stages in product(
        ((64, 64), (64, 32), (32, 64), (32, 32), (16, 64), (16, 32), (64, 16)),
        ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (1, 4), (4, 1)),
        (32, 64),
        (3, 4),
    ):
        shapes.append(
            TileShape(thread_m * rows, thread_n * columns, block_k, thread_m, thread_n, 16, 8, 1, row, stages, 8)
        )
    return tuple(shapes)


@lru_cache(maxsize=1)
def _thread_shapes() -> tuple[TileShape, ...]:
    shapes: list[TileShape] = []
    for (thread_m, thread_n), (rows, columns), block_k in product(
        ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (4, 8), (8, 4), (8, 8)),
        ((1, 32), (1, 64), (2, 32), (4, 16), (4, 32), (8, 8), (8, 16), (16, 8), (8, 32), (16, 16)),
        (4, 8, 16, 32),
    ):
        chunk_m, chunk_n = min(thread_m, 4), min(thread_n, 4)
        shapes.append(TileShape(thread_m * rows, thread_n * columns, block_k, thread_m, thread_n, chunk_m, chunk_n, 1))
    return tuple(shapes)


def build_plan(shape: TileShape, arrangement: Arrangement, index_bits: int, vectors: bool) -> TiledPlan:
    """The plan of one shape in one arrangement; `vectors` False: every access moves one number."""
    limit = 1 << 30 if vectors else 1
    store = min(arrangement.store, shape.chunk_n, limit, _PAIR if shape.row != SCALAR else limit)
    if shape.lanes > 1 and store < shape.lanes:
        store = 1
    return TiledPlan(
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
        transfer_for(
            min(arrangement.a_row, limit),
            min(arrangement.a_k, limit),
            arrangement.a_prefers_k,
            shape.block_m,
            shape.block_k,
            shape.pad,
        ),
        transfer_for(
            min(arrangement.b_row, limit),
            min(arrangement.b_k, limit),
            arrangement.b_prefers_k,
            shape.block_n,
            shape.block_k,
            shape.pad,
        ),
        store,
        index_bits,
        arrangement.swap,
        shape.row,
        shape.stages,
    )


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
        shapes = tile_shapes(target, contraction, arrangement.work.n)
        fitting = [shape for shape in shapes[::every] if not _wasteful(shape, arrangement.work)]
        for shape in fitting or (_smallest(shapes) if every == 1 else ()):
            plan = build_plan(shape, arrangement, index_bits, vectors)
            for grouped in (plan,) if splits is None else (plan, *grouped_sums(plan, target)):
                if check_resources(grouped, contraction.acc.nbytes, contraction.a.dtype.nbytes, target) is None:
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
