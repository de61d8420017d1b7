"""The producer's role: one thread that keeps the ring full of tiles."""

from __future__ import annotations

from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address
from convloom.lower.hopper_frame import HopperFrame
from convloom.lower.hopper_tiles import Tiles
from convloom.lower.k_loops import KLoops
from convloom.lower.ring import RingBarriers, RingPlace
from convloom.lower.tensor_copies import TensorCopies, split_flat
from convloom.target.catalogue import row_named


def produce(
    builder: IrBuilder,
    frame: HopperFrame,
    tiles: Tiles,
    copies: tuple[TensorCopies, TensorCopies],
    barriers: RingBarriers,
) -> None:
    """Waits until a stage is empty, then asks for its tiles; runs ahead by as many stages as there are."""
    for item in copies:
        builder.instruct(row_named("prefetch.tensormap"), map=item.map)
    ring = RingPlace(builder, barriers.stages, parity=1)  # of empty stages the phase before the first is over
    nbytes = sum(item.nbytes for item in copies)
    loops = KLoops(frame)
    with tiles.each(builder, loops) as (place, steps):
        groups = split_flat(builder, frame.g, place.corner["G"])
        a, b = (item.prepare(builder, place.corner[name]) for item, name in zip(copies, ("M", "N"), strict=True))

        def step() -> None:
            start = loops.tile * frame.plan.block_k
            others = {**loops.serial, **groups, **split_flat(builder, frame.k, start), "K": start}
            stage, parity = ring.here(builder)
            barriers.wait(builder, barriers.empty, stage, parity)
            barriers.expect(builder, stage, nbytes)
            for item, places in zip(copies, (a, b), strict=True):
                item.load(builder, stage, places, others, Address(barriers.full, stage))
            ring.advance(builder, stage, parity)

        loops.linear(builder, steps, step)
