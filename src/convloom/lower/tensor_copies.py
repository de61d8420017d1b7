"""Tensor copies of one operand: its map as a kernel parameter, and the boxes that make up one stage's tile."""

from __future__ import annotations

from convloom.expr import Expr, simplify, substitute
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Address, Buffer, Descriptor, MapParameter, Numbers, Scope
from convloom.plan.bulk_copy import SPAN, BulkCopy, CopyKind, flat_symbol
from convloom.plan.flat_axis import Merged
from convloom.problem.access_pattern import axis_symbol
from convloom.problem.contraction import Operand
from convloom.target.catalogue import row_named
from convloom.target.group_multiply import CHUNK, CORE_ROWS, Major
from convloom.target.swizzle import Swizzle
from convloom.target.tensor_map import MAX_BOX

TILE_ALIGNMENT = 1024
"""Bytes: rows of a swizzled tile repeat their pattern after 8 spans."""


def split_flat(builder: IrBuilder, direction: Merged, start: Expr) -> dict[str, Expr]:
    """The axes of a flat index at a value of it, by name."""
    found: dict[str, Expr] = {}
    rest = start
    for place, (part, extent) in reversed(list(enumerate(zip(direction.parts, direction.extents, strict=True)))):
        found[part] = builder.let(f"{part}_at", rest if place == 0 else rest % extent)
        rest = rest // extent
    return found


class TensorCopies:
    """The copies of one operand. `rows` and `k` are its directions, with the tile's sizes as multiples."""

    def __init__(self, operand: Operand, buffer: Buffer, copy: BulkCopy, rows: Merged, k: Merged, stages: int) -> None:
        self._copy, self._rows, self._k = copy, rows, k
        self._operand = operand
        self._span = SPAN // operand.dtype.nbytes
        self.size = rows.multiple * k.multiple
        self.nbytes = self.size * operand.dtype.nbytes
        self.shared = Buffer(
            f"{operand.name}_tile", operand.dtype, Scope.SHARED, stages * self.size, alignment=TILE_ALIGNMENT
        )
        self._boxes = -(-rows.multiple // MAX_BOX) if copy.major is Major.K else rows.multiple // self._span
        self.map = self._map(buffer)

    def _map(self, buffer: Buffer) -> MapParameter:
        copy, nbytes = self._copy, self._operand.dtype.nbytes
        outer = self._rows.multiple // self._boxes if copy.major is Major.K else self._k.multiple
        dimensions = copy.dimensions
        name, sizes = f"{self._operand.name}_map", tuple(item.size for item in dimensions)
        strides = tuple(simplify(item.stride * nbytes) for item in dimensions[1:])
        steps = tuple(item.step for item in dimensions)
        if copy.kind is CopyKind.TILE:
            box = (self._span, outer, *(1 for _ in dimensions[2:]))
            return MapParameter(name, buffer, sizes, strides, steps, Swizzle.B128, box=box, offset=copy.offset)
        windows = dimensions[1:-1]
        return MapParameter(
            name,
            buffer,
            sizes,
            strides,
            steps,
            Swizzle.B128,
            lower=tuple(item.lower for item in windows),
            upper=tuple(item.upper for item in windows),
            channels=self._span,
            pixels=outer,
            offset=copy.offset,
        )

    # --- loads ------------------------------------------------------------------------------------------------------

    def prepare(self, builder: IrBuilder, corner: Expr) -> list[dict[str, Expr]]:
        """What of each box's place K does not change: the axes of its first row, and that row's flat index."""
        step = self._rows.multiple // self._boxes
        places: list[dict[str, Expr]] = []
        for box in range(self._boxes):
            start = simplify(corner + box * step)
            places.append({**split_flat(builder, self._rows, start), self._rows.name: start})
        return places

    def load(
        self,
        builder: IrBuilder,
        stage: Expr,
        places: list[dict[str, Expr]],
        others: dict[str, Expr],
        barrier: Address,
    ) -> None:
        """Issues the copies of one stage; `others`: the axes of K, serial ones and groups, and K itself."""
        row = row_named(f"cp.async.bulk.tensor.{self._copy.rank}d.{_MODES[self._copy.kind]}.load")
        box_size = self.size // self._boxes
        for box, place in enumerate(places):
            table = self._table({**place, **others})
            starts = [simplify(substitute(item.start, table)) for item in self._copy.dimensions]
            words = {}
            if self._copy.kind is CopyKind.COLUMNS:
                shifts = [item.shift for item in self._copy.dimensions[1:-1]]
                words = {"offsets": Numbers(tuple(simplify(substitute(item, table)) for item in shifts))}
            builder.instruct(
                row,
                destination=Address(self.shared, stage * self.size + box * box_size),
                map=self.map,
                coordinates=Numbers(tuple(starts)),
                barrier=barrier,
                **words,
            )

    def _table(self, values: dict[str, Expr]) -> dict[Expr, Expr]:
        table = {axis_symbol(axis): values[axis.name] for axis in self._operand.view.axes if axis.name in values}
        return table | {flat_symbol(item.name): values[item.name] for item in (self._rows, self._k)}

    # --- reads ------------------------------------------------------------------------------------------------------

    def descriptor(self, stage: Expr, row: Expr | int, depth: int) -> Descriptor:
        """The matrix of one multiply: from a row (a multiple of the span, or 8) and a number of k on."""
        if self._copy.major is Major.K:
            place = stage * self.size + row * self._span + depth
            return Descriptor(self.shared, place, CHUNK, CORE_ROWS * SPAN, Swizzle.B128)
        block = self._k.multiple * self._span  # a block of `span` rows, all k
        place = stage * self.size + row * self._k.multiple + depth * self._span
        return Descriptor(self.shared, place, block * self._operand.dtype.nbytes, CORE_ROWS * SPAN, Swizzle.B128)

    @property
    def major(self) -> Major:
        """The direction along which the tile is contiguous."""
        return self._copy.major


_MODES = {CopyKind.TILE: "tile", CopyKind.COLUMNS: "im2col"}
