"""How the registers of a fragment meet an operand tile in shared memory: by matrix loads, or word by word.

An operand tile has rows (m of A, n of B) and k. Everything is read off a row's lane maps; nothing depends on a name.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from convloom.target.instruction import Instruction
from convloom.target.lane_map import index_table

MATRIX_LINES = 8
MATRIX_LINE_BYTES = 16
"""A matrix load moves matrices of 8 lines of 16 bytes; lane 4g + t receives 4-byte word t of line g."""

TURNED_BITS = 16
"""Width of the numbers that a matrix load can transpose."""

_WORD_BYTES = 4
_BANKS = 32


class Way(Enum):
    """How a fragment is brought from a tile."""

    MATRIX = "matrix load"  # lines of the tile are rows, k runs along them
    TURNED = "transposing matrix load"  # lines of the tile are k
    WORDS = "words"  # every lane reads each of its registers


class Places(NamedTuple):
    """Row and k of every element, arrays of shape (lanes, elements)."""

    row: NDArray[np.int64]
    k: NDArray[np.int64]


@lru_cache(maxsize=256)
def places(row: Instruction, name: str) -> Places:
    """Where the elements of operand `a` or `b` lie in its tile."""
    fragment = row.fragment(name)
    table = index_table(fragment.layout)
    outer, inner = table // fragment.shape[1], table % fragment.shape[1]
    return Places(outer, inner) if name == "a" else Places(inner, outer)


def run_length(row: Instruction, name: str) -> int:
    """Elements in one register."""
    return row.fragment(name).elements // row.operand(name).registers


@lru_cache(maxsize=256)
def _is_run_along_k(row: Instruction, name: str) -> bool:
    """Whether the elements of each register are neighbours along k."""
    run = run_length(row, name)
    at = places(row, name)
    numbers = _numbers(at.k.shape[1])
    first = numbers // run * run
    steps = numbers - first
    return bool((at.row == at.row[:, first]).all() and (at.k == at.k[:, first] + steps).all())


@lru_cache(maxsize=256)
def matches_matrix_load(row: Instruction, name: str) -> bool:
    """Whether each register of each lane is what a matrix load gives it of 8 rows by 16 bytes of k."""
    fragment, run = row.fragment(name), run_length(row, name)
    if run * fragment.dtype.nbytes != _WORD_BYTES or not _is_run_along_k(row, name):
        return False
    at = places(row, name)
    lanes = np.arange(fragment.lanes)[:, None]
    row_step = at.row[:, ::run] - at.row[:1, ::run]
    k_step = at.k[:, ::run] - at.k[:1, ::run]
    words = MATRIX_LINE_BYTES // _WORD_BYTES
    return bool((row_step == lanes // words).all() and (k_step == lanes % words * run).all())


@lru_cache(maxsize=256)
def columns_together(row: Instruction) -> int:
    """How many neighbouring columns of the result a lane holds in consecutive elements."""
    table = index_table(row.fragment("d").layout)
    count = table.shape[1]
    numbers = _numbers(count)
    while count > 1:
        first = numbers // count * count
        if table.shape[1] % count == 0 and (table == table[:, first] + numbers - first).all():
            break
        count //= 2
    return count


def way_of(row: Instruction, name: str, k_fastest: bool) -> Way | None:
    """How operand `name` comes from a tile in whose lines k (or the row) is the fast direction; None: not at all."""
    if row.lanes > 1 and matches_matrix_load(row, name):
        if k_fastest:
            return Way.MATRIX
        if row.fragment(name).dtype.bits == TURNED_BITS:
            return Way.TURNED
    return Way.WORDS if _is_run_along_k(row, name) else None


def packing(row: Instruction, name: str, k_fastest: bool) -> int:
    """How many k lie together in a tile whose lines run along rows, so that a register is one access; else 1."""
    return run_length(row, name) if not k_fastest and way_of(row, name, k_fastest) is Way.WORDS else 1


@lru_cache(maxsize=4096)
def is_conflict_free(row: Instruction, name: str, k_fastest: bool, line_bytes: int) -> bool:
    """Whether loads of one fragment serve all banks at once, with lines of so many bytes."""
    way, nbytes = way_of(row, name, k_fastest), row.fragment(name).dtype.nbytes
    if way is not Way.WORDS:
        starts = np.arange(MATRIX_LINES) * line_bytes
        return _spread(starts, MATRIX_LINE_BYTES)
    pack, run = packing(row, name, k_fastest), run_length(row, name)
    at = places(row, name)
    for register in range(0, at.row.shape[1], run):
        rows, ks = at.row[:, register], at.k[:, register]
        starts = rows * line_bytes + ks * nbytes if k_fastest else ks // pack * line_bytes + rows * pack * nbytes
        if not _spread(starts, run * nbytes):
            return False
    return True


def _spread(starts: NDArray[np.int64], nbytes: int) -> bool:
    """Whether the accesses of each part of a subgroup (128 bytes) touch distinct banks, equal words apart."""
    part = max(1, _BANKS * _WORD_BYTES // nbytes)
    for first in range(0, len(starts), part):
        words = starts[first : first + part, None] // _WORD_BYTES + np.arange(max(nbytes // _WORD_BYTES, 1))
        distinct = np.unique(words)
        if len(np.unique(distinct % _BANKS)) != len(distinct):
            return False
    return True


def _numbers(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)
