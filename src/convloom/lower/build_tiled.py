"""Builds the IR of a tiled kernel from a contraction and its plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from convloom.dtypes import F32, F64, DType
from convloom.expr import Expr, Op, all_of, bounds, const, simplify, sym
from convloom.ir.build import IrBuilder
from convloom.ir.ops import (
    Binary,
    BinaryOp,
    Buffer,
    Constant,
    Convert,
    Kernel,
    LaunchScalar,
    LoopKind,
    MultiplyAdd,
    Parameter,
    Read,
    Scope,
    Splat,
    Value,
)
from convloom.ir.symbols import BLOCK_ID, thread_id
from convloom.lower.load_tile import TileLoader, TileSource
from convloom.plan.flat_axis import MASKED_IN_FACTORS, MASKED_IN_RESULT, Merged, merged_axis, tile_view
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, Operand, exchange


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all parts of one kernel share."""

    contraction: Contraction
    plan: TiledPlan
    m: Merged
    n: Merged
    k: Merged
    g: Merged
    buffers: dict[str, Buffer]
    thread: Expr
    thread_m: Expr
    thread_n: Expr

    @property
    def merged(self) -> tuple[Merged, ...]:
        """The flat axes."""
        return (self.m, self.n, self.k, self.g)


def build_tiled(contraction: Contraction, plan: TiledPlan, name: str) -> Kernel:
    """The kernel of one plan: block decoding, K loops over operand tiles in shared memory, epilogue.

    requires: the plan is legal for the contraction. ensures: sizes stand in the index math as they are; passes move
    what the host can evaluate to the launch.
    """
    if plan.swap:
        contraction = exchange(contraction)
    frame = _frame(contraction, plan)
    builder = IrBuilder()
    origin = _decode_block(builder, frame)
    accumulators = _clear_accumulators(builder, frame)
    _reduce(builder, frame, origin, accumulators)
    _epilogue(builder, frame, origin, accumulators)
    blocks = simplify(frame.g.extent * frame.m.tiles * frame.n.tiles * contraction.phase_count)
    return Kernel(
        name, tuple(frame.buffers.values()), _factors(contraction), plan.threads, blocks, plan.index_bits, builder.body
    )


def _frame(contraction: Contraction, plan: TiledPlan) -> _Frame:
    buffers = {
        operand.name: Buffer(operand.name, operand.dtype, Scope.GLOBAL, written=operand is contraction.c)
        for operand in contraction.operands
    }
    thread = thread_id(plan.threads)
    return _Frame(
        contraction,
        plan,
        merged_axis(contraction, "M", plan.m, plan.block_m),
        merged_axis(contraction, "N", plan.n, plan.block_n),
        merged_axis(contraction, "K", plan.merged, plan.block_k),
        merged_axis(contraction, "G", plan.g),
        buffers,
        thread,
        simplify(thread // plan.threads_n),
        simplify(thread % plan.threads_n),
    )


def _factor_type(acc: DType) -> DType:
    return F64 if acc is F64 else F32


def _factors(contraction: Contraction) -> tuple[LaunchScalar, ...]:
    """Alpha and beta, where the call passes them."""
    dtype = _factor_type(contraction.acc)
    names = (("alpha", contraction.scaling.alpha), ("beta", contraction.scaling.beta))
    return tuple(LaunchScalar(name, name, dtype) for name, wanted in names if wanted)


def _decode_block(builder: IrBuilder, frame: _Frame) -> dict[str, Expr]:
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


def _clear_accumulators(builder: IrBuilder, frame: _Frame) -> Buffer:
    plan, acc = frame.plan, frame.contraction.acc
    accumulators = builder.allocate(Buffer("acc", acc, Scope.REGISTER, plan.thread_m * plan.thread_n, plan.lanes))
    with builder.loop("i", plan.thread_m * plan.thread_n // plan.lanes, LoopKind.UNROLLED) as i:
        builder.write(accumulators, i * plan.lanes, Constant(0, acc, plan.lanes))
    return accumulators


# --- reduction ------------------------------------------------------------------------------------------------------


def _reduce(builder: IrBuilder, frame: _Frame, origin: dict[str, Expr], accumulators: Buffer) -> None:
    """The K loops: serial axes outermost, then tiles of the merged axis."""
    loops = _KLoops(frame)
    loaders = [
        _loader(frame, frame.contraction.a, "M", frame.plan.block_m, origin, loops),
        _loader(frame, frame.contraction.b, "N", frame.plan.block_n, origin, loops),
    ]
    for loader in loaders:
        builder.allocate(loader.shared)
    for loader in loaders:
        loader.prepare(builder)

    def one_tile() -> None:
        for loader in loaders:
            loader.load(builder)
        builder.barrier()
        _multiply(builder, frame, loaders, accumulators)
        builder.barrier()

    loops.nest(builder, one_tile)


def _loader(
    frame: _Frame, operand: Operand, row_axis: str, rows: int, origin: dict[str, Expr], loops: _KLoops
) -> TileLoader:
    plan = frame.plan
    view = tile_view(operand.view, frame.merged, plan.serial, MASKED_IN_FACTORS)
    corner = {**origin, **loops.serial, "K": loops.step * plan.block_k}
    source = TileSource(operand.name, frame.buffers[operand.name], view, row_axis, corner, loops.symbols)
    transfer = plan.a if row_axis == "M" else plan.b
    return TileLoader(source, rows, plan.block_k, transfer, plan.threads, frame.thread, frame.contraction.acc)


def _multiply(builder: IrBuilder, frame: _Frame, loaders: list[TileLoader], accumulators: Buffer) -> None:
    """Acc += A tile * B tile, one k after the other, every thread on its own part."""
    plan, acc = frame.plan, frame.contraction.acc
    left = builder.allocate(Buffer("a_part", acc, Scope.REGISTER, plan.thread_m))
    right = builder.allocate(Buffer("b_part", acc, Scope.REGISTER, plan.thread_n, plan.lanes))
    with builder.loop("kk", plan.block_k, LoopKind.UNROLLED if plan.unroll_k else LoopKind.SERIAL) as kk:
        a_row, b_row = (kk * loader.row_length for loader in loaders)
        with builder.loop("i", plan.thread_m // plan.chunk_m, LoopKind.UNROLLED) as i:
            at = a_row + _position(i * plan.chunk_m, frame.thread_m, plan.chunk_m, plan.threads_m)
            builder.write(left, i * plan.chunk_m, Read(loaders[0].shared, at, plan.chunk_m))
        width = plan.chunk_n if plan.lanes == 1 else plan.lanes
        with builder.loop("j", plan.thread_n // width, LoopKind.UNROLLED) as j:
            at = b_row + _position(j * width, frame.thread_n, plan.chunk_n, plan.threads_n)
            builder.write(right, j * width, Read(loaders[1].shared, at, width))
        with (
            builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i,
            builder.loop("j", plan.thread_n // plan.lanes, LoopKind.UNROLLED) as j,
        ):
            index = i * plan.thread_n + j * plan.lanes
            factor = Read(left, i) if plan.lanes == 1 else Splat(Read(left, i), plan.lanes)
            product = MultiplyAdd(
                factor, Read(right, j * plan.lanes, plan.lanes), Read(accumulators, index, plan.lanes)
            )
            builder.write(accumulators, index, product)


def _position(index: Expr, thread: Expr, chunk: int, threads: int) -> Expr:
    """Row (column) in the block's tile of a thread's index-th row: chunks of all threads interleave."""
    return (index // chunk) * (chunk * threads) + thread * chunk + index % chunk


class _KLoops:
    """The loop variables over K, fixed in front so that index math can be split by them."""

    def __init__(self, frame: _Frame) -> None:
        extents = {axis.name: axis.extent for axis in frame.contraction.axes}
        self.extents = tuple(simplify(extents[name]) for name in frame.plan.serial)
        self.serial = {
            name: _loop_variable(f"{name}_k", extent)
            for name, extent in zip(frame.plan.serial, self.extents, strict=True)
        }
        self.steps = simplify(frame.k.tiles)
        self.step = _loop_variable("k_tile", self.steps)

    @property
    def symbols(self) -> frozenset[Expr]:
        """What changes from one K tile to the next."""
        return frozenset(variable for variable in (*self.serial.values(), self.step) if variable.op is Op.SYM)

    def nest(self, builder: IrBuilder, body: Callable[[], None]) -> None:
        """Opens all loops around what `body` emits."""
        with ExitStack() as stack:
            for variable, extent in zip((*self.serial.values(), self.step), (*self.extents, self.steps), strict=True):
                stack.enter_context(builder.repeat(variable, extent))
            body()


def _loop_variable(name: str, extent: Expr) -> Expr:
    if extent.op is Op.CONST and extent.value == 1:
        return const(0)
    hi = bounds(extent).hi
    return sym(name, lo=0, hi=None if hi is None else max(hi - 1, 0))


# --- epilogue -------------------------------------------------------------------------------------------------------


def _epilogue(builder: IrBuilder, frame: _Frame, origin: dict[str, Expr], accumulators: Buffer) -> None:
    """Scales, adds bias and the old output, rounds once, stores what lies inside C."""
    plan = frame.plan
    width = plan.store
    with builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i:
        row = origin["M"] + _position(i, frame.thread_m, plan.chunk_m, plan.threads_m)
        with builder.loop("j", plan.thread_n // width, LoopKind.UNROLLED) as j:
            column = origin["N"] + _position(j * width, frame.thread_n, plan.chunk_n, plan.threads_n)
            coordinates = {"M": row, "N": column, "G": origin["G"]}
            _store_part(builder, frame, coordinates, Read(accumulators, i * plan.thread_n + j * width, width))


def _store_part(builder: IrBuilder, frame: _Frame, coordinates: dict[str, Expr], value: Value) -> None:
    contraction, width = frame.contraction, frame.plan.store
    offset, mask = _place(builder, frame, contraction.c, coordinates, MASKED_IN_RESULT)
    old = Read(frame.buffers[contraction.c.name], offset, width, mask)
    value = _scaled(contraction, value, old, width)
    if contraction.bias is not None:
        value = _biased(builder, frame, contraction.bias, coordinates, value)
    builder.write(frame.buffers[contraction.c.name], offset, Convert(value, contraction.c.dtype), mask)


def _scaled(contraction: Contraction, value: Value, old: Read, width: int) -> Value:
    """The sum alpha * value + beta * old, in floating point only where a factor is there."""
    factor_type = _factor_type(contraction.acc)
    if contraction.scaling.alpha:
        value = Binary(BinaryOp.MUL, Convert(value, factor_type), _factor("alpha", factor_type, width))
    if contraction.scaling.beta:
        value = Convert(value, factor_type)
        value = MultiplyAdd(Convert(old, factor_type), _factor("beta", factor_type, width), value)
    return value


def _factor(name: str, dtype: DType, width: int) -> Value:
    parameter = Parameter(name, dtype)
    return parameter if width == 1 else Splat(parameter, width)


def _biased(builder: IrBuilder, frame: _Frame, bias: Operand, coordinates: dict[str, Expr], value: Value) -> Value:
    contraction = frame.contraction
    offset, mask = _place(builder, frame, bias, coordinates)
    exact = not contraction.scaling.alpha and not contraction.scaling.beta and not bias.dtype.is_float
    sum_type = contraction.acc if exact else _factor_type(contraction.acc)
    width = frame.plan.store
    varies = "N" in {axis.name for axis in tile_view(bias.view, frame.merged, ()).axes}
    addend: Value
    if width == 1 or not varies:
        addend = Convert(Read(frame.buffers[bias.name], offset, 1, mask), sum_type)
        addend = addend if width == 1 else Splat(addend, width)
    else:
        addend = Convert(Read(frame.buffers[bias.name], offset, width, mask), sum_type)
    return Binary(BinaryOp.ADD, Convert(value, sum_type), addend)


def _place(
    builder: IrBuilder,
    frame: _Frame,
    operand: Operand,
    coordinates: dict[str, Expr],
    masked: tuple[str, ...] = (),
) -> tuple[Expr, Expr | None]:
    """(offset, mask if one is needed) of an epilogue operand at a point of C."""
    view = tile_view(operand.view, frame.merged, (), masked)
    access = view.access({axis.name: coordinates[axis.name] for axis in view.axes})
    mask = simplify(all_of(*access.conditions))
    return builder.let(f"{operand.name}_at", access.offset), None if mask is const(1) else mask
