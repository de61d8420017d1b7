"""Builds the IR of a tiled kernel from a contraction and its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Kernel, LaunchScalar, Read
from convloom.lower.atomic_sums import add_to_result, clear_result, clear_workspace
from convloom.lower.collect_tile import store_collected
from convloom.lower.decode_block import BlockPlace, block_count, decode_block
from convloom.lower.epilogue import store_part
from convloom.lower.factors import factors
from convloom.lower.frame import Frame, make_frame
from convloom.lower.k_loops import Journeys, KLoops, KRange, run_pipeline
from convloom.lower.load_tile import TileLoader, TileSource, ZeroSource
from convloom.lower.multiply import Multiplier, Stages
from convloom.lower.multiply_lane import LaneMultiplier
from convloom.lower.multiply_matrix import MatrixMultiplier
from convloom.lower.multiply_scalar import ScalarMultiplier
from convloom.lower.partial_sums import finish, steps_of_part, store_partial, workspace_buffer
from convloom.lower.reduce_groups import reduce_groups
from convloom.plan.flat_axis import MASKED_IN_FACTORS, tile_view
from convloom.plan.shared_layout import SharedLayout
from convloom.plan.split import Reduction
from convloom.plan.tiled import TiledPlan
from convloom.plan.workspace import adds_to_result
from convloom.problem.contraction import Contraction, Operand, exchange
from convloom.target.catalogue import row_named
from convloom.target.instruction import Instruction

Store = Callable[[IrBuilder, Frame, BlockPlace, Multiplier], None]
Pass = Callable[[IrBuilder, Frame, Multiplier], Expr]


def build_tiled(contraction: Contraction, plan: TiledPlan) -> tuple[Kernel, ...]:
    """The kernels of one plan in the order of their launches.

    One kernel does all: block decoding, K loops over operand tiles in shared memory, epilogue. Where K is split over
    the grid it leaves partial sums in a workspace instead, and another kernel adds them up; or it adds to memory that
    another kernel has cleared.
    requires: the plan is legal for the contraction. ensures: sizes stand in the index math as they are; passes move
    what the host can evaluate to the launch.
    """
    frame = make_frame(exchange(contraction) if plan.swap else contraction, plan)
    if plan.split.how is Reduction.NONE:
        return (_multiplying(frame, frame.operand_buffers + frame.result_buffers, _store, factors(contraction)),)
    whole = make_frame(frame.contraction, replace(plan, k_groups=1))
    workspace = (workspace_buffer(frame, written=True),)
    if plan.split.how is Reduction.ATOMIC and adds_to_result(contraction):
        return (
            _passing(whole, "clear", whole.result_buffers, clear_result),
            _multiplying(frame, frame.operand_buffers + frame.result_buffers, add_to_result),
        )
    summing = (
        _multiplying(frame, frame.operand_buffers + workspace, store_partial),
        _passing(
            whole,
            "finish",
            (workspace_buffer(frame, written=False), *whole.result_buffers),
            finish,
            factors(contraction),
        ),
    )
    if plan.split.how is Reduction.PASSES:
        return summing
    return (_passing(whole, "clear", workspace, clear_workspace), *summing)


def _multiplying(
    frame: Frame, buffers: tuple[Buffer, ...], store: Store, scalars: tuple[LaunchScalar, ...] = ()
) -> Kernel:
    """The kernel that multiplies; `store` says what becomes of the sums."""
    plan, builder = frame.plan, IrBuilder()
    builder.comment("which tile of C this block computes")
    place = decode_block(builder, frame, plan.split.parts)
    multiplier = multiplier_for(frame)
    multiplier.clear(builder)
    _reduce(builder, frame, place, multiplier)
    multiplier.settle(builder)
    reduce_groups(builder, frame, multiplier.accumulators)
    store(builder, frame, place, multiplier)
    name = f"tiled_{plan.block_m}x{plan.block_n}x{plan.block_k}"
    blocks = block_count(frame, plan.split.parts)
    return Kernel(name, buffers, scalars, plan.threads, blocks, plan.index_bits, builder.body)


def _passing(
    frame: Frame, what: str, buffers: tuple[Buffer, ...], emit: Pass, scalars: tuple[LaunchScalar, ...] = ()
) -> Kernel:
    """A kernel over the tiles of C that does not multiply."""
    plan, builder = frame.plan, IrBuilder()
    blocks = emit(builder, frame, multiplier_for(frame))
    name = f"{what}_{plan.block_m}x{plan.block_n}"
    return Kernel(name, buffers, scalars, plan.threads, blocks, plan.index_bits, builder.body)


def multiplier_for(frame: Frame) -> Multiplier:
    """What multiplies, by the plan's row."""
    if frame.row is None:
        return ScalarMultiplier(frame)
    return LaneMultiplier(frame, frame.row) if frame.row.lanes == 1 else MatrixMultiplier(frame, frame.row)


def _reduce(builder: IrBuilder, frame: Frame, place: BlockPlace, multiplier: Multiplier) -> None:
    """The K loops over the block's part of K, with as many stages of operand tiles as the plan says."""
    loops, origin = KLoops(frame), place.corner
    a_layout, b_layout = multiplier.layouts()
    loaders = (
        _loader(frame, frame.contraction.a, "M", a_layout, origin, loops),
        _loader(frame, frame.contraction.b, "N", b_layout, origin, loops),
    )
    for loader in loaders:
        builder.allocate(loader.shared)
    for loader in loaders:
        loader.prepare(builder, staged=frame.plan.stages > 1 and _way(loader) is Way.REGISTERS)
    steps = None if frame.plan.split.parts == 1 else steps_of_part(builder, frame, place.part, loops.steps)
    if frame.plan.stages == 1:
        _synchronous(builder, loops, steps, loaders, multiplier)
    else:
        _pipelined(builder, frame, loops, steps or KRange(const(0), loops.steps), loaders, multiplier)


def _synchronous(
    builder: IrBuilder,
    loops: KLoops,
    steps: KRange | None,
    loaders: tuple[TileLoader, TileLoader],
    multiplier: Multiplier,
) -> None:
    """Load, barrier, multiply, barrier; nested loops over all of K, or one loop over a range of steps."""

    def one_tile() -> None:
        for loader in loaders:
            loader.load(builder, const(0))
        builder.barrier()
        multiplier.product(builder, *loaders).run(builder, (const(0), const(0)))
        builder.barrier()

    if steps is None:
        loops.nest(builder, one_tile)
    else:
        loops.linear(builder, steps, one_tile)


def _pipelined(
    builder: IrBuilder,
    frame: Frame,
    loops: KLoops,
    steps: KRange,
    loaders: tuple[TileLoader, TileLoader],
    multiplier: Multiplier,
) -> None:
    """Loads run stages - 1 K tiles ahead: asynchronous copies where a row has them."""
    ways = tuple(_way(loader) for loader in loaders)

    def fetch(step: Expr, slot: Expr) -> None:
        loops.bind(builder, step)
        for loader, way in zip(loaders, ways, strict=True):
            stage = slot * loader.layout.size
            if way is Way.REGISTERS:
                loader.fetch(builder)
            elif way is Way.AT_ONCE:
                loader.load(builder, stage)
            else:
                loader.copy(builder, stage, way)

    def close(pending: int) -> None:
        if not any(isinstance(way, Instruction) for way in ways):
            return
        if pending < 0:
            builder.instruct(row_named("cp.async.commit_group"))
        else:
            builder.instruct(row_named("cp.async.wait_group"), pending=const(pending))

    def deposit(slot: Expr) -> None:
        for loader, way in zip(loaders, ways, strict=True):
            if way is Way.REGISTERS:
                loader.deposit(builder, slot * loader.layout.size)

    def stages_of(slot: Expr) -> Stages:
        first, second = (slot * loader.layout.size for loader in loaders)
        return first, second

    product = multiplier.product(builder, *loaders)
    journeys = Journeys(fetch, deposit if Way.REGISTERS in ways else None, close)
    run_pipeline(builder, steps, frame.plan.stages, journeys, product, stages_of)


class Way(Enum):
    """How a tile travels where no asynchronous copy takes it."""

    REGISTERS = "waits in registers while the tile before it is multiplied"
    AT_ONCE = "goes to shared memory as it comes"


_COPIES = {4: "cp.async.ca.4", 8: "cp.async.ca.8", 16: "cp.async.cg.16"}
"""Asynchronous copies by bytes: 16 pass by the first-level cache."""


def _way(loader: TileLoader) -> Instruction | Way:
    name = _COPIES.get(loader.copied_bytes)
    if name is not None:
        return row_named(name)
    return Way.REGISTERS if loader.stages_numbers else Way.AT_ONCE


def _loader(
    frame: Frame, operand: Operand, row_axis: str, layout: SharedLayout, origin: dict[str, Expr], loops: KLoops
) -> TileLoader:
    plan = frame.plan
    view = tile_view(operand.view, frame.merged, plan.serial, MASKED_IN_FACTORS)
    corner = {**origin, **loops.serial, "K": loops.tile * plan.block_k}
    zero = frame.contraction.zero_a if row_axis == "M" else frame.contraction.zero_b
    shift = None
    if zero is not None:
        shift = ZeroSource(frame.buffers[zero.name], tile_view(zero.view, frame.merged, plan.serial))
    source = TileSource(operand.name, frame.buffers[operand.name], view, row_axis, corner, loops.symbols, shift)
    transfer = plan.a if row_axis == "M" else plan.b
    return TileLoader(source, layout, transfer, plan.threads, frame.thread, plan.stages)


def _store(builder: IrBuilder, frame: Frame, place: BlockPlace, multiplier: Multiplier) -> None:
    """The epilogue over every part that the thread holds."""
    if frame.plan.collect:
        store_collected(builder, frame, place, multiplier)
        return
    origin = place.corner

    def emit(row: Expr, column: Expr, value: Read) -> None:
        coordinates = {"M": origin["M"] + row, "N": origin["N"] + column, "G": origin["G"]}
        store_part(builder, frame, coordinates, value)

    with builder.condition(simplify(frame.k_group.eq(0))):
        multiplier.each_part(builder, emit)
