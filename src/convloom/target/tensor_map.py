"""Tensor maps of sm_90's tensor copies: a box of a tensor in global memory, tiled or as image columns.

Rules: CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col. Dimensions count from the fastest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.target.number_format import Array
from convloom.target.swizzle import Swizzle

GRANULE = 16
"""Bytes: of every stride, of the box's rows, and of the first coordinate's steps."""
MAX_BOX = 256
MAX_PIXELS = 1024
MAX_STEP = 8
CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}


@dataclass(frozen=True)
class TensorMap:
    """What both kinds share: element type, address in global memory, sizes, byte strides of dimensions 1 and up."""

    dtype: DType
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: Swizzle

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def row_elements(self) -> int:
        """Elements along dimension 0 that one copy moves."""
        raise NotImplementedError

    @property
    def row_bytes(self) -> int:
        """Bytes that are copied of a row of the tile."""
        return self.row_elements * self.dtype.nbytes

    @property
    def row_pitch(self) -> int:
        """Bytes from row to row of the tile in shared memory: a swizzled row takes the whole span."""
        return self.swizzle.value or self.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes that one copy moves and counts, those outside the tensor included."""
        raise NotImplementedError

    @property
    def tile_bytes(self) -> int:
        """Bytes from the start of the tile in shared memory to the end of its last row."""
        return self.nbytes // self.row_bytes * self.row_pitch

    def tile_offsets(self) -> Array:
        """Where each unit of the tile lies in shared memory before swizzling, in the order of `coordinates`."""
        rows = np.arange(self.nbytes // self.row_bytes) * self.row_pitch
        return (rows[:, None] + np.arange(0, self.row_bytes, self.unit)).reshape(-1)

    @cached_property
    def unit(self) -> int:
        """Bytes that are inside or outside the tensor together."""
        return gcd(GRANULE, self.sizes[0] * self.dtype.nbytes, self.row_bytes)

    def broken_rules(self) -> tuple[str, ...]:
        """Every rule that the map breaks, in words; the driver refuses such a map."""
        return tuple(_shared_rules(self)) + tuple(self._own_rules())

    def _own_rules(self) -> Iterator[str]:
        raise NotImplementedError

    def check(self) -> None:
        """IllegalProblem if a rule is broken."""
        broken = self.broken_rules()
        if broken:
            raise IllegalProblem(
                f"a tensor map must obey its rules; broken: {'; '.join(broken)}; change the tile or layout"
            )

    def byte_addresses(self, coordinates: Array, row_granule: int = 1) -> tuple[Array, Array]:
        """(addresses of units, whether inside) at coordinates (.., rank): the first in bytes, others in elements.

        The end of dimension 0 counts as rounded up to `row_granule` bytes.
        """
        row = -(-self.sizes[0] * self.dtype.nbytes // row_granule) * row_granule
        limits = np.array([row, *self.sizes[1:]])
        inside = np.all((coordinates >= 0) & (coordinates < limits), axis=-1)
        return self.address + coordinates @ np.array([1, *self.strides]), np.asarray(inside)

    def _row_units(self, first: Array) -> Array:
        """Byte coordinates of a row's units: (*batch,) element coordinates -> (*batch, units)."""
        start = first * self.dtype.nbytes
        if (start % GRANULE).any():
            raise IllegalProblem(
                f"the first coordinate of a tensor copy must be a multiple of {GRANULE} bytes; got {start.min()}; "
                "shift along another dimension"
            )
        return start[..., None] + np.arange(0, self.row_bytes, self.unit)


@dataclass(frozen=True)
class TiledMap(TensorMap):
    """A box of `box[i]` positions in every dimension, of which each `steps[i]`-th is copied (dimension 0: all)."""

    box: tuple[int, ...]

    @property
    def row_elements(self) -> int:
        """See `TensorMap`."""
        return self.box[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements copied along each dimension."""
        return (self.box[0], *(-(-size // step) for size, step in zip(self.box[1:], self.steps[1:], strict=True)))

    @property
    def nbytes(self) -> int:
        """See `TensorMap`."""
        return int(np.prod(self.counts)) * self.dtype.nbytes

    def coordinates(self, start: Array) -> Array:
        """Coordinates of all units of the box at `start`: (*batch, rank) -> (*batch, units, rank), fastest first."""
        axes = [self._row_units(start[..., 0])]
        for dimension in range(1, self.rank):
            along = np.arange(self.counts[dimension]) * self.steps[dimension]
            axes.append(start[..., dimension, None] + along)
        shape = tuple(axis.shape[-1] for axis in axes)
        batch = start.shape[:-1]
        spread = [
            np.broadcast_to(
                axis.reshape(*batch, *(-1 if i == self.rank - 1 - d else 1 for i in range(self.rank))),
                (*batch, *shape[::-1]),
            )
            for d, axis in enumerate(axes)
        ]
        return np.stack(spread, axis=-1).reshape(*batch, -1, self.rank)

    def _own_rules(self) -> Iterator[str]:
        if not 1 <= self.rank <= 5:
            yield f"1 to 5 dimensions; got {self.rank}"
        if any(not 1 <= size <= MAX_BOX for size in self.box) or len(self.box) != self.rank:
            yield f"a box of {self.rank} sizes in 1..{MAX_BOX}; got {self.box}"


@dataclass(frozen=True)
class ColumnMap(TensorMap):
    """Image columns: `pixels` successive window positions, each with `channels` neighbours along dimension 0.

    Dimensions are channels, then the spatial ones (fastest first), then the batch. Window positions run, in steps, from
    lower[i] to size - 1 + upper[i] in each spatial dimension.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int

    @property
    def row_elements(self) -> int:
        """See `TensorMap`."""
        return self.channels

    @property
    def nbytes(self) -> int:
        """See `TensorMap`."""
        return self.pixels * self.row_bytes

    @property
    def positions(self) -> tuple[int, ...]:
        """Window positions along each spatial dimension."""
        sides = zip(self.sizes[1:-1], self.lower, self.upper, self.steps[1:-1], strict=True)
        return tuple((size - 1 + upper - lower) // step + 1 for size, lower, upper, step in sides)

    def coordinates(self, start: Array, offsets: Array) -> Array:
        """Coordinates of all units: start (*batch, rank), offsets (*batch, rank - 2) -> (*batch, units, rank).

        IllegalProblem for a start that is no window position.
        """
        lower, steps = np.array(self.lower), np.array(self.steps[1:-1])
        digits, rest = np.divmod(start[..., 1:-1] - lower, steps)
        if rest.any() or (digits < 0).any() or (digits >= self.positions).any():
            raise IllegalProblem(
                f"a copy of image columns starts at a window position (from {self.lower} by {self.steps[1:-1]}, "
                f"{self.positions} of them); got {start[..., 1:-1].tolist()}; start on the grid"
            )
        linear = start[..., -1]
        for dimension in reversed(range(len(self.positions))):
            linear = linear * self.positions[dimension] + digits[..., dimension]
        linear = linear[..., None] + np.arange(self.pixels)
        columns: list[Array] = []
        for dimension, count in enumerate(self.positions):
            place = linear % count * steps[dimension] + lower[dimension]
            columns.append(place + offsets[..., dimension, None])
            linear = linear // count
        pixel = np.stack([*columns, linear], axis=-1)
        units = self._row_units(start[..., 0])
        shape = (*pixel.shape[:-1], units.shape[-1])
        first = np.broadcast_to(units[..., None, :], shape)[..., None]
        others = np.broadcast_to(pixel[..., None, :], (*shape, self.rank - 1))
        return np.concatenate([first, others], axis=-1).reshape(*start.shape[:-1], -1, self.rank)

    def _own_rules(self) -> Iterator[str]:
        if self.rank not in CORNERS:
            yield f"3 to 5 dimensions; got {self.rank}"
            return
        low, high = CORNERS[self.rank]
        if any(not low <= corner <= high for corner in (*self.lower, *self.upper)):
            yield f"corners in {low}..{high}; got {self.lower}, {self.upper}"
        if not 1 <= self.channels <= MAX_BOX or not 1 <= self.pixels <= MAX_PIXELS:
            yield f"at most {MAX_BOX} channels and {MAX_PIXELS} pixels; got {self.channels} and {self.pixels}"
        if any(count < 1 for count in self.positions):
            yield f"at least one window position in every dimension; got {self.positions}"


def _shared_rules(map: TensorMap) -> Iterator[str]:
    if map.address % GRANULE:
        yield f"an address that is a multiple of {GRANULE}; got {map.address}"
    if any(not 1 <= size <= 1 << 32 for size in map.sizes):
        yield f"sizes in 1..2**32; got {map.sizes}"
    if len(map.strides) != map.rank - 1 or any(stride % GRANULE or not 0 <= stride < 1 << 40 for stride in map.strides):
        yield f"{map.rank - 1} strides below 2**40 that are multiples of {GRANULE} bytes; got {map.strides}"
    if len(map.steps) != map.rank or any(not 1 <= step <= MAX_STEP for step in map.steps):
        yield f"steps in 1..{MAX_STEP}; got {map.steps}"
    if map.row_bytes % GRANULE:
        yield f"rows of a multiple of {GRANULE} bytes; got {map.row_bytes}"
    if map.swizzle is not Swizzle.NONE and map.row_bytes > map.swizzle.value:
        yield f"rows of at most the swizzle's {map.swizzle.value} bytes; got {map.row_bytes}"
