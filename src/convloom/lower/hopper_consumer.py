"""The consumers' role: warpgroups that multiply what is in the ring and store their part of each tile."""

from __future__ import annotations

from dataclasses import replace

from convloom.expr import Expr, all_of, bounds, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Argument, Buffer, Constant, LoopKind, Read, Registers, Value
from convloom.lower.decode_block import BlockPlace
from convloom.lower.epilogue import result_part, store_part
from convloom.lower.hopper_frame import HopperFrame
from convloom.lower.hopper_tiles import Tiles
from convloom.lower.k_loops import KLoops
from convloom.lower.partial_sums import store_partial
from convloom.lower.ring import RingBarriers, RingPlace
from convloom.lower.store_shared import ConsumerStore, SharedStore
from convloom.lower.tensor_copies import TensorCopies
from convloom.lower.warpgroup_sums import WarpgroupSums
from convloom.plan.split import Reduction
from convloom.target.catalogue import row_named
from convloom.target.nvidia_wgmma import WARPGROUP


def consume(
    builder: IrBuilder,
    frame: HopperFrame,
    tiles: Tiles,
    copies: tuple[TensorCopies, TensorCopies],
    barriers: RingBarriers,
    shared: SharedStore | None,
) -> None:
    """Sums one tile after the other; a stage is given back one step late, when its multiply is surely done."""
    frame = replace(frame, member=builder.let("member", frame.member))
    sums = WarpgroupSums(frame.plan, frame.member)
    builder.allocate(sums.accumulators)
    ring = RingPlace(builder, barriers.stages, parity=0)
    multiplies = _Multiplies(frame, copies, sums.accumulators)
    chunks = None if shared is None else shared.prepare(builder)
    with tiles.each(builder, KLoops(frame)) as (place, steps):
        if bounds(steps.count).lo != 0:
            _sum(builder, frame, steps.count, ring, barriers, multiplies)
        else:
            _clear(builder, steps.count, sums.accumulators)
            with builder.condition(steps.count.gt(0)):
                _sum(builder, frame, steps.count, ring, barriers, multiplies)
        if frame.plan.split.how is not Reduction.NONE:
            store_partial(builder, frame, place, sums)
        elif chunks is not None:
            _store_chunks(builder, frame, place, sums, chunks)
        else:
            _store(builder, frame, place, sums)
    if chunks is not None:
        chunks.finish(builder)


def _clear(builder: IrBuilder, count: Expr, accumulators: Buffer) -> None:
    """An empty sum is 0; others begin with a multiply that does not add."""
    assert accumulators.dtype is not None
    with builder.condition(count.eq(0)), builder.loop("i", accumulators.size, LoopKind.UNROLLED) as i:
        builder.write(accumulators, i, Constant(0, accumulators.dtype))


def _sum(
    builder: IrBuilder,
    frame: HopperFrame,
    count: Expr,
    ring: RingPlace,
    barriers: RingBarriers,
    multiplies: _Multiplies,
) -> None:
    """Over the K tiles of one sum, of which there is one at least."""
    first = frame.first_of_group
    with builder.loop("step", count) as step:
        stage, parity = ring.here(builder)
        barriers.wait(builder, barriers.full, stage, parity)
        multiplies.emit(builder, stage, step)
        builder.instruct(row_named("wgmma.wait_group"), pending=const(1))
        with builder.condition(simplify(all_of(first, step.gt(0)))):
            barriers.release(builder, ring.before(builder, stage))
        ring.advance(builder, stage, parity)
    builder.instruct(row_named("wgmma.wait_group"), pending=const(0))
    stage, _ = ring.here(builder)
    with builder.condition(first):
        barriers.release(builder, ring.before(builder, stage))


class _Multiplies:
    """The multiplies of one stage: all depths of k, of all fragments of a consumer."""

    def __init__(self, frame: HopperFrame, copies: tuple[TensorCopies, TensorCopies], accumulators: Buffer) -> None:
        self._plan, self._copies, self._acc = frame.plan, copies, accumulators
        self._consumer = simplify(frame.member // WARPGROUP)

    def emit(self, builder: IrBuilder, stage: Expr, step: Expr) -> None:
        """As one group; the first depth of the first step overwrites the sums."""
        plan, row = self._plan, self._plan.instruction
        m, _, k = row.shape
        builder.instruct(row_named("wgmma.fence"))
        for depth in range(0, plan.block_k, k):
            for number in range(plan.multiplies):
                fragment = (self._consumer * plan.multiplies + number) * m
                count = row.operand("d").registers
                accumulate = const(1) if depth else step.gt(0)
                arguments: dict[str, Argument] = {
                    "d": Registers(self._acc, const(number * count), count),
                    "a": self._copies[0].descriptor(stage, fragment, depth),
                    "b": self._copies[1].descriptor(stage, 0, depth),
                    "accumulate": accumulate,
                    **self._immediates(),
                }
                builder.instruct(row, **arguments)
        builder.instruct(row_named("wgmma.commit_group"))

    def _immediates(self) -> dict[str, Expr]:
        """Of those that the row has: signs of the operands, and which way their tiles lie."""
        a, b = self._copies
        known = {"sign_a": 1, "sign_b": 1, "major_a": a.major.value, "major_b": b.major.value}
        names = {operand.name for operand in self._plan.instruction.operands}
        return {name: const(value) for name, value in known.items() if name in names}


def _store_chunks(
    builder: IrBuilder, frame: HopperFrame, place: BlockPlace, sums: WarpgroupSums, chunks: ConsumerStore
) -> None:
    """The epilogue over every pair of columns, on its way to shared memory."""
    corner = place.corner

    def convert(row: Expr, column: Expr, value: Read) -> Value:
        coordinates = {"M": corner["M"] + row, "N": corner["N"] + column, "G": corner["G"]}
        return result_part(builder, frame, coordinates, value)

    chunks.store(builder, corner, sums.accumulators, convert)


def _store(builder: IrBuilder, frame: HopperFrame, place: BlockPlace, sums: WarpgroupSums) -> None:
    """The epilogue over every run of columns that a thread holds."""
    corner = place.corner

    def emit(row: Expr, column: Expr, value: Read) -> None:
        coordinates = {"M": corner["M"] + row, "N": corner["N"] + column, "G": corner["G"]}
        store_part(builder, frame, coordinates, value)

    sums.each_part(builder, emit)
