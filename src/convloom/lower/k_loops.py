"""The loops over K: nested ones, or one linear count of steps that a software pipeline can run ahead of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from convloom.expr import Expr, Op, bounds, const, local_sym, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import LoopKind
from convloom.lower.frame import GridFrame
from convloom.lower.multiply import Stages, TileProduct


@dataclass(frozen=True, slots=True)
class KRange:
    """Consecutive steps of the linear count over all K loops."""

    first: Expr
    count: Expr


class KLoops:
    """The loop variables over K, fixed in front so that index math can be split by them."""

    def __init__(self, frame: GridFrame) -> None:
        extents = {axis.name: axis.extent for axis in frame.contraction.axes}
        self._extents = tuple(simplify(extents[name]) for name in frame.plan.serial)
        self.serial = {
            name: _loop_variable(f"{name}_k", extent)
            for name, extent in zip(frame.plan.serial, self._extents, strict=True)
        }
        self._tiles = simplify(frame.k.tiles)
        self.tile = _loop_variable("k_tile", self._tiles)

    @property
    def symbols(self) -> frozenset[Expr]:
        """What changes from one K tile to the next."""
        return frozenset(variable for variable, _ in self._all() if variable.op is Op.SYM)

    @property
    def steps(self) -> Expr:
        """Number of K tiles over all loops."""
        total = self._tiles
        for extent in self._extents:
            total = total * extent
        return simplify(total)

    def nest(self, builder: IrBuilder, body: Callable[[], None]) -> None:
        """Opens all loops around what `body` emits."""
        with ExitStack() as stack:
            for variable, extent in self._all():
                stack.enter_context(builder.repeat(variable, extent))
            body()

    def linear(self, builder: IrBuilder, steps: KRange, body: Callable[[], None]) -> None:
        """One loop over a range of steps around what `body` emits."""
        step = local_sym("step", lo=0, hi=_last(steps.count))
        with builder.repeat(step, steps.count):
            self.bind(builder, steps.first + step)
            body()

    def bind(self, builder: IrBuilder, step: Expr) -> None:
        """Gives the loop variables their values at a step of the linear count."""
        rest = step
        for place, (variable, extent) in enumerate(reversed(self._all())):
            outermost = place == len(self._all()) - 1
            if variable.op is Op.SYM:
                builder.bind(variable, simplify(rest if outermost else rest % extent))
            rest = rest // extent

    def _all(self) -> tuple[tuple[Expr, Expr], ...]:
        """(variable, extent), outermost first."""
        return (*zip(self.serial.values(), self._extents, strict=True), (self.tile, self._tiles))


@dataclass(frozen=True, slots=True)
class Journeys:
    """How the tiles of a step come to their slot.

    `fetch(step, slot)` asks for them, `deposit(slot)` puts those that went to registers into shared memory (None: none
    do), `close(pending)` is called behind a step's fetches with -1 (its copies form a group), and in front of a barrier
    with the number of groups that may still be in flight.
    """

    fetch: Callable[[Expr, Expr], None]
    deposit: Callable[[Expr], None] | None
    close: Callable[[int], None]


def run_pipeline(
    builder: IrBuilder,
    steps: KRange,
    stages: int,
    journeys: Journeys,
    product: TileProduct,
    stages_of: Callable[[Expr], Stages],
) -> None:
    """Runs fetches stages - 1 steps ahead of the products, over a range of steps; one barrier a step.

    What goes by registers is asked for at the beginning of a step and deposited behind its products, so that these
    hide the latency. Where the product carries its registers from tile to tile, the first fragments of the next tile
    are loaded behind the barrier and in front of the last products: the multiplying units never wait for a barrier.
    """
    ahead = stages - 1
    with builder.loop("s", ahead, LoopKind.UNROLLED) as s:
        with builder.condition(simplify(s.lt(steps.count))):
            journeys.fetch(steps.first + s, s)
            if journeys.deposit is not None:
                journeys.deposit(s)
        journeys.close(-1)
    if product.carries:
        _arrive(builder, journeys, ahead)
        with builder.condition(simplify(steps.count.gt(0))):
            product.load(stages_of(const(0)), product.first, const(0))
    step = local_sym("step", lo=0, hi=_last(steps.count))
    with builder.repeat(step, steps.count):
        if not product.carries:
            _arrive(builder, journeys, ahead)
        slot, coming = simplify(step % stages), simplify((step + ahead) % stages)
        fetched = simplify((step + ahead).lt(steps.count))
        with builder.condition(fetched):
            journeys.fetch(steps.first + step + ahead, coming)
        journeys.close(-1)
        if not product.carries:
            product.run(builder, stages_of(slot))
        else:
            product.run_ahead(builder, stages_of(slot))
        if journeys.deposit is not None:
            with builder.condition(fetched):
                journeys.deposit(coming)
        if product.carries:
            _arrive(builder, journeys, ahead)
            with builder.condition(simplify((step + 1).lt(steps.count))):
                product.load(stages_of(simplify((step + 1) % stages)), product.first, const(0))
            product.multiply(const(product.slots - 1))


def _arrive(builder: IrBuilder, journeys: Journeys, ahead: int) -> None:
    """Waits until the next step's tiles are there for all threads, and its predecessor's slot is read by none."""
    journeys.close(ahead - 1)
    builder.barrier()


def _last(extent: Expr) -> int | None:
    hi = bounds(extent).hi
    return None if hi is None else max(hi - 1, 0)


def _loop_variable(name: str, extent: Expr) -> Expr:
    if extent.op is Op.CONST and extent.value == 1:
        return const(0)
    return local_sym(name, lo=0, hi=_last(extent))
