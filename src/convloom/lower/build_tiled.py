"""Builds the IR of a tiled kernel from a contraction and its plan."""

from __future__ import annotations

from convloom.expr import Expr, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Kernel, LaunchScalar, Read, Scope
from convloom.ir.symbols import BLOCK_ID
from convloom.lower.epilogue import store_part
from convloom.lower.frame import Frame, factor_type, make_frame
from convloom.lower.k_loops import KLoops, run_pipeline
from convloom.lower.load_tile import TileLoader, TileSource
from convloom.lower.multiply import Multiplier
from convloom.lower.multiply_matrix import MatrixMultiplier
from convloom.lower.multiply_scalar import ScalarMultiplier
from convloom.lower.shared_layout import SharedLayout
from convloom.plan.flat_axis import MASKED_IN_FACTORS, tile_view
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, Operand, exchange
from convloom.target.catalogue import row_named
from convloom.target.instruction import Instruction


def build_tiled(contraction: Contraction, plan: TiledPlan, name: str) -> Kernel:
    """The kernel of one plan: block decoding, K loops over operand tiles in shared memory, epilogue.

    requires: the plan is legal for the contraction. ensures: sizes stand in the index math as they are; passes move
    what the host can evaluate to the launch.
    """
    frame = make_frame(exchange(contraction) if plan.swap else contraction, plan)
    builder = IrBuilder()
    origin = _decode_block(builder, frame)
    multiplier: Multiplier = ScalarMultiplier(frame) if frame.row is None else MatrixMultiplier(frame, frame.row)
    multiplier.clear(builder)
    _reduce(builder, frame, origin, multiplier)
    _store(builder, frame, origin, multiplier)
    blocks = simplify(frame.g.extent * frame.m.tiles * frame.n.tiles * contraction.phase_count)
    return Kernel(
        name, tuple(frame.buffers.values()), _factors(contraction), plan.threads, blocks, plan.index_bits, builder.body
    )


def _factors(contraction: Contraction) -> tuple[LaunchScalar, ...]:
    """Alpha and beta, where the call passes them."""
    dtype = factor_type(contraction)
    names = (("alpha", contraction.scaling.alpha), ("beta", contraction.scaling.beta))
    return tuple(LaunchScalar(name, name, dtype) for name, wanted in names if wanted)


def _decode_block(builder: IrBuilder, frame: Frame) -> dict[str, Expr]:
    """Unpacks the block index, n fastest, phases slowest; returns the tile's corner by flat axis."""
    builder.comment("which tile of C this block computes")
    rest: Expr = BLOCK_ID
    corner: dict[str, Expr] = {}
    counts = [simplify(flat.tiles) for flat in (frame.n, frame.m, frame.g)] + [const(frame.contraction.phase_count)]
    for place, flat in enumerate((frame.n, frame.m, frame.g)):
        last = all(count is const(1) for count in counts[place + 1 :])
        tile = builder.let(f"tile_{flat.name.lower()}", rest if last else rest % counts[place], counts[place])
        corner[flat.name] = tile * flat.multiple
        rest = const(0) if last else builder.let(f"after_{flat.name.lower()}", rest // counts[place])
    phase = builder.let("phase", rest, counts[-1])
    for parameter in frame.contraction.phases:
        table = Buffer(
            f"{parameter.symbol.name}_table", None, Scope.CONSTANT, len(parameter.values), values=parameter.values
        )
        builder.bind(parameter.symbol, Read(table, phase))
    return corner


def _reduce(builder: IrBuilder, frame: Frame, origin: dict[str, Expr], multiplier: Multiplier) -> None:
    """The K loops, with as many stages of operand tiles as the plan says."""
    loops = KLoops(frame)
    a_layout, b_layout = multiplier.layouts()
    loaders = (
        _loader(frame, frame.contraction.a, "M", a_layout, origin, loops),
        _loader(frame, frame.contraction.b, "N", b_layout, origin, loops),
    )
    for loader in loaders:
        builder.allocate(loader.shared)
    for loader in loaders:
        loader.prepare(builder)
    if frame.plan.stages == 1:
        _synchronous(builder, loops, loaders, multiplier)
    else:
        _pipelined(builder, frame, loops, loaders, multiplier)


def _synchronous(
    builder: IrBuilder, loops: KLoops, loaders: tuple[TileLoader, TileLoader], multiplier: Multiplier
) -> None:
    """Load, barrier, multiply, barrier."""

    def one_tile() -> None:
        for loader in loaders:
            loader.load(builder, const(0), None)
        builder.barrier()
        multiplier.multiply(builder, *loaders, const(0), const(0))
        builder.barrier()

    loops.nest(builder, one_tile)


def _pipelined(
    builder: IrBuilder, frame: Frame, loops: KLoops, loaders: tuple[TileLoader, TileLoader], multiplier: Multiplier
) -> None:
    """Loads run stages - 1 K tiles ahead; one barrier a tile."""
    copies = tuple(_copy_row(loader.copied_bytes) for loader in loaders)

    def fetch(step: Expr, slot: Expr) -> None:
        loops.bind(builder, step)
        for loader, copy in zip(loaders, copies, strict=True):
            loader.load(builder, slot * loader.layout.size, copy)

    def close(pending: int) -> None:
        if not any(copies):
            return
        if pending < 0:
            builder.instruct(row_named("cp.async.commit_group"))
        else:
            builder.instruct(row_named("cp.async.wait_group"), pending=const(pending))

    def consume(slot: Expr) -> None:
        a_stage, b_stage = (slot * loader.layout.size for loader in loaders)
        multiplier.multiply(builder, *loaders, a_stage, b_stage)

    run_pipeline(builder, loops.steps, frame.plan.stages, fetch, close, consume)


def _copy_row(nbytes: int) -> Instruction | None:
    """The asynchronous copy of so many bytes, if there is one: 16 bytes pass by the first-level cache."""
    name = {4: "cp.async.ca.4", 8: "cp.async.ca.8", 16: "cp.async.cg.16"}.get(nbytes)
    return None if name is None else row_named(name)


def _loader(
    frame: Frame, operand: Operand, row_axis: str, layout: SharedLayout, origin: dict[str, Expr], loops: KLoops
) -> TileLoader:
    plan = frame.plan
    view = tile_view(operand.view, frame.merged, plan.serial, MASKED_IN_FACTORS)
    corner = {**origin, **loops.serial, "K": loops.tile * plan.block_k}
    source = TileSource(operand.name, frame.buffers[operand.name], view, row_axis, corner, loops.symbols)
    transfer = plan.a if row_axis == "M" else plan.b
    return TileLoader(source, layout, transfer, plan.threads, frame.thread, plan.stages)


def _store(builder: IrBuilder, frame: Frame, origin: dict[str, Expr], multiplier: Multiplier) -> None:
    """The epilogue over every part that the thread holds."""

    def emit(row: Expr, column: Expr, value: Read) -> None:
        coordinates = {"M": origin["M"] + row, "N": origin["N"] + column, "G": origin["G"]}
        store_part(builder, frame, coordinates, value)

    multiplier.each_part(builder, emit)
