"""What a request of a subgroup costs: wavefronts of shared memory, sectors of global memory.

A wavefront serves, in each bank, one word. Wide accesses are served in parts of the subgroup so that a part moves at
most one word per bank. Sectors are aligned pieces of memory that are moved whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Units of the memory system: a subgroup's threads, banks of shared memory, bytes of a bank's word and a sector."""

    subgroup: int = 32
    banks: int = 32
    word_bytes: int = 4
    sector_bytes: int = 32


def wavefronts(addresses: Ints, present: Bools, nbytes: int, geometry: Geometry) -> tuple[int, int]:
    """(what is taken, the fewest) for requests of `nbytes` a thread at byte addresses (requests, threads)."""
    width = geometry.banks * geometry.word_bytes
    part = min(geometry.subgroup, max(1, width // nbytes))
    addresses, present = addresses.reshape(-1, part), present.reshape(-1, part)
    words = _units(addresses, present, nbytes, geometry.word_bytes)
    fresh = _distinct(words)
    rows = np.broadcast_to(np.arange(len(words))[:, None], words.shape)[fresh]
    banks = words[fresh] % geometry.banks
    load = np.bincount(rows * geometry.banks + banks, minlength=len(words) * geometry.banks)
    per_bank = load.reshape(len(words), geometry.banks)
    ideal = -(-fresh.sum(axis=1) // geometry.banks)
    return int(per_bank.max(axis=1, initial=0).sum()), int(ideal.sum())


def sectors(addresses: Ints, present: Bools, nbytes: int, geometry: Geometry) -> tuple[int, int]:
    """The same in sectors of global memory."""
    size = geometry.sector_bytes
    moved = _distinct(_units(addresses, present, nbytes, size)).sum()
    step = min(nbytes, geometry.word_bytes)
    pieces = _distinct(_units(addresses, present, nbytes, step)).sum(axis=1) * step
    return int(moved), int((-(-pieces // size)).sum())


def _units(addresses: Ints, present: Bools, nbytes: int, size: int) -> Ints:
    """Numbers of the aligned pieces of `size` bytes that each row touches, sorted; -1 for absent threads."""
    count = -(-nbytes // size) + (0 if nbytes % size == 0 or size % nbytes == 0 else 1)
    pieces = addresses[..., None] // size + np.arange(count)
    last = (addresses + nbytes - 1) // size
    valid = present[..., None] & (pieces <= last[..., None])
    return np.sort(np.where(valid, pieces, -1).reshape(len(addresses), -1), axis=1)


def _distinct(sorted_rows: Ints) -> Bools:
    """The first of each run of equal numbers, absent ones (-1) left out."""
    first = np.ones(sorted_rows.shape, np.bool_)
    first[:, 1:] = sorted_rows[:, 1:] != sorted_rows[:, :-1]
    return first & (sorted_rows >= 0)
