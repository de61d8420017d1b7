"""Random static chains of transforms, and what they do on all points."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from convloom.expr import evaluate
from convloom.view import (
    OFFSET,
    Affine,
    Axis,
    Broadcast,
    Const,
    Join,
    Modulo,
    Pad,
    PadTo,
    Pass,
    Slice,
    Split,
    Transform,
    View,
)

IntArray = NDArray[np.int64]

EXTENTS = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16)
RADIXES = (1, 2, 2, 3, 4, 4, 6, 8)


class ChainBuilder:
    """Draws transforms one by one; remembers the live coordinates and how many values each can take (roughly)."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.live: dict[str, int] = {}
        self.transforms: list[Transform] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def take(self) -> tuple[str, int]:
        name = self.rng.choice(list(self.live))
        return name, self.live.pop(name)

    def put(self, transform: Transform, *sizes: int) -> None:
        self.transforms.append(transform)
        self.live.update(zip(transform.outputs, sizes, strict=True))

    def pass_(self) -> None:
        name, size = self.take()
        self.put(Pass(name, self.fresh()), size)

    def affine(self) -> None:
        name, size = self.take()
        rng = self.rng
        if self.live and rng.random() < 0.6:
            other, other_size = self.take()
            a, b = rng.choice((1, 1, 2, 3, 4, 8)), rng.choice((1, 1, 2, 4, size))
            out = Affine((name, other), self.fresh(), (a, b), rng.choice((0, 0, 1, 2, 4)))
            self.put(out, a * (size - 1) + b * (other_size - 1) + 1)
        else:
            a = rng.choice((1, 1, 2, 3, 4, -1))
            constant = size - 1 if a < 0 else rng.choice((0, 0, 1, 2, 4))
            self.put(Affine((name,), self.fresh(), (a,), constant), abs(a) * (size - 1) + 1)

    def split(self) -> None:
        name, size = self.take()
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        inner = self.rng.choice(divisors if self.rng.random() < 0.7 else RADIXES)
        outer = -(-size // inner)
        self.put(Split(name, (self.fresh(), self.fresh()), (outer, inner)), outer, inner)

    def join(self) -> None:
        if len(self.live) < 2:
            self.split()
            return
        (slow, slow_size), (fast, fast_size) = self.take(), self.take()
        self.put(Join((slow, fast), self.fresh(), (slow_size, fast_size)), slow_size * fast_size)

    def pad(self) -> None:
        name, size = self.take()
        left, right = self.rng.choice((0, 0, 1, 2, 4, -1)), self.rng.choice((0, 0, 1, 2, 4))
        inside = max(1, size - left - right)
        self.put(Pad(name, self.fresh(), left, inside), inside)

    def pad_to(self) -> None:
        name, size = self.take()
        inside = max(1, size - self.rng.choice((0, 1, 2, 4)))
        self.put(PadTo(name, self.fresh(), inside), inside)

    def slice(self) -> None:
        name, size = self.take()
        begin, step = self.rng.choice((0, 1, 2, 4)), self.rng.choice((1, 1, 2))
        self.put(Slice(name, self.fresh(), begin, step), begin + step * (size - 1) + 1)

    def modulo(self) -> None:
        name, _ = self.take()
        extent = self.rng.choice(RADIXES)
        self.put(Modulo(name, self.fresh(), extent), extent)

    def const(self) -> None:
        self.put(Const(self.fresh(), self.rng.choice((0, 1, 4))), 1)

    def broadcast(self) -> None:
        name, _ = self.take()
        self.transforms.append(Broadcast(name))
        if not self.live:
            self.const()

    def finish(self) -> None:
        """The last Affine to the offset: mostly dense row-major strides in random order, sometimes with gaps."""
        names = list(self.live)
        self.rng.shuffle(names)
        stride, coefficients = 1, []
        for name in names:
            coefficients.append(self.rng.choice((stride, stride, stride, stride, 0, -stride, 2 * stride)))
            stride *= self.live[name] + self.rng.choice((0, 0, 0, 1, 4))
        self.transforms.append(Affine(names, OFFSET, coefficients, self.rng.choice((0, 0, 0, 1, 4, 8))))


STEPS = (
    *(ChainBuilder.split,) * 4,
    *(ChainBuilder.join,) * 4,
    *(ChainBuilder.affine,) * 3,
    *(ChainBuilder.pad,) * 2,
    ChainBuilder.pass_,
    ChainBuilder.pad_to,
    ChainBuilder.slice,
    ChainBuilder.modulo,
    ChainBuilder.const,
    ChainBuilder.broadcast,
)


def random_view(rng: random.Random, steps: int) -> View:
    """A view of one to three axes through the given number of random transforms and a last Affine."""
    builder = ChainBuilder(rng)
    axes = tuple(Axis(name, rng.choice(EXTENTS)) for name in "abc"[: rng.choice((1, 2, 2, 3))])
    builder.live = {axis.name: axis.extent.value for axis in axes}
    for _ in range(steps):
        rng.choice(STEPS)(builder)
    builder.finish()
    return View(axes, tuple(builder.transforms))


def all_points(view: View, sizes: dict[str, int] | None = None) -> tuple[IntArray, IntArray]:
    """(offsets, validity) on all coordinates, one array dimension per axis."""
    shape = [int(evaluate(axis.extent, sizes or {})) for axis in view.axes]
    grid = np.meshgrid(*[np.arange(size) for size in shape], indexing="ij")
    found = view.access({axis.name: values for axis, values in zip(view.axes, grid, strict=True)}, sizes)
    valid = np.ones(shape, dtype=np.int64)
    for condition in found.conditions:
        valid = valid & condition
    return np.broadcast_to(found.offset, shape), valid


def brute_force_width(view: View, axis: str, limit: int, points: tuple[IntArray, IntArray]) -> int:
    """The largest width that holds on all points, by the definition of vector_width."""
    position = [own.name for own in view.axes].index(axis)
    offsets, valid = (np.moveaxis(array, position, -1) for array in points)
    width = limit
    while width > 1 and not _width_holds(offsets, valid, width):
        width //= 2
    return width


def _width_holds(offsets: IntArray, valid: IntArray, width: int) -> bool:
    if offsets.shape[-1] % width:
        return False
    lanes = offsets.reshape(-1, width)
    inside = valid.reshape(-1, width).astype(bool)
    if np.any(inside.any(axis=1) != inside.all(axis=1)):
        return False
    lanes = lanes[inside.all(axis=1)]
    consecutive = np.all(lanes == lanes[:, :1] + np.arange(width))
    return bool(consecutive and np.all(lanes[:, 0] % width == 0))
