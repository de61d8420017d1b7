"""Puts the plan's tiles on top of an operand's view: flat m, n, k and g instead of the contraction's axes."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.expr import Expr, const
from convloom.problem.contraction import Contraction
from convloom.view import Axis, Broadcast, PadTo, Split, Transform, View


@dataclass(frozen=True, slots=True)
class Merged:
    """A flat axis made of contraction axes, slowest first; run up to a multiple of `multiple` and masked there."""

    name: str
    parts: tuple[str, ...]
    extents: tuple[Expr, ...]
    multiple: int

    @property
    def extent(self) -> Expr:
        """Product of the parts."""
        product = const(1)
        for extent in self.extents:
            product = product * extent
        return product

    @property
    def tiles(self) -> Expr:
        """Number of tiles of `multiple`."""
        return (self.extent + (self.multiple - 1)) // self.multiple


# Tiles run over the ends of axes: the factors must read zeros beyond the end of K, the result must be stored once.
MASKED_IN_FACTORS = ("K",)
MASKED_IN_RESULT = ("M", "N")


def merged_axis(contraction: Contraction, name: str, parts: tuple[str, ...], multiple: int = 1) -> Merged:
    """The flat axis `name` over the named axes of a contraction."""
    extents = {axis.name: axis.extent for axis in contraction.axes}
    return Merged(name, parts, tuple(extents[part] for part in parts), multiple)


def tile_view(view: View, merged: tuple[Merged, ...], serial: tuple[str, ...], masked: tuple[str, ...] = ()) -> View:
    """The view with each merged axis in place of its parts; `serial` axes stay, those that the view lacks are dropped.

    The flat axes in `masked` are kept, for their check, even where the view has none of their parts.
    """
    own = {axis.name: axis for axis in view.axes}
    axes: list[Axis] = [own[name] for name in serial if name in own]
    transforms: list[Transform] = []
    for flat in merged:
        present = [part for part in flat.parts if part in own]
        if not present and flat.name not in masked:
            continue
        axes.append(Axis(flat.name, flat.tiles * flat.multiple))
        transforms += _split_transforms(flat, frozenset(present))
    return view.prepend(tuple(axes), tuple(transforms))


def _split_transforms(flat: Merged, present: frozenset[str]) -> list[Transform]:
    transforms: list[Transform] = []
    source = flat.name
    if flat.multiple > 1:
        transforms.append(PadTo(flat.name, f"{flat.name}'", flat.extent))
        source = f"{flat.name}'"
    if not flat.parts:
        return [*transforms, Broadcast(source)]
    outputs = tuple(part if part in present else f"{part}.absent" for part in flat.parts)
    transforms.append(Split(source, outputs, flat.extents))
    transforms += [Broadcast(name) for name in outputs if name.endswith(".absent")]
    return transforms
