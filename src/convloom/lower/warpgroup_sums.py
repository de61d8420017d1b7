"""A tile of C in the accumulators of warpgroups that multiply."""

from __future__ import annotations

from convloom.expr import Expr, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, LoopKind, Read, Scope
from convloom.lower.multiply import EmitPart
from convloom.plan.hopper import HopperPlan
from convloom.target.nvidia_wgmma import WARPGROUP


class WarpgroupSums:
    """Fragments of one instruction below each other, those of one consumer behind each other.

    `member`: the place of the thread among the consumers' threads.
    """

    def __init__(self, plan: HopperPlan, member: Expr, acc: Buffer | None = None) -> None:
        self._plan, self._row = plan, plan.instruction
        self._consumer, self._lane = simplify(member // WARPGROUP), simplify(member % WARPGROUP)
        dtype = self._row.fragment("d").dtype
        self._acc = acc or Buffer("acc", dtype, Scope.REGISTER, plan.accumulators)

    @property
    def accumulators(self) -> Buffer:
        """See `multiply.Sums`."""
        return self._acc

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """See `multiply.Sums`."""
        fragment = self._row.fragment("d")
        rows, columns = fragment.shape
        place = fragment.layout.access({"lane": self._lane, "element": simplify(number % fragment.elements)}).offset
        first = self._consumer * self._plan.multiplies + number // fragment.elements
        return simplify(first * rows + place // columns), simplify(place % columns)

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """The runs of `store` neighbouring columns that a thread holds."""
        store = self._plan.store
        with builder.loop("i", self._plan.accumulators // store, LoopKind.UNROLLED) as i:
            row, column = self.place(i * store)
            emit(row, column, Read(self._acc, i * store, store))
