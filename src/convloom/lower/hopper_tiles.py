"""The tiles that a persistent block computes, one after the other."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from convloom.expr import const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.symbols import BLOCK_ID
from convloom.lower.decode_block import BlockPlace, decode_block
from convloom.lower.hopper_frame import HopperFrame
from convloom.lower.k_loops import KLoops, KRange
from convloom.lower.partial_sums import steps_of_part


class Tiles:
    """Block b takes the tiles b, b + blocks, b + 2 * blocks, ..; every role of a block walks over the same ones."""

    def __init__(self, builder: IrBuilder, frame: HopperFrame) -> None:
        self._frame = frame
        left = builder.let("left", frame.total - 1 - BLOCK_ID, below=frame.total)
        self._turns = builder.let("turns", left // frame.blocks + 1)

    @contextmanager
    def each(self, builder: IrBuilder, loops: KLoops) -> Generator[tuple[BlockPlace, KRange]]:
        """A loop over the tiles; yields the place of one, and the K tiles of its sum."""
        frame = self._frame
        with builder.loop("turn", self._turns) as turn:
            number = builder.let("number", BLOCK_ID + turn * frame.blocks, below=frame.total)
            place = decode_block(builder, frame, frame.plan.split.parts, number=number)
            if frame.plan.split.parts > 1:
                yield place, steps_of_part(builder, frame, place.part, loops.steps)
            else:
                yield place, KRange(const(0), simplify(loops.steps))
