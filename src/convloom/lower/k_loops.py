"""The loops over K: nested ones, or one linear count of steps that a software pipeline can run ahead of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from convloom.expr import Expr, Op, bounds, const, local_sym, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import LoopKind
from convloom.lower.frame import Frame


@dataclass(frozen=True, slots=True)
class KRange:
    """Consecutive steps of the linear count over all K loops."""

    first: Expr
    count: Expr


class KLoops:
    """The loop variables over K, fixed in front so that index math can be split by them."""

    def __init__(self, frame: Frame) -> None:
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


def run_pipeline(
    builder: IrBuilder,
    steps: KRange,
    stages: int,
    fetch: Callable[[Expr, Expr], None],
    close: Callable[[int], None],
    consume: Callable[[Expr], None],
) -> None:
    """Runs `fetch(step, slot)` stages - 1 steps ahead of `consume(slot)`, over a range of steps.

    `close(pending)` is called behind the last fetch of a step with -1 (its copies form a group), and in front of a
    barrier with the number of groups that may still be in flight.
    """
    ahead = stages - 1
    with builder.loop("s", ahead, LoopKind.UNROLLED) as s:
        with builder.condition(simplify(s.lt(steps.count))):
            fetch(steps.first + s, s)
        close(-1)
    step = local_sym("step", lo=0, hi=_last(steps.count))
    with builder.repeat(step, steps.count):
        close(ahead - 1)
        builder.barrier()
        with builder.condition(simplify((step + ahead).lt(steps.count))):
            fetch(steps.first + step + ahead, simplify((step + ahead) % stages))
        close(-1)
        consume(simplify(step % stages))


def _last(extent: Expr) -> int | None:
    hi = bounds(extent).hi
    return None if hi is None else max(hi - 1, 0)


def _loop_variable(name: str, extent: Expr) -> Expr:
    if extent.op is Op.CONST and extent.value == 1:
        return const(0)
    return local_sym(name, lo=0, hi=_last(extent))
