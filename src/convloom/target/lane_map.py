"""Lane maps: views from (lane, element) to an operand's matrix, and arrays of registers taken through them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.errors import InternalError
from convloom.target.number_format import Array
from convloom.view import OFFSET, Affine, Axis, Split, View

LANE, ELEMENT = "lane", "element"
Digits: TypeAlias = Sequence[tuple[int, int]]
"""(extent, stride) of the digits of a number, outermost first."""


def lane_map(lane: Digits, element: Digits) -> View:
    """The view with axes `lane` and `element` whose offset is the sum of digit * stride.

    An index into a matrix counts row by row: row * columns + column. Example: a 16 x 8 accumulator where lane
    4g + t holds in element 2h + i the entry (g + 8h, 2t + i): lane=((8, 8), (4, 2)), element=((2, 64), (2, 1)).
    """
    lanes, elements = _named(LANE, lane), _named(ELEMENT, element)
    axes = (Axis(LANE, _total(lane)), Axis(ELEMENT, _total(element)))
    strides = [stride for _, stride in (*lane, *element)]
    splits = (
        Split(LANE, lanes, [extent for extent, _ in lane]),
        Split(ELEMENT, elements, [extent for extent, _ in element]),
    )
    return View(axes, (*splits, Affine((*lanes, *elements), OFFSET, strides)))


def _named(axis: str, digits: Digits) -> tuple[str, ...]:
    return tuple(f"{axis}_{position}" for position in range(len(digits)))


def _total(digits: Digits) -> int:
    return int(np.prod([extent for extent, _ in digits], dtype=np.int64))


def extents(view: View) -> tuple[int, int]:
    """(lanes, elements in each lane) of a lane map."""
    lane, element = view.axes
    return lane.extent.value, element.extent.value


@lru_cache(maxsize=1024)
def index_table(view: View) -> NDArray[np.int64]:
    """The map evaluated: an array of shape (lanes, elements) of matrix indices; not to be written to."""
    lanes, elements = extents(view)
    coordinates: dict[str, NDArray[np.int64]] = {LANE: np.arange(lanes)[:, None], ELEMENT: np.arange(elements)[None, :]}
    table = np.broadcast_to(view.access(coordinates, {}).offset, (lanes, elements)).astype(np.int64)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1024)
def holder_table(view: View, size: int) -> NDArray[np.int64]:
    """For each matrix index below `size` the first lane * elements + element that holds it; not to be written to.

    InternalError if an entry is held by nobody.
    """
    held, where = np.unique(index_table(view).reshape(-1), return_index=True)
    if held.size != size or held[0] != 0 or held[-1] != size - 1:
        raise InternalError(f"a lane map must hold each of {size} entries; it holds {held.size}; report this")
    table = where.astype(np.int64)
    table.setflags(write=False)
    return table


def to_matrix(held: Array, view: View, shape: tuple[int, int]) -> Array:
    """The matrix whose entries lie in the lanes: (.., lanes, elements) -> (.., rows, columns)."""
    rows, columns = shape
    flat = held.reshape(*held.shape[:-2], held.shape[-2] * held.shape[-1])
    return flat[..., holder_table(view, rows * columns)].reshape(*held.shape[:-2], rows, columns)


def to_lanes(matrix: Array, view: View) -> Array:
    """What each lane holds of a matrix: (.., rows, columns) -> (.., lanes, elements)."""
    flat = matrix.reshape(*matrix.shape[:-2], matrix.shape[-2] * matrix.shape[-1])
    return flat[..., index_table(view)]
